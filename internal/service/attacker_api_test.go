//go:build api

package service

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// prunesLater is how much later than everything else prunes are: no day passes on a real server,
// and a prune removes nothing that is younger than its grace.
const prunesLater = 24 * time.Hour

// attackedS3 is a bucket of a real server, with versions. Its prune records are a day ahead, by
// which prunes know the time of the storage. Servers refuse requests whose clock is off, and set
// the times of objects themselves.
type attackedS3 struct {
	*s3.Bucket
	t      *testing.T
	client *minio.Client
	name   string
}

func newAttackedS3(t *testing.T, server *s3test.Server, name string) *attackedS3 {
	t.Helper()
	server.NewVersionedBucket(t, name)
	b, err := s3.New(s3.Options{Bucket: name, Endpoint: server.Endpoint,
		CredentialsFile: server.CredentialsFile})
	must(t, err)
	return &attackedS3{Bucket: b, t: t, client: server.Client(t), name: name}
}

var (
	_ attackedBucket  = (*attackedS3)(nil)
	_ bucket.Repairer = (*attackedS3)(nil)
)

// Overwrite implements attackedBucket. Its bytes have no checksum on record.
func (b *attackedS3) Overwrite(key string, data []byte) {
	b.t.Helper()
	_, err := b.client.PutObject(b.t.Context(), b.name, key, bytes.NewReader(data),
		int64(len(data)), minio.PutObjectOptions{DisableContentSha256: true})
	must(b.t, err)
}

// Hide implements attackedBucket: a deletion that names no version.
func (b *attackedS3) Hide(key string) {
	b.t.Helper()
	must(b.t, b.client.RemoveObject(b.t.Context(), b.name, key, minio.RemoveObjectOptions{}))
}

// Keys implements attackedBucket.
func (b *attackedS3) Keys(prefix string) (keys []string) {
	b.t.Helper()
	for o := range b.client.ListObjects(b.t.Context(), b.name,
		minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		must(b.t, o.Err)
		keys = append(keys, o.Key)
	}
	return keys
}

func (b *attackedS3) at(i bucket.Info) bucket.Info {
	if strings.HasPrefix(i.Key, "prunes/") {
		i.Modified = i.Modified.Add(prunesLater)
	}
	return i
}

// Stat implements bucket.Bucket.
func (b *attackedS3) Stat(ctx context.Context, key string) (bucket.Info, error) {
	i, err := b.Bucket.Stat(ctx, key)
	return b.at(i), err
}

// List implements bucket.Bucket.
func (b *attackedS3) List(ctx context.Context, prefix string,
	fn func(bucket.Info) error) error {
	return b.Bucket.List(ctx, prefix, func(i bucket.Info) error { return fn(b.at(i)) })
}

// TestAPIABucketWithAnAttacker takes snapshots of three scopes into versioned buckets of real
// servers, and prunes them, while somebody does one thing after the other. At the end the newest
// snapshot of each scope is found, is said to be the newest, and can be restored; each kind of
// attack was reported. With MGMTD_TEST_STATES, MinIO has all of them.
func TestAPIABucketWithAnAttacker(t *testing.T) {
	for _, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			server := s3test.Start(t, s3test.Options{Kind: kind, Versions: true})
			for name, attacks := range map[string]func(d *attackedDay) []attack{
				"beside-and-over": func(*attackedDay) []attack {
					return append(append([]attack{}, putsOver...), putsBeside...)
				},
				"puts-and-hides": func(*attackedDay) []attack {
					return append(append([]attack{}, putsOver...), hides...)
				},
				"stolen-edge": func(d *attackedDay) []attack {
					return []attack{d.stealKey("sources: [edge]").strikes()}
				},
				"clock-ahead": func(*attackedDay) []attack { return []attack{wrongClock} },
			} {
				if kind == s3test.MinIO && name != "puts-and-hides" && !long {
					continue
				}
				t.Run(name, func(t *testing.T) {
					d := newAttackedDay(t, newAttackedS3(t, server, name))
					defer d.close()
					d.prunesLater = prunesLater
					d.round()
					if name != "stolen-edge" { // which must leave no ownership record that counts
						d.prepare()
					}
					d.round()
					made := attacks(d)
					d.underAttack(made)
					if name == "stolen-edge" {
						d.assertNothingStruck()
					}
				})
			}
		})
	}
}

// underAttack makes each attack between two rounds, and asserts at the end that everything is
// there and that each attack was reported.
func (d *attackedDay) underAttack(attacks []attack) {
	d.t.Helper()
	for n, a := range attacks {
		d.attack(a, n)
		d.round()
	}
	d.repair()
	d.assertNewest()
	d.verify()
	d.assertAttacksReported(attacks)
	d.assertRestorable()
}

// round takes a snapshot for each schedule, and prunes.
func (d *attackedDay) round() {
	d.t.Helper()
	for _, s := range d.cfg.Schedules {
		d.take(s.Name)
	}
	d.runs.BeginPrune("all", "main")
}

// assertRestorable plans a restore of the newest snapshot of each scope into a management cluster,
// as it is planned in an outage: the newest is found and said to be the newest, its signature is
// accepted, and all its objects are read.
func (d *attackedDay) assertRestorable() {
	d.t.Helper()
	d.cfg.Targets = []kube.Options{servers.Options(1)}
	for scope, want := range d.taken {
		spec := &mgmtv1.RestoreSpec{Source: d.source.UID, Snapshot: latest, Scope: scope,
			SourceIsGone: true, ForceCodes: []string{string(object.CodeSourceSeenRecently)}}
		request, err := restoreFromProto(spec)
		must(d.t, err)
		inputs, err := d.openRestore(d.t.Context(), &request, d.id)
		must(d.t, err)
		plan, contents, err := inputs.plan(d.t.Context(), request.spec, nil)
		must(d.t, err)
		if plan.Snapshot.ID != string(want.ID) || len(plan.Units) == 0 {
			d.t.Errorf("scope %s: a restore would be of %s, want %s; %d units", scope, plan.Snapshot.ID,
				want.ID, len(plan.Units))
		}
		for _, f := range plan.Findings {
			if f.Code == object.CodeNotNewest {
				d.t.Errorf("scope %s: %s", scope, f.Message)
			}
		}
		for _, n := range inputs.snapshot.Graph.Nodes {
			body, err := contents.Bytes(n.Ref)
			if err != nil || !bytes.Equal(body, want.objects[n.Ref]) {
				d.t.Errorf("scope %s: a restore reads another %s than the source had, %v", scope, n.Ref,
					err)
			}
		}
	}
}

// TestAPIJunkInConditionalJSONIsReportedByTheFence: somebody who writes over conditional.json
// cannot stop snapshots, and whoever wants to record ownership is told which key it is. When the
// junk is deleted, the next process tries the server out again.
func TestAPIJunkInConditionalJSONIsReportedByTheFence(t *testing.T) {
	for _, kind := range s3test.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			server := s3test.Start(t, s3test.Options{Kind: kind, Versions: true})
			b := newAttackedS3(t, server, "junk")
			b.Overwrite("conditional.json", junk(1))
			d := newAttackedDay(t, b)
			defer d.close()
			d.round()
			d.round()
			d.assertNewestIs("all")
			if err := d.open().CanFence(t.Context()); err == nil ||
				!strings.Contains(err.Error(), "conditional.json") {
				t.Errorf("a fence by it: %v", err)
			}
			b.Hide("conditional.json")
			restarted, err := s3.New(s3.Options{Bucket: "junk", Endpoint: server.Endpoint,
				CredentialsFile: server.CredentialsFile})
			must(t, err)
			d.buckets["main"] = restarted
			must(t, d.open().CanFence(t.Context()))
		})
	}
}

// assertNewestIs asserts that the snapshot of a schedule that was taken last is found.
func (d *attackedDay) assertNewestIs(name string) {
	d.t.Helper()
	want := d.newestOf(name)
	got, _, err := findSnapshot(d.t.Context(), d.open(), snapshotRef{source: d.source.UID,
		scope: want.ScopeID()})
	if err != nil || got.ID != want.ID {
		d.t.Errorf("the newest is %s, want %s; %v", got.ID, want.ID, err)
	}
}
