//go:build api

package restore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
)

var everything = restore.Spec{SourceIsGone: true}

// TestAPICrashes kills the process with SIGKILL right before, or right after, one of its first
// writes to the target, resumes it, kills it again, and so on until the restore is through. The
// target must end up as if nothing had happened. Then it does the same with the undo of a restore
// that was not released. Without MGMTD_TEST_STATES, which make test-long sets, it makes a sample of
// the crashes, in which each kind of write is the last one before and after it was done.
func TestAPICrashes(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "crash-", "--workloads", "2", "--machines", "1",
		"--fast")
	s := take(t, "crash-")
	servers.Acknowledge(t, 1)
	crashThrough(t, s, nil, "create", "update", "update status")
	checkRestored(t, s)
	undoWithCrashes(t, "undo-")
}

// crashThrough carries out a restore, or its undo, in processes that die, until one comes to its
// end. Each kind of write must have been the last one, before and after it was done: a process also
// dies at the first write of that kind where none has died yet.
func crashThrough(t *testing.T, s site, env []string, writes ...string) {
	t.Helper()
	furthest := 16
	if os.Getenv("MGMTD_TEST_STATES") != "" {
		furthest = 4
	}
	crashes, missed := 0, map[string]bool{}
	for _, write := range writes {
		missed["before "+write], missed["after "+write] = true, true
	}
	for ; ; crashes++ {
		if crashes > 500 {
			t.Fatal("no end after 500 crashes")
		}
		at, crashed := crashOnce(t, s, env, crash{after: crashes%2 == 1,
			write: 1 + crashes/2%furthest, missed: slices.Sorted(maps.Keys(missed))})
		if !crashed {
			break
		}
		delete(missed, at)
	}
	t.Logf("%d crashes", crashes)
	if len(missed) > 0 {
		t.Errorf("no process of %d died %s", crashes, slices.Sorted(maps.Keys(missed)))
	}
}

// crash says when a process dies: before or after a write; before counts on, so that each run does
// a write. It also dies at the first of the points that were missed so far.
type crash struct {
	after  bool
	write  int
	missed []string
}

// dies says whether a process dies at a point of its nth write.
func (c crash) dies(point string, n int) bool {
	if slices.Contains(c.missed, point) {
		return true
	}
	if strings.HasPrefix(point, "after ") {
		return c.after && n >= c.write
	}
	return !c.after && n > c.write
}

// The environment of a process that dies in the middle of a restore.
const (
	crashChild  = "MGMTD_TEST_CRASH_CHILD" // the site's folder
	crashTarget = "MGMTD_TEST_CRASH_TARGET"
	crashAfter  = "MGMTD_TEST_CRASH_AFTER"
	crashWrite  = "MGMTD_TEST_CRASH_WRITE"
	crashMissed = "MGMTD_TEST_CRASH_MISSED" // points, with commas between them
)

// crashOnce runs or resumes what env says in a process that dies in the middle. It returns the
// point at which it died, and false when it came to its end.
func crashOnce(t *testing.T, s site, env []string, when crash) (at string, crashed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), env...), crashChild+"="+s.dir, crashTarget+"="+s.target.KubeconfigFile,
		crashAfter+"="+strconv.FormatBool(when.after), crashWrite+"="+strconv.Itoa(when.write),
		crashMissed+"="+strings.Join(when.missed, ","))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", false
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	if status, isWait := exit.Sys().(syscall.WaitStatus); isWait && status.Signaled() &&
		status.Signal() == syscall.SIGKILL {
		return string(out), true
	}
	t.Fatalf("%v: %v\n%s", env, err, out)
	return "", false
}

func runCrashChild() int {
	s := site{dir: os.Getenv(crashChild), target: kube.Options{KubeconfigFile: os.Getenv(crashTarget)}}
	write, err := strconv.Atoi(os.Getenv(crashWrite))
	if err == nil {
		when := crash{after: os.Getenv(crashAfter) == "true", write: write,
			missed: strings.Split(os.Getenv(crashMissed), ",")}
		if os.Getenv(crashUndo) != "" {
			return exitCode(s.runUndoChild(context.Background(), when))
		}
		err = s.carryOut(context.Background(), everything,
			func(m *kube.Mgmt) restore.Writer { return &dying{Writer: m.Writer(), when: when} })
	}
	return exitCode(err)
}

func exitCode(err error) int {
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// dying kills its own process at a write.
type dying struct {
	restore.Writer
	when   crash
	writes atomic.Int64
	dead   sync.Mutex // never unlocked
}

func (d *dying) at(kind string, write func() (*unstructured.Unstructured, error)) (
	*unstructured.Unstructured, error) {
	n := int(d.writes.Add(1))
	d.dieAt("before "+kind, n)
	obj, err := write()
	if err == nil {
		d.dieAt("after "+kind, n)
	}
	return obj, err
}

// dieAt prints where the process dies, and kills it, when it is to die there. Several writes can
// come here at once.
func (d *dying) dieAt(point string, n int) {
	if !d.when.dies(point, n) {
		return
	}
	d.dead.Lock()
	fmt.Print(point)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (d *dying) Create(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return d.at("create", func() (*unstructured.Unstructured, error) {
		return d.Writer.Create(ctx, k, obj)
	})
}

func (d *dying) Update(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return d.at("update", func() (*unstructured.Unstructured, error) {
		return d.Writer.Update(ctx, k, obj)
	})
}

func (d *dying) UpdateStatus(ctx context.Context, k kube.Kind, obj *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	return d.at("update status", func() (*unstructured.Unstructured, error) {
		return d.Writer.UpdateStatus(ctx, k, obj)
	})
}

// TestAPIMissingOwnerBlocksItsUnitUntilDropped: an object whose owner is neither in the snapshot
// nor on the target blocks its unit; --drop-owner lets it through.
func TestAPIMissingOwnerBlocksItsUnitUntilDropped(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "owner-", "--workloads", "1", "--machines", "1",
		"--fast")
	s := take(t, "owner-")
	w, err := s.open(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	var unit string
	for _, c := range w.snapshot.Graph.Clusters() {
		if strings.HasPrefix(c.Namespace, "owner-") {
			unit = c.Key().String()
			c.Owners = append(c.Owners, graph.Owner{Ref: object.Ref{Group: "example.test", Kind: "Parent",
				Namespace: c.Namespace, Name: "parent"}, UID: "gone"})
		}
	}
	plan, err := w.plan(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	if !blocked(plan, unit) {
		t.Errorf("%s is not blocked: %v", unit, plan.Findings)
	}
	spec := everything
	spec.DropOwners = []object.Ref{{Group: "example.test", Kind: "Parent",
		Namespace: strings.Split(unit,
			"/")[0], Name: "parent"}}
	if plan, err = w.plan(t.Context(), spec); err != nil || blocked(plan, unit) {
		t.Errorf("%s is blocked with the owner dropped: %v %v", unit, err, plan.Findings)
	}
}

func blocked(p *restore.Plan, unit string) bool {
	for _, u := range p.Units {
		if u.Name == unit {
			return u.Blocked
		}
	}
	return false
}
