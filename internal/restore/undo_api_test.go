//go:build api

package restore_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/restore"
)

// crashUndo, in the environment of a crash child, has it undo a restore.
const crashUndo = "MGMTD_TEST_CRASH_UNDO"

// undoWithCrashes restores a fleet without a release, and undoes it in processes that die before
// and after their writes. Nothing of the restore may be left.
func undoWithCrashes(t *testing.T, prefix string) {
	t.Helper()
	servers.Fleet(t, 0, "--namespace-prefix", prefix, "--workloads", "2", "--machines", "1", "--fast")
	s := take(t, prefix)
	if err := s.carryOut(t.Context(), restore.Spec{SourceIsGone: true, NoRelease: true},
		realWriter); err != nil {
		t.Fatal(err)
	}
	if n := remaining(t, prefix); n < 20 {
		t.Fatalf("the restore has made %d objects", n)
	}
	crashThrough(t, s, []string{crashUndo + "=1"}, "patch", "delete")
	if n := remaining(t, prefix); n > 0 {
		t.Errorf("%d objects are left", n)
	}
}

// remaining counts the objects of Cluster API in the namespace of a fleet on the target.
func remaining(t *testing.T, prefix string) (n int) {
	t.Helper()
	m := servers.Connect(t, 1)
	kinds, err := m.Reader().Kinds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if k.Group == "" || !k.Namespaced {
			continue
		}
		if _, err := m.Reader().List(t.Context(), k, kube.ListOptions{Metadata: true,
			Namespace: prefix + "team-0000"}, func([]byte) error {
			n++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// runUndoChild undoes the restore of the site's catalog, or goes on with that.
func (s site) runUndoChild(ctx context.Context, when crash) error {
	target, err := kube.Connect(ctx, s.target)
	if err != nil {
		return err
	}
	kinds, err := target.Reader().Kinds(ctx)
	if err != nil {
		return err
	}
	c, err := catalog.Open(ctx, s.dir+"/catalog.db", catalog.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	ops, err := c.Operations(ctx, catalog.OperationFilter{Limit: 1})
	if err != nil {
		return err
	}
	id, plan, units := ops[0].ID, &restore.Plan{}, []string{}
	text, err := c.Plan(ctx, id)
	if err == nil {
		err = json.Unmarshal(text, plan)
	}
	if err != nil {
		return err
	}
	for _, u := range plan.Units {
		units = append(units, u.Name)
	}
	if ops[0].State == catalog.Running { // of a process that died
		if _, err := c.SetState(ctx, id, catalog.Stopped, catalog.Outcome{}); err != nil {
			return err
		}
	}
	if _, err := c.SetState(ctx, id, catalog.Running, catalog.Outcome{}); err != nil {
		return err
	}
	err = restore.Undo(ctx, restore.UndoOptions{RunOptions: restore.RunOptions{Plan: plan,
		Reader: target.Reader(), Writer: target.Writer(), Kinds: kinds, Operation: string(id),
		Journal: c.Journal(id, catalog.JournalOptions{}),
		Tuning:  restore.Tuning{Wait: time.Minute, Settle: 50 * time.Millisecond}},
		Remover: &dyingRemover{Remover: target.Writer(), at: (&dying{when: when}).at},
		Lister:  target.Reader(), Units: units, Shared: true})
	if err == nil {
		_, err = c.SetState(ctx, id, catalog.RolledBack, catalog.Outcome{})
	}
	return err
}

// dyingRemover kills its own process at a write.
type dyingRemover struct {
	restore.Remover
	at func(string, func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error)
}

func (d *dyingRemover) PatchMetadata(ctx context.Context, k kube.Kind, namespace, name string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	return d.at("patch", func() (*unstructured.Unstructured, error) {
		return d.Remover.PatchMetadata(ctx, k, namespace, name, metadata)
	})
}

func (d *dyingRemover) Delete(ctx context.Context, k kube.Kind, namespace, name string,
	uid types.UID, resourceVersion string) error {
	_, err := d.at("delete", func() (*unstructured.Unstructured, error) {
		return nil, d.Remover.Delete(ctx, k, namespace, name, uid, resourceVersion)
	})
	return err
}
