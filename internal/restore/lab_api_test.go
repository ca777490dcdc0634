//go:build api

package restore_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/equality"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// site is where a restore of a test takes place: a directory with keys, store and catalog, and the
// target.
type site struct {
	dir    string
	target kube.Options
	store  string // the directory of keys and store, when it is not dir
}

// modifiersFile, in the directory of a site, has the resource modifiers of its restore, if any.
const modifiersFile = "modifiers.yaml"

func (s site) modifiers() (*modify.Document, error) {
	text, err := os.ReadFile(s.dir + "/" + modifiersFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return modify.Parse(text)
}

func openStore(ctx context.Context, dir string, create bool) (*store.Store, error) {
	recipient, err := os.ReadFile(dir + "/keys/recipient.txt")
	if err != nil {
		return nil, err
	}
	keys, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{string(bytes.TrimSpace(recipient))}, IdentityFiles: []string{dir +
			"/keys/identity.txt"},
		SigningKeyFile: dir + "/keys/signing.key", TrustedKeyFiles: []string{dir + "/keys/signing.pub"},
	})
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, store.Options{Bucket: directory.New(dir + "/store"), Keys: keys,
		Create: create})
}

// take takes a snapshot of the fleets with these namespace prefixes on server 0 into a new site
// whose target is server 1. Server 0 has the fleets of other tests as well. To capture and restore
// those in each test took most of the time of all tests.
func take(t *testing.T, prefixes ...string) site {
	t.Helper()
	namespaces := make([]string, 0, len(prefixes))
	for _, prefix := range prefixes {
		namespaces = append(namespaces, prefix+"team-0000")
	}
	return takeFrom(t, servers, namespaces...)
}

// takeFrom takes a snapshot of namespaces of other servers than those that all tests share. Without
// namespaces it takes everything.
func takeFrom(t *testing.T, servers *kubetest.Servers, namespaces ...string) site {
	t.Helper()
	s := site{dir: t.TempDir(), target: servers.Options(1)}
	if _, err := store.Keygen(s.dir+"/keys", time.Now()); err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), s.dir, true)
	if err != nil {
		t.Fatal(err)
	}
	source := servers.Connect(t, 0)
	_, err = snapshot.Create(t.Context(), snapshot.Options{
		Source: source.Reader(), SourceName: source.Name(), SourceUID: source.UID(),
		Kubernetes: source.KubernetesVersion(), Providers: source.Providers, Store: st, Writer: "test",
		Scope: capture.Scope{Namespaces: namespaces},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// work is an opened snapshot and target.
type work struct {
	snapshot *snapshot.Snapshot
	contents *snapshot.Contents
	target   *kube.Mgmt
	kinds    []kube.Kind
	signed   store.Signed
	// modifiers are those of the site.
	modifiers *modify.Document
}

func (s site) open(ctx context.Context, spec restore.Spec) (*work, error) {
	st, err := openStore(ctx, cmp.Or(s.store, s.dir), false)
	if err != nil {
		return nil, err
	}
	sources, err := st.Sources(ctx)
	if err != nil {
		return nil, err
	}
	newest, _, err := st.Newest(ctx, sources[0], store.Which{})
	if err != nil {
		return nil, err
	}
	w := &work{signed: *newest}
	if w.modifiers, err = s.modifiers(); err != nil {
		return nil, err
	}
	if w.snapshot, err = snapshot.Open(ctx, st, w.signed.Envelope, nil); err != nil {
		return nil, err
	}
	nodes, err := restore.Nodes(w.snapshot, spec)
	if err != nil {
		return nil, err
	}
	if w.contents, err = w.snapshot.Load(ctx, nodes, nil); err != nil {
		return nil, err
	}
	if w.target, err = kube.Connect(ctx, s.target); err != nil {
		return nil, err
	}
	w.kinds, err = w.target.Reader().Kinds(ctx)
	return w, err
}

func (w *work) plan(ctx context.Context, spec restore.Spec) (*restore.Plan, error) {
	return restore.NewPlan(ctx, restore.Input{
		Snapshot: w.snapshot, Contents: w.contents, Source: restore.Snapshot{ID: string(w.signed.ID),
			Source: object.Side{UID: w.signed.Source.UID}, Time: w.signed.Time},
		Target: object.Side{Name: w.target.Name(), UID: w.target.UID()}, Reader: w.target.Reader(),
		Prober: w.target.Prober(), Kinds: w.kinds, Spec: spec, Modifiers: w.modifiers,
	})
}

// carryOut starts a restore, or goes on with the one that the site's catalog holds.
func (s site) carryOut(ctx context.Context, spec restore.Spec,
	writer func(*kube.Mgmt) restore.Writer) error {
	w, err := s.open(ctx, spec)
	if err != nil {
		return err
	}
	c, err := catalog.Open(ctx, s.dir+"/catalog.db", catalog.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	id, plan, err := s.begin(ctx, c, w, spec)
	if err != nil || plan == nil {
		return err
	}
	err = restore.Run(ctx, restore.RunOptions{
		Plan: plan, Contents: w.contents, Modifiers: w.modifiers, Reader: w.target.Reader(),
		Writer: writer(w.target), Prober: w.target.Prober(), Kinds: w.kinds,
		Operation: string(id), Journal: c.Journal(id, catalog.JournalOptions{}),
		Tuning: restore.Tuning{Wait: time.Minute, Settle: 50 * time.Millisecond},
	})
	state := catalog.Succeeded
	if err != nil {
		state = catalog.Failed
	}
	_, stateErr := c.SetState(ctx, id, state, catalog.Outcome{})
	return errors.Join(err, stateErr)
}

// begin finds the operation to go on with, or makes one. The plan is nil when it has succeeded.
func (s site) begin(ctx context.Context, c *catalog.Catalog, w *work, spec restore.Spec) (
	catalog.OperationID, *restore.Plan, error) {
	left, err := c.Interrupted(ctx)
	if err != nil {
		return "", nil, err
	}
	for _, op := range left {
		state := catalog.Stopped
		if op.State == catalog.Planned {
			state = catalog.Failed
		}
		if _, err := c.SetState(ctx, op.ID, state, catalog.Outcome{}); err != nil {
			return "", nil, err
		}
	}
	ops, err := c.Operations(ctx, catalog.OperationFilter{Limit: 1})
	if err != nil {
		return "", nil, err
	}
	plan := &restore.Plan{}
	if len(ops) > 0 {
		if ops[0].State == catalog.Succeeded {
			return "", nil, nil
		}
		text, err := c.Plan(ctx, ops[0].ID)
		if err != nil {
			return "", nil, err
		}
		if err := json.Unmarshal(text, plan); err != nil {
			return "", nil, err
		}
		_, err = c.SetState(ctx, ops[0].ID, catalog.Running, catalog.Outcome{})
		return ops[0].ID, plan, err
	}
	if plan, err = w.plan(ctx, spec); err != nil {
		return "", nil, err
	}
	if plan.Blocked {
		return "", nil, &restore.FindingsError{Findings: plan.Findings}
	}
	op, err := c.CreateOperation(ctx, catalog.Operation{Kind: catalog.KindRestore})
	if err != nil {
		return "", nil, err
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return "", nil, err
	}
	if _, err := c.PutPlan(ctx, op.ID, bytes.NewReader(text)); err != nil {
		return "", nil, err
	}
	_, err = c.SetState(ctx, op.ID, catalog.Running, catalog.Outcome{})
	return op.ID, plan, err
}

// empty deletes everything of Cluster API on the target, finalizers or not, and waits until it is
// gone. Most tests do not need it, since they restore namespaces that no other test uses.
func empty(t *testing.T) {
	t.Helper()
	m := servers.Connect(t, 1)
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		var left []kube.Kind // of which there was an object
		for _, k := range kinds {
			found := false
			_, err := m.Reader().List(t.Context(), k, kube.ListOptions{}, func(raw []byte) error {
				u := &unstructured.Unstructured{}
				if err := u.UnmarshalJSON(raw); err != nil {
					return err
				}
				if k.Group == "" && (k.Kind != "Namespace" || ownNamespace(u.GetName())) {
					return nil
				}
				found = true
				if len(u.GetFinalizers()) > 0 {
					u.SetFinalizers(nil)
					if _, err := m.Writer().Update(t.Context(), k, u); err != nil && !apierrors.IsConflict(err) &&
						!apierrors.IsNotFound(err) {
						return err
					}
				}
				if err := m.Writer().Delete(t.Context(), k, u.GetNamespace(), u.GetName(), u.GetUID(),
					""); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					return err
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if found {
				left = append(left, k)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("objects of %d kinds are left, the first is %s", len(left), left[0].GroupKind)
		}
		kinds = left
		time.Sleep(200 * time.Millisecond)
	}
}

func ownNamespace(namespace string) bool {
	return slices.Contains([]string{"default", "kube-system", "kube-public", "kube-node-lease"},
		namespace)
}

// planAgain plans a restore again, which must adopt everything.
func planAgain(t *testing.T, s site) *restore.Plan {
	t.Helper()
	w, err := s.open(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.plan(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	if create, adopt, _, blocked := again.Counts(); create > 0 || blocked > 0 || adopt == 0 {
		t.Errorf("planned again: %d to create, %d to adopt, %d units blocked: %v", create, adopt, blocked,
			again.Findings)
	}
	return again
}

// checkRestored compares the target with the snapshot from outside of the code that wrote it: every
// object there, equal, owned by live UIDs, nothing of ours left on it.
func checkRestored(t *testing.T, s site) {
	t.Helper()
	w, err := s.open(t.Context(), restore.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	uids := map[string]bool{}
	lives := map[object.Ref]*unstructured.Unstructured{}
	for _, n := range w.snapshot.Graph.Nodes {
		k, _ := kube.FindKind(w.kinds, n.GroupKind())
		live, err := w.target.Reader().Get(t.Context(), k, n.Namespace, n.Name)
		if err != nil {
			t.Errorf("%s: %v", n.Ref, err)
			continue
		}
		uids[string(live.GetUID())] = true
		lives[n.Ref] = live
	}
	for _, n := range w.snapshot.Graph.Nodes {
		live := lives[n.Ref]
		if live == nil || n.GroupKind() == kube.NamespaceKind.GroupKind {
			continue
		}
		raw, err := w.contents.Bytes(n.Ref)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if paths := equality.Differences(nil, want, live.Object, equality.All); len(paths) > 0 {
			t.Errorf("%s differs in %v", n.Ref, paths)
		}
		for _, o := range live.GetOwnerReferences() {
			if !uids[string(o.UID)] {
				t.Errorf("%s: owner %s/%s has UID %s, which does not live", n.Ref, o.Kind, o.Name, o.UID)
			}
		}
		for _, a := range []string{"mgmtd.dev/operation", "mgmtd.dev/was-paused"} {
			if v, left := live.GetAnnotations()[a]; left {
				t.Errorf("%s still has %s=%s", n.Ref, a, v)
			}
		}
	}
}

func realWriter(m *kube.Mgmt) restore.Writer { return m.Writer() }
