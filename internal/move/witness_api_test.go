//go:build api

package move_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// witness sees every step and every write of a process, and kills the process at one of them.
type witness struct {
	kill      *kill
	namespace []string

	mu    sync.Mutex
	steps map[string]*traced // by direction and key; gone again when they ended
	done  []traced
	// flying are the units that this process has released and not retired yet.
	flying map[string]bool
}

func newWitness(kill *kill, namespaces []string) *witness {
	return &witness{kill: kill, namespace: namespaces, steps: map[string]*traced{},
		flying: map[string]bool{}}
}

func (w *witness) write(file string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, err := json.Marshal(w.done)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// general replaces the namespace of the fleet, which is another one in each test, in the key of a
// step. How many batches there were when the shared objects are retired depends on how soon units
// are ready.
func (w *witness) general(step catalog.Step) string {
	if step.Phase == "retire-shared" {
		step.Wave = 0
	}
	for _, ns := range w.namespace {
		if rest, ok := strings.CutPrefix(step.String(), ns+"/"); ok {
			return "ns/" + rest
		}
	}
	return step.String()
}

func (w *witness) onStep(_ context.Context, r catalog.StepRecord) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	step, undo := w.general(r.Step), false
	switch r.State {
	case catalog.StepUndoing, catalog.StepUndone, catalog.StepUndoFailed:
		undo = true
	}
	w.fly(r)
	at := before
	if r.State == catalog.StepBegun || r.State == catalog.StepUndoing {
		w.steps[step] = &traced{Step: step, Undo: undo, Beside: w.beside(r.Step)}
	} else {
		at = after
		if t := w.steps[step]; t != nil {
			w.done = append(w.done, *t)
		}
		delete(w.steps, step)
	}
	if w.kill != nil && w.kill.Point == at && w.kill.Step == step && w.kill.Undo == undo {
		die()
	}
	return nil
}

// beside reports whether another unit is in flight when a step begins.
func (w *witness) beside(step catalog.Step) bool {
	others := len(w.flying)
	if w.flying[step.Unit] {
		others--
	}
	return others > 0
}

// fly notes that a unit begins its flight on the target, or ends it.
func (w *witness) fly(r catalog.StepRecord) {
	switch {
	case r.Step.Phase == "release" && r.State == catalog.StepBegun:
		w.flying[r.Step.Unit] = true
	case r.Step.Phase == "retire" && r.State == catalog.StepDone:
		delete(w.flying, r.Step.Unit)
	}
}

// die ends the process as a power cut would: it runs no deferred function and cleans up nothing.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// at wraps one write to a side. It counts for the step under way that writes objects of this name:
// all objects of a workload cluster of a fleet begin with its name.
func (w *witness) at(name string, write func() error) error {
	w.mu.Lock()
	number, t := 0, w.stepOf(name)
	if t != nil {
		t.Writes++
		number = t.Writes
	}
	hit := t != nil && w.kill != nil && w.kill.Point == inside && w.kill.Step == t.Step &&
		w.kill.Undo == t.Undo && w.kill.Write == number
	if hit && !w.kill.Answered {
		die()
	}
	w.mu.Unlock()
	err := write()
	if hit {
		die()
	}
	return err
}

func (w *witness) stepOf(name string) *traced {
	unit := unitName(name)
	var outer *traced // a give-back, which has other steps in it
	for key, t := range w.steps {
		step, err := catalog.ParseStep(key)
		if err != nil {
			continue
		}
		_, of, _ := strings.Cut(step.Unit, "/")
		ofUnit := strings.HasPrefix(of, unitPrefix)
		switch matches := ofUnit && of == unit || unit == "" && (!ofUnit || step.Phase == "owners"); {
		case matches && strings.HasPrefix(step.Phase, "give-back"):
			outer = t
		case matches:
			return t
		}
	}
	return outer
}

// unitPrefix begins the names of workload clusters and their objects in a fleet.
const unitPrefix = "w-0"

// unitName gives the name of the workload cluster that an object belongs to by its name, "" for a
// shared one.
func unitName(name string) string {
	const length = len("w-00000")
	if strings.HasPrefix(name, unitPrefix) && len(name) >= length {
		return name[:length]
	}
	return ""
}

// witnessed is a Writer whose calls a witness counts.
type witnessed struct {
	move.Writer
	w *witness
}

func (d *witnessed) Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	out *unstructured.Unstructured, err error) {
	err = d.w.at(obj.GetName(), func() (err error) {
		out, err = d.Writer.Create(ctx, k, obj)
		return err
	})
	return out, err
}

func (d *witnessed) Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	out *unstructured.Unstructured, err error) {
	err = d.w.at(obj.GetName(), func() (err error) {
		out, err = d.Writer.Update(ctx, k, obj)
		return err
	})
	return out, err
}

func (d *witnessed) UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	out *unstructured.Unstructured, err error) {
	err = d.w.at(obj.GetName(), func() (err error) {
		out, err = d.Writer.UpdateStatus(ctx, k, obj)
		return err
	})
	return out, err
}

func (d *witnessed) PatchMetadata(ctx context.Context, k kube.Kind, namespace, name string,
	metadata map[string]any) (out *unstructured.Unstructured, err error) {
	err = d.w.at(name, func() (err error) {
		out, err = d.Writer.PatchMetadata(ctx, k, namespace, name,
			metadata)
		return err
	})
	return out, err
}

func (d *witnessed) Delete(ctx context.Context, k kube.Kind, namespace, name string, uid types.UID,
	resourceVersion string) error {
	return d.w.at(name, func() error {
		return d.Writer.Delete(ctx, k, namespace, name, uid,
			resourceVersion)
	})
}

// witnessedBucket is a bucket whose writes a witness sees. They belong to no step.
type witnessedBucket struct {
	*directory.Bucket
	w *witness
}

func (b *witnessedBucket) at(key string, write func() error) error {
	hit := b.w.kill != nil && b.w.kill.Point == atKey && strings.HasPrefix(key, b.w.kill.Key)
	if hit && !b.w.kill.Answered {
		die()
	}
	err := write()
	if hit {
		die()
	}
	return err
}

func (b *witnessedBucket) Put(ctx context.Context, key string, data []byte) error {
	return b.at(key, func() error { return b.Bucket.Put(ctx, key, data) })
}

func (b *witnessedBucket) PutIf(ctx context.Context, key string, data []byte,
	tag string) (newTag string, err error) {
	err = b.at(key, func() (err error) {
		newTag, err = b.Bucket.PutIf(ctx, key, data, tag)
		return err
	})
	return newTag, err
}
