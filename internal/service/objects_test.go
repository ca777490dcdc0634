package service

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/snapshottest"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// sink is the server's side of a stream, which collects what is sent.
type sink[M any] struct {
	grpc.ServerStream
	ctx  context.Context
	sent []*M
}

func (s *sink[M]) Context() context.Context { return s.ctx }

func (s *sink[M]) Send(m *M) error {
	s.sent = append(s.sent, m)
	return nil
}

// looker is an encrypted store with snapshots of a source in memory, and the service that reads it.
type looker struct {
	t        testing.TB
	source   *snapshottest.Source
	st       *store.Store // can write and read
	service  *snapshotService
	identity []byte
}

func newLooker(t testing.TB) *looker {
	t.Helper()
	return newLookerIn(t, filepath.Join(t.TempDir(), "store"))
}

// newLookerIn makes it at a URL.
func newLookerIn(t testing.TB, url string) *looker {
	t.Helper()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	generated, err := store.Keygen(keys, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	identity, err := os.ReadFile(filepath.Join(keys, store.IdentityFile))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Locations: []Location{{Store: StoreOptions{URL: url,
		Recipients:      []string{generated.Recipient},
		SigningKeyFile:  filepath.Join(keys, store.SigningFile),
		TrustedKeyFiles: []string{filepath.Join(keys, store.SigningPubFile)}}}}})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	st, err := s.openLocation(t.Context(), &s.cfg.Locations[0], identity, true)
	if err != nil {
		t.Fatal(err)
	}
	return &looker{t: t, source: snapshottest.New("prod", 7, 4), st: st,
		service: &snapshotService{s: s}, identity: identity}
}

// take takes a snapshot.
func (l *looker) take(change func(*snapshot.Options)) store.Signed {
	l.t.Helper()
	o := l.source.Options(l.st)
	if change != nil {
		change(&o)
	}
	taken, err := snapshot.Create(l.t.Context(), o)
	if err != nil {
		l.t.Fatal(err)
	}
	e, err := l.st.GetEnvelope(l.t.Context(), taken.Envelope.Key())
	if err != nil {
		l.t.Fatal(err)
	}
	return e
}

func (l *looker) list(req *mgmtv1.ListObjectsRequest) ([]*mgmtv1.ListObjectsResponse, error) {
	stream := &sink[mgmtv1.ListObjectsResponse]{ctx: l.t.Context()}
	if req.Identity == nil {
		req.Identity = l.identity
	}
	req.Id = latest
	err := l.service.ListObjects(req, stream)
	return stream.sent, err
}

// wantNoValues fails when a text holds what is in Secrets of the source.
func wantNoValues(t *testing.T, what, text string) {
	t.Helper()
	raw, err := base64.RawStdEncoding.DecodeString(snapshottest.SecretText)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{snapshottest.SecretText, string(raw)} {
		if strings.Contains(text, value) {
			t.Errorf("%s has a value of a Secret", what)
		}
	}
}

// TestListObjectsNarrowsDown: each list of a filter has to fit, and an object that the snapshot
// left out is listed with its unit.
func TestListObjectsNarrowsDown(t *testing.T) {
	l := newLooker(t)
	l.source.PutMachine("team-0", "many", "w-0", capture.MaxReferences+1)
	e := l.take(nil)
	for _, tt := range []struct {
		name   string
		filter *mgmtv1.ObjectFilter
		want   int
		first  string
	}{
		{"all", nil, int(e.Counts.Objects) + 1, "Namespace/team-0"},
		{"a kind in lower case", &mgmtv1.ObjectFilter{Kinds: []string{"secret"}}, 12,
			"Secret/team-0/w-0-0"},
		{"of the core group", &mgmtv1.ObjectFilter{Kinds: []string{"Secret.core"}}, 12,
			"Secret/team-0/w-0-0"},
		{"of another group", &mgmtv1.ObjectFilter{Kinds: []string{"Secret.example.com"}}, 0, ""},
		{"two kinds", &mgmtv1.ObjectFilter{Kinds: []string{"Cluster.cluster.x-k8s.io", "Namespace"}}, 6,
			"Namespace/team-0"},
		{"a kind of a workload cluster", &mgmtv1.ObjectFilter{Kinds: []string{"Machine"},
			Workloads: []string{"team-1/w-3"}}, 2, "Machine.cluster.x-k8s.io/team-1/w-3-0"},
		{"a namespace, with itself", &mgmtv1.ObjectFilter{Kinds: []string{"Namespace", "Cluster"},
			Namespaces: []string{"team-1"}}, 3, "Namespace/team-1"},
		{"omitted", &mgmtv1.ObjectFilter{Kinds: []string{"DevMachine"},
			Workloads: []string{"team-0/w-0"}}, 3,
			"DevMachine.infrastructure.cluster.x-k8s.io/team-0/w-0-0"},
	} {
		got, err := l.list(&mgmtv1.ListObjectsRequest{Filter: tt.filter})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if len(got) != tt.want {
			t.Errorf("%s: %d objects, want %d", tt.name, len(got), tt.want)
			continue
		}
		wantNoValues(t, tt.name, fmt.Sprint(got))
		if len(got) > 0 && refOf(got[0].GetRef()).String() != tt.first {
			t.Errorf("%s: first %v, want %s", tt.name, got[0], tt.first)
		}
		if tt.name == "omitted" {
			last := got[len(got)-1]
			if !last.GetOmitted() || last.GetRef().GetName() != "many" || last.GetUnit() != "team-0/w-0" {
				t.Errorf("omitted: %v", last)
			}
			if m := got[0]; m.GetSize() == 0 || m.GetUid() == "" || m.GetResourceVersion() != "1" ||
				m.GetApiVersion() != "infrastructure.cluster.x-k8s.io/v1beta2" {
				t.Errorf("object: %v", m)
			}
		}
	}
}

func refOf(p *mgmtv1.Ref) object.Ref {
	return object.Ref{Group: p.GetGroup(), Kind: p.GetKind(), Namespace: p.GetNamespace(),
		Name: p.GetName()}
}

// TestLookingInsideRefuses what cannot be meant, and who may not read it.
func TestLookingInsideRefuses(t *testing.T) {
	l := newLooker(t)
	l.take(nil)
	other, err := os.ReadFile(keygenInto(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		req    *mgmtv1.ListObjectsRequest
		reason Reason
		text   string
	}{
		"namespace": {&mgmtv1.ListObjectsRequest{Filter: &mgmtv1.ObjectFilter{
			Namespaces: []string{"team-9"}}}, ReasonUsage, "team-9 is not in the snapshot"},
		"workload": {&mgmtv1.ListObjectsRequest{Filter: &mgmtv1.ObjectFilter{
			Workloads: []string{"team-0/w-9"}}}, ReasonUsage, "w-9 is not in the snapshot"},
		"no name": {&mgmtv1.ListObjectsRequest{Filter: &mgmtv1.ObjectFilter{
			Workloads: []string{"w-9"}}}, ReasonUsage, "want namespace/name"},
		"kind": {&mgmtv1.ListObjectsRequest{Filter: &mgmtv1.ObjectFilter{
			Kinds: []string{"a/b"}}}, ReasonUsage, "want Kind or Kind.group"},
		"no identity":    {&mgmtv1.ListObjectsRequest{Identity: []byte{}}, ReasonIdentity, ""},
		"wrong identity": {&mgmtv1.ListObjectsRequest{Identity: other}, ReasonIdentity, ""},
	} {
		got, err := l.list(tt.req)
		e := FromStatus(err)
		if e == nil || e.Reason != tt.reason || !strings.Contains(e.Message, tt.text) || len(got) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// keygenInto makes another identity, and returns its file.
func keygenInto(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "other")
	if _, err := store.Keygen(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, store.IdentityFile)
}

// TestGetObjectReturnsValuesOnlyOnRequest: a Secret comes without its values unless the request
// asks for them, any other object comes as the source served it.
func TestGetObjectReturnsValuesOnlyOnRequest(t *testing.T) {
	l := newLooker(t)
	l.take(nil)
	objects, _ := l.source.At("1")
	get := func(kind, namespace, name string, withSecrets bool) (*mgmtv1.GetObjectResponse, error) {
		return l.service.GetObject(t.Context(), &mgmtv1.GetObjectRequest{Id: latest, Kind: kind,
			Namespace: namespace, Name: name, WithSecrets: withSecrets, Identity: l.identity})
	}
	for _, tt := range []struct {
		kind, namespace, name string
		withSecrets, leftOut  bool
	}{{"cluster", "team-0", "w-1", false, false}, {"Namespace", "", "team-1", true, false},
		{"Secret", "team-0", "w-0-ca", true, false}, {"Secret", "team-0", "w-0-ca", false, true}} {
		resp, err := get(tt.kind, tt.namespace, tt.name, tt.withSecrets)
		if err != nil {
			t.Fatal(err)
		}
		ref := refOf(resp.GetRef())
		same := string(resp.GetJson()) == string(objects[ref])
		if objects[ref] == nil || resp.GetValuesLeftOut() != tt.leftOut || same == tt.leftOut {
			t.Errorf("%+v: left out %v, as it was %v: %s", tt, resp.GetValuesLeftOut(), same,
				resp.GetJson())
		}
		if tt.leftOut {
			wantNoValues(t, "Secret", string(resp.GetJson()))
			if !strings.Contains(string(resp.GetJson()), `"data":{"key":"`) {
				t.Errorf("no name of a value: %s", resp.GetJson())
			}
		}
	}
	for name, reason := range map[string]Reason{"none": ReasonNotFound, "": ReasonUsage} {
		resp, err := get("Secret", "team-0", name, true)
		if e := FromStatus(err); e == nil || e.Reason != reason {
			t.Errorf("%q: %v, %v", name, resp, err)
		}
	}
}
