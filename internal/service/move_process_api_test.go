//go:build api

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

var servers *kubetest.Servers

func TestMain(m *testing.M) {
	if text := os.Getenv(orderVariable); text != "" {
		os.Exit(runOrder(text))
	}
	os.Exit(kubetest.Main(m, 2, func(s *kubetest.Servers) { servers = s }))
}

// orderVariable names the environment variable with the order, in JSON, of a process that may die.
// The process is the test program itself.
const orderVariable = "MGMTD_TEST_MOVE_ORDER"

// What a process is asked to do.
const (
	doMove   = "move"
	doResume = "resume"
	// start as the daemon does, which goes on by itself with what the one before it left
	doDaemon   = "daemon"
	doRollback = "rollback"
)

// order is what one process does.
type order struct {
	Dir   string          // keys, store and catalog
	Sides [2]kube.Options // the management clusters
	From  int             // the one to move from
	Spec  *mgmtv1.MoveSpec
	// Canary is the unit that is moved before all others.
	Canary string
	Do     string
	Kill   *kill
	Trace  string // file for what the process did
}

// Where in a step a process dies.
const (
	before = "before" // its record says begun, and its function has not run
	inside = "inside" // at a write
	after  = "after"  // its record says that it ended
	atKey  = "at-key" // not in a step: when a key is written to the store
)

// kill says when a process dies.
type kill struct {
	Point string
	Step  string // the key, with ns in place of the namespace
	Undo  bool   // of the way back
	Write int    // inside: the number of the write, of this step, from 1
	// Key is the beginning of the keys of the store at whose write a process dies, in any step.
	Key string
	// Answered: after the answer to the write, not before it was sent.
	Answered bool
}

func (k kill) String() string {
	text := k.Point
	if k.Point == inside || k.Point == atKey {
		text = map[bool]string{true: "after ", false: "before "}[k.Answered] + "write"
		if k.Write > 0 {
			text += fmt.Sprintf(" %d", k.Write)
		}
	}
	if k.Undo {
		text += " undoing"
	}
	return text + " of " + k.Step + k.Key
}

// traced is one step as a process went through it.
type traced struct {
	Step   string
	Undo   bool
	Writes int // to both sides
}

// end is the end of an operation, which its process prints on standard output.
type end struct {
	State, Message, Code string
	Findings             []string // those that are errors
}

// findings reads the errors in the history of an operation.
func findings(ctx context.Context, c *catalog.Catalog, id catalog.OperationID) (texts []string,
	err error) {
	for e, err := range c.Watch(ctx, id, 0) {
		if err != nil {
			return nil, err
		}
		if f := e.Finding; f != nil && f.Severity == object.Error {
			texts = append(texts, fmt.Sprintf("%s %v: %s", f.Code, f.Ref, f.Message))
		}
	}
	return texts, nil
}

// runOrder is the main function of such a process.
func runOrder(text string) int {
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		var e end
		if e, err = carryOut(context.Background(), o, nil); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(e)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// newServer makes a server like a daemon's, with one storage location and two management clusters.
func newServer(o order) (*Server, error) {
	recipient, err := os.ReadFile(filepath.Join(o.Dir, "keys", "recipient.txt"))
	if err != nil {
		return nil, err
	}
	s := New(Config{
		CatalogFile: filepath.Join(o.Dir, "catalog.db"), Daemon: true,
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Sources: o.Sides[:], Targets: o.Sides[:],
		Locations: []Location{{Name: "default", Default: true, Store: StoreOptions{
			URL:             "file://" + filepath.Join(o.Dir, "store"),
			Recipients:      []string{string(bytes.TrimSpace(recipient))},
			SigningKeyFile:  filepath.Join(o.Dir, "keys", "signing.key"),
			TrustedKeyFiles: []string{filepath.Join(o.Dir, "keys", "signing.pub")},
		}}},
	})
	s.seams.tuning = func(t *restore.Tuning) { t.Settle, t.Wait = 20*time.Millisecond, 30*time.Second }
	return s, nil
}

// carryOut does what an order says with a server of its own, and waits for the end of the
// operation. prepare, when set, changes the server before.
func carryOut(ctx context.Context, o order, prepare func(*Server)) (end, error) {
	s, err := newServer(o)
	if err != nil {
		return end{}, err
	}
	w := &witness{kill: o.Kill, namespace: o.Spec.GetSelection().GetNamespaces(),
		steps: map[string]*traced{}}
	if o.Trace != "" || o.Kill != nil {
		s.seams.onStep = w.onStep
		s.seams.writer = func(_ string, writer move.Writer) move.Writer {
			return &witnessed{Writer: writer,
				w: w}
		}
		s.buckets[s.cfg.Locations[0].Name] = &witnessedBucket{Bucket: directory.New(filepath.Join(o.Dir,
			"store")), w: w}
	}
	if prepare != nil {
		prepare(s)
	}
	e, err := s.carryOut(ctx, o)
	if err == nil && o.Trace != "" {
		err = w.write(o.Trace)
	}
	return e, errors.Join(err, s.Close())
}

func (s *Server) carryOut(ctx context.Context, o order) (end, error) {
	ref := latest
	var err error
	switch o.Do {
	case doMove:
		var r *mgmtv1.RunMoveResponse
		if r, err = (&moveService{s: s}).RunMove(ctx, &mgmtv1.RunMoveRequest{Spec: o.Spec,
			Tuning: &mgmtv1.RestoreTuning{Canary: o.Canary}}); err == nil {
			ref = r.GetOperation().GetId()
		}
	case doResume:
		_, err = (&operationService{s: s}).ResumeOperation(ctx,
			&mgmtv1.ResumeOperationRequest{Id: latest})
	case doRollback:
		_, err = (&operationService{s: s}).RollbackOperation(ctx,
			&mgmtv1.RollbackOperationRequest{Id: latest})
	case doDaemon:
		if err = s.Open(ctx); err == nil {
			err = s.Start(ctx)
		}
	}
	if err != nil {
		return end{}, err
	}
	c, err := s.openCatalog(ctx)
	if err != nil {
		return end{}, err
	}
	for began := time.Now(); ; {
		op, err := findOperation(ctx, c, ref)
		if err != nil {
			return end{}, err
		}
		if op.State.Ended() && (o.Do != doDaemon || op.State != catalog.Stopped ||
			time.Since(began) > 30*time.Second) {
			texts, err := findings(ctx, c, op.ID)
			return end{string(op.State), op.Message, op.Code, texts}, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// witness sees every step and every write of a process, and kills the process at one of them.
type witness struct {
	kill      *kill
	namespace []string

	mu    sync.Mutex
	steps map[string]*traced // by direction and key; gone again when they ended
	done  []traced
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
// step.
func (w *witness) general(step catalog.Step) string {
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
	at := before
	if r.State == catalog.StepBegun || r.State == catalog.StepUndoing {
		w.steps[step] = &traced{Step: step, Undo: undo}
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

// die ends the process as a power cut would: nothing of it runs any more, nothing is cleaned up.
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
	for key, t := range w.steps {
		step, err := catalog.ParseStep(key)
		if err != nil {
			continue
		}
		_, of, _ := strings.Cut(step.Unit, "/")
		ofUnit := strings.HasPrefix(of, unitPrefix)
		if ofUnit && of == unit || unit == "" && (!ofUnit || step.Phase == "owners") {
			return t
		}
	}
	return nil
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

// witnessed is a Writer under the eyes of a witness.
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

// witnessedBucket is a store under the eyes of a witness: what is written there belongs to no
// object.
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
