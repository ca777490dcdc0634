package snapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// makeStores says what to call the stores that TestMakeStores writes, "1-first" for one: the
// format and, since one format has several writers, what is new in it.
var makeStores = flag.String("make-stores", "", "write testdata/stores/`NAME`-encrypted and "+
	"NAME-plain with the code of today")

// TestMakeStores writes what TestEveryEarlierStoreIsReadable reads. It never overwrites a store,
// since a store proves that today's code reads what earlier code wrote. Without the flag it writes
// the same into a temporary folder and reads it back, so that the next writer of the format can
// leave its own.
func TestMakeStores(t *testing.T) {
	name, dir := *makeStores, filepath.Join("testdata", "stores")
	if name == "" {
		name, dir = "now", t.TempDir()
	}
	for _, plain := range []bool{false, true} {
		root := filepath.Join(dir, name+map[bool]string{false: "-encrypted", true: "-plain"}[plain])
		if _, err := os.Stat(root); err == nil {
			t.Fatalf("%s is there; choose another name", root)
		}
		expect := newStoreMaker(t, root, plain).make()
		data, err := json.MarshalIndent(expect, "", " ")
		if err == nil {
			err = os.WriteFile(root+".json", append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		checkStore(t, root)
	}
}

// recorded is a source of which testdata/stores/source holds all objects, in the order in which
// they are listed.
type recorded struct {
	version string // resourceVersion of the cut
	kinds   []kube.Kind
	objects [][]byte
}

func readRecorded(t *testing.T, file, version string) recorded {
	t.Helper()
	lines := func(name string) [][]byte {
		data, err := os.ReadFile(filepath.Join("testdata", "stores", "source", name))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	}
	r := recorded{version: version, objects: lines(file)}
	for _, line := range lines("kinds.jsonl") {
		var k kube.Kind
		if err := json.Unmarshal(line, &k); err != nil {
			t.Fatal(err)
		}
		r.kinds = append(r.kinds, k)
	}
	return r
}

func (r recorded) Kinds(context.Context) ([]kube.Kind, error) { return r.kinds, nil }

// Changes are not in the recording.
func (r recorded) Changes(context.Context, kube.Kind, string, string,
	func(bool, []byte) error) error {
	return kube.ErrUnproven
}

func (r recorded) List(_ context.Context, k kube.Kind, o kube.ListOptions,
	fn func(raw []byte) error) (kube.ListResult, error) {
	result := kube.ListResult{ResourceVersion: r.version}
	for _, raw := range r.objects {
		ref := refOf(raw)
		if ref.GroupKind() != k.GroupKind || o.Namespace != "" && ref.Namespace != o.Namespace ||
			o.Name != "" && ref.Name != o.Name {
			continue
		}
		result.Items++
		if err := fn(raw); err != nil || result.Items == o.Limit {
			return result, err
		}
	}
	return result, nil
}

func refOf(raw []byte) object.Ref {
	group, _, ok := bytes.Cut([]byte(gjson.GetBytes(raw, "apiVersion").String()), []byte("/"))
	if !ok {
		group = nil
	}
	return object.Ref{
		Group: string(group), Kind: gjson.GetBytes(raw, "kind").String(),
		Namespace: gjson.GetBytes(raw, "metadata.namespace").String(), Name: gjson.GetBytes(raw,
			"metadata.name").String(),
	}
}

// storeMaker writes one store.
type storeMaker struct {
	t      *testing.T
	root   string
	plain  bool
	now    time.Time
	memory *catalog.Catalog
	expect storeExpect
}

func newStoreMaker(t *testing.T, root string, plain bool) *storeMaker {
	t.Helper()
	c, err := catalog.Open(t.Context(), filepath.Join(t.TempDir(), "catalog.db"), catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if problems := c.Check(context.Background()); len(problems) > 0 {
			t.Error(problems)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &storeMaker{t: t, root: root, plain: plain, memory: c, now: time.Date(2026, 1, 2, 3, 4, 5,
		678e6, time.UTC)}
}

// open opens the store to write. Who signs in a plain store does so because he wants to.
func (m *storeMaker) open(sign bool) *store.Store {
	m.t.Helper()
	o := store.KeyOptions{}
	if !m.plain {
		recipient, err := os.ReadFile(testKey(m.t, "recipient.txt"))
		if err != nil {
			m.t.Fatal(err)
		}
		o.Recipients = []string{string(recipient)}
		o.IdentityFiles = []string{testKey(m.t, "identity.txt")}
	}
	if sign {
		o.SigningKeyFile = testKey(m.t, "signing.key")
	}
	keys, err := store.LoadKeys(o)
	if err != nil {
		m.t.Fatal(err)
	}
	st, err := store.Open(m.t.Context(), store.Options{Bucket: directory.New(m.root), Keys: keys,
		Plain: m.plain, Create: true, Now: func() time.Time { return m.now }})
	if err != nil {
		m.t.Fatal(err)
	}
	return st
}

// snapshot takes one of a recorded source, or of some of its namespaces, and notes what has to be
// in it by the recording alone. It expires after ttl, unless that is 0.
func (m *storeMaker) snapshot(st *store.Store, source recorded, ttl time.Duration,
	namespaces ...string) *snapshot.Result {
	m.t.Helper()
	const uid = "6f1b2c3d-0000-4000-8000-000000000001"
	o := snapshot.Options{
		Source: source, SourceName: "prod", SourceUID: uid, Kubernetes: "v1.36.3", Store: st,
		Writer: "mgmtd test", Interval: time.Hour,
		State: m.memory.SnapshotState(st.ID(), uid), Now: func() time.Time { return m.now }, TTL: ttl,
		Providers: func(context.Context, []kube.Kind) ([]kube.Provider, error) {
			return []kube.Provider{{Namespace: "capi-system", Name: "cluster-api", Type: "CoreProvider",
				Version: "v1.14.0"}}, nil
		},
	}
	if o.Scope.Namespaces = namespaces; len(namespaces) > 0 {
		o.Schedule = "of " + namespaces[0]
	}
	r, err := snapshot.Create(m.t.Context(), o)
	if err != nil || r.NotRemembered != nil {
		m.t.Fatal(err, r)
	}
	e := snapshotExpect{ID: string(r.ID), ResourceVersion: source.version,
		Objects: map[string]string{}, Trust: store.Trusted, Partial: len(namespaces) > 0,
		Scope: store.ScopeOf(uid, namespaces, "", "").ID, Recipients: st.Recipients()}
	if !st.Signs() {
		e.Trust = store.Unsigned
	}
	if ttl > 0 {
		e.Expires = m.now.Add(ttl)
	}
	for _, raw := range source.objects {
		ref := refOf(raw)
		named := slices.Contains(namespaces, ref.Namespace) || ref.Kind == "Namespace" &&
			slices.Contains(namespaces, ref.Name)
		if ref.Name != "left-out" && (len(namespaces) == 0 || named) {
			sum := sha256.Sum256(raw)
			e.Objects[ref.String()] = hex.EncodeToString(sum[:])
		}
	}
	for _, missing := range r.Missing {
		e.Missing = append(e.Missing, missing.Ref.String())
	}
	m.expect.Snapshots = append(m.expect.Snapshots, e)
	m.now = m.now.Add(time.Hour)
	return r
}

// make fills the store: one snapshot that is removed again; two, of which the second uses packs of
// the first; three of a namespace; in a plain store one that is not signed; a pin, the results of
// two verifies, the record of a prune; the records of a move.
func (m *storeMaker) make() storeExpect {
	ctx, t := m.t.Context(), m.t
	st := m.open(true)
	m.expect.StoreID, m.expect.Encrypted = st.ID(), st.Encrypted()
	removed := m.snapshot(st, readRecorded(t, "2.jsonl", "999"), time.Minute)
	m.expect.Snapshots = nil
	first := m.snapshot(st, readRecorded(t, "1.jsonl", "1999"), 0)
	second := m.snapshot(st, readRecorded(t, "2.jsonl", "2999"), 30*24*time.Hour)
	m.retain(st, removed, first, second)
	if second.Parent == nil || second.Parent.SHA256 != first.SHA256 || second.Wrote >= second.Bytes {
		t.Fatalf("the second snapshot wrote %d of %d bytes", second.Wrote, second.Bytes)
	}
	for _, ttl := range []time.Duration{0, time.Hour, 0} {
		m.snapshot(st, readRecorded(t, "2.jsonl", "2999"), ttl, "team-a")
	}
	if m.plain {
		st = m.open(false)
		m.snapshot(st, readRecorded(t, "2.jsonl", "3999"), 0)
	}
	if len(second.Missing) != 1 || second.Missing[0].Name != "nobody-made-this" {
		t.Fatalf("missing: %v", second.Missing)
	}
	var previous *store.SignedOwner
	for epoch := int64(1); epoch <= 2; epoch++ {
		o := store.Owner{
			WorkloadID: "0c1d2e3f-0000-4000-8000-000000000005", Workload: "team-a/web", Epoch: epoch,
			Operation: "20260102-030405-abcd", Time: m.now,
			Owner: store.Source{UID: "6f1b2c3d-0000-4000-8000-000000000002", Name: "next",
				KubernetesVersion: "v1.36.3"},
		}
		signed, err := st.PutOwner(ctx, o, previous)
		if err != nil {
			t.Fatal(err)
		}
		previous, m.expect.Owner = &signed, signed.Owner
	}
	m.expect.Records = map[string]string{"1": "{\"plan\":1}\n", "2": "more than\none line\n"}
	for seq := range int64(2) {
		key := fmt.Sprint(seq + 1)
		r, err := st.SealOperationRecord("20260102-030405-abcd", seq+1, store.OperationHead{Time: m.now},
			[]byte(m.expect.Records[key]))
		if err == nil {
			err = st.PutOperationRecord(ctx, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// What a store that was copied from an S3 server also has.
	if err := os.WriteFile(filepath.Join(m.root, "conditional.json"),
		[]byte(`{"format":1,"conditional":"yes"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return m.expect
}

// retain pins the first snapshot, records that a verify found the second whole and one the first
// damaged, and removes the one before them, of which a record is left.
func (m *storeMaker) retain(st *store.Store, removed, first, second *snapshot.Result) {
	m.t.Helper()
	ctx, reason := m.t.Context(), "before the upgrade"
	if err := st.PutPin(ctx, first.Key(), reason, m.now); err != nil {
		m.t.Fatal(err)
	}
	m.expect.Pins, m.expect.Checks = map[string]string{string(first.ID): reason},
		map[string]store.Verification{}
	for of, check := range map[*snapshot.Result]store.Verification{
		first: {Level: store.LevelStructure, Outcome: store.OutcomeDamaged, Keys: 5, Findings: 1,
			First: []store.VerificationFinding{{Code: string(object.CodeMissing), Key: string(first.Tree)}}},
		second: {Level: store.LevelFull, Outcome: store.OutcomeOK, Keys: 7,
			Objects: second.Counts.Objects,
			Bytes:   second.Bytes},
	} {
		check.Time, check.Writer = m.now, "mgmtd test"
		recorded, err := st.PutVerification(ctx, of.Signed, check)
		if err != nil {
			m.t.Fatal(err)
		}
		m.expect.Checks[string(of.ID)] = recorded.Verification
	}
	// of the storage: as if a newer one had been there for the grace
	makeOld(m.t, m.root)
	o := retention.Options{Store: st, Delete: []store.EnvelopeKey{removed.Key()}}
	plan, err := retention.NewPlan(ctx, o)
	if err != nil {
		m.t.Fatal(err)
	}
	r, err := retention.Execute(ctx, o, plan)
	if err != nil || len(r.Removed) != 1 || r.Freed.Keys < 2 {
		m.t.Fatalf("prune: %+v, %v", r, err)
	}
	m.expect.Removed = map[string][]store.Range{removed.Source.UID: {{From: removed.Sequence,
		To: removed.Sequence}}}
	m.now = m.now.Add(time.Hour)
}

// makeOld makes the storage say that everything was written a day ago.
func makeOld(t *testing.T, root string) {
	t.Helper()
	old := time.Now().Add(-24 * time.Hour)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chtimes(path, old, old)
	})
	if err != nil {
		t.Fatal(err)
	}
}
