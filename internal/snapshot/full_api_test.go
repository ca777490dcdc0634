//go:build api

package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// pinned is a source that is fixed at one resourceVersion: every request is answered with an exact
// LIST at that one, also when the source has changed since. Two things are not in
// it. CustomResourceDefinitions are read as they are now, as every capture reads them: what they do
// to objects is not a matter of the resourceVersion at which the objects are read. And kinds of
// which the server refuses an exact LIST can only be read at their newest state; newest has those.
type pinned struct {
	capture.Source
	at      string
	refuses func(kube.Kind) bool

	mu            sync.Mutex
	kinds         []kube.Kind
	exact, newest map[object.GroupKind]bool
	elsewhere     []string // answers that were not of this resourceVersion
}

// Kinds records the answer.
func (p *pinned) Kinds(ctx context.Context) ([]kube.Kind, error) {
	kinds, err := p.Source.Kinds(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds = kinds
	return kinds, err
}

func (p *pinned) List(ctx context.Context, k kube.Kind, o kube.ListOptions, fn func([]byte) error) (
	kube.ListResult, error) {
	if p.refuses != nil && p.refuses(k) {
		if o.Exact != "" {
			return kube.ListResult{}, kube.ErrExactRefused
		}
		p.note(p.newest, k)
		return p.Source.List(ctx, k, o, fn)
	}
	o.Exact, o.Whole = p.at, false
	result, err := p.Source.List(ctx, k, o, fn)
	p.note(p.exact, k)
	if err == nil && result.ResourceVersion != p.at {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.elsewhere = append(p.elsewhere, k.String()+" at "+result.ResourceVersion)
	}
	return result, err
}

func (p *pinned) note(in map[object.GroupKind]bool, k kube.Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in[k.GroupKind] = true
}

// Changes fails: a full capture at a fixed resourceVersion watches nothing.
func (p *pinned) Changes(context.Context, kube.Kind, string, string,
	func(bool, []byte) error) error {
	return errors.New("a full capture watches nothing")
}

// opened is all that a snapshot in a store says.
type opened struct {
	*snapshot.Snapshot
	bodies map[object.Ref][]byte
	kinds  []kube.Kind // all that the source had, where it was compared
}

func (r *chainFixture) open(st *store.Store, e store.Envelope) opened {
	r.t.Helper()
	s, err := snapshot.Open(r.t.Context(), st, e, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	loaded, err := s.Load(r.t.Context(), s.Graph.Nodes, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	bodies := map[object.Ref][]byte{}
	for _, n := range s.Graph.Nodes {
		if bodies[n.Ref], err = loaded.Bytes(n.Ref); err != nil {
			r.t.Fatal(err)
		}
	}
	return opened{Snapshot: s, bodies: bodies}
}

// same takes a full snapshot of the source as of the resourceVersion of one that was taken, into an
// empty store, without a memory and over a connection that knows nothing, and compares all that the
// two say. It returns what was taken.
func (r *chainFixture) same(taken *snapshot.Result, o snapshot.Options) opened {
	r.t.Helper()
	p := &pinned{
		Source: servers.Connect(r.t, 0).Reader(), at: taken.ResourceVersion, refuses: r.refuses,
		exact: map[object.GroupKind]bool{}, newest: map[object.GroupKind]bool{},
	}
	o.Source, o.State, o.Cache, o.Progress = p, nil, nil, nil
	o.ExactLimit = exactLists
	var err error
	if o.Store, err = store.Open(r.t.Context(), store.Options{Bucket: directory.New(r.t.TempDir()),
		Plain: true, Create: true}); err != nil {
		r.t.Fatal(err)
	}
	full, err := snapshot.Create(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	if full.ResourceVersion != taken.ResourceVersion || len(p.elsewhere) > 0 ||
		full.Read != full.Counts.Objects {
		r.t.Fatalf("the full capture is of %s, not %s: %d of %d objects read, %v", full.ResourceVersion,
			taken.ResourceVersion, full.Read, full.Counts.Objects, p.elsewhere)
	}
	is, want := r.verified(taken.Envelope), r.open(o.Store, full.Envelope)
	r.sameResult(is, want)
	if diff := cmp.Diff(full.Missing, taken.Missing, cmpopts.EquateEmpty()); diff != "" {
		r.t.Errorf("reported as missing (-full +taken):\n%s", diff)
	}
	for _, n := range want.Graph.Nodes {
		if p.newest[n.GroupKind()] != slices.Contains(taken.NotInCut, n.GroupKind().String()) {
			r.t.Errorf("%s: read at its newest state %v, not in the cut %v", n.GroupKind(),
				p.newest[n.GroupKind()], taken.NotInCut)
		}
		if p.newest[n.GroupKind()] == p.exact[n.GroupKind()] {
			r.t.Errorf("%s was read in both ways, or none", n.GroupKind())
		}
	}
	r.served(p, is)
	is.kinds = p.kinds
	return is
}

// sameResult compares all that is said of the source, but for where in a store it is, and for whom
// it is encrypted: the store of the full snapshot is plain, and has no recipients.
func (r *chainFixture) sameResult(is, want opened) {
	r.t.Helper()
	for _, e := range []*store.Envelope{&is.Envelope, &want.Envelope} {
		slices.Sort(e.NotInCut) // in the order in which the kinds were refused
	}
	for _, c := range []struct {
		what     string
		is, want any
	}{
		{"envelope", is.Envelope, want.Envelope},
		{"about", is.About, want.About},
		{"nodes", is.Graph.Nodes, want.Graph.Nodes},
		{"missing", is.Graph.Missing, want.Graph.Missing},
	} {
		diff := cmp.Diff(c.want, c.is,
			cmpopts.IgnoreFields(store.Envelope{}, "StoreID", "ID", "Time", "Sequence", "Parent", "Tree",
				"Bytes", "Recipients"),
			cmpopts.IgnoreFields(graph.Node{}, "Pack"), cmpopts.IgnoreUnexported(graph.Node{}))
		if diff != "" {
			r.t.Errorf("%s at %s (-full +taken):\n%.4000s", c.what, is.Envelope.ResourceVersion, diff)
		}
	}
	if len(is.bodies) != len(want.bodies) {
		r.t.Errorf("%d objects can be opened, %d of the full snapshot", len(is.bodies), len(want.bodies))
	}
	for ref, body := range want.bodies {
		if !bytes.Equal(is.bodies[ref], body) {
			r.t.Errorf("%s is not what the full snapshot has of it", ref)
		}
	}
}

// served compares with what the server itself returns for each kind, without any capture code.
func (r *chainFixture) served(p *pinned, is opened) {
	r.t.Helper()
	found := 0
	for _, k := range is.About.Kinds {
		_, err := p.List(r.t.Context(), k, kube.ListOptions{}, func(raw []byte) error {
			key := mgmtKey(raw)
			ref := object.Ref{Group: k.Group, Kind: k.Kind, Namespace: key.Namespace, Name: key.Name}
			n := is.Graph.Node(ref)
			if n == nil {
				return nil
			}
			found++
			meta := gjson.GetBytes(raw, "metadata")
			if !bytes.Equal(is.bodies[ref], raw) || n.UID != meta.Get("uid").String() ||
				n.ResourceVersion != meta.Get("resourceVersion").String() {
				r.t.Errorf("%s is not what the server has", ref)
			}
			return nil
		})
		if err != nil {
			r.t.Fatal(err)
		}
	}
	if found != len(is.bodies) {
		r.t.Errorf("%d of %d objects are on the server", found, len(is.bodies))
	}
}
