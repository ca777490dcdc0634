//go:build api

package restore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
)

var everything = restore.Spec{SourceIsGone: true}

// TestAPIRestore restores a fleet with classes, MachinePools and a paused workload cluster into an empty management cluster; then again, which must adopt
// everything and change nothing.
func TestAPIRestore(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "all-", "--workloads", "4", "--machines", "3", "--machine-pools")
	s := take(t)
	empty(t)
	acknowledge(t)
	if err := s.carryOut(t.Context(), everything, realWriter); err != nil {
		t.Fatal(err)
	}
	checkRestored(t, s)
	w, err := s.open(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.plan(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	if create, adopt, _, blocked := again.Counts(); create > 0 || blocked > 0 || adopt == 0 {
		t.Errorf("planned again: %d to create, %d to adopt, %d units blocked: %v", create, adopt, blocked, again.Findings)
	}
}

// TestAPICrashAtEveryWrite kills the process with SIGKILL right before, or right after, every single write to the target, resumes it, kills it at the next
// one, and so on until the restore is through. The target must end up as if nothing had happened.
func TestAPICrashAtEveryWrite(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "crash-", "--workloads", "2", "--machines", "1", "--fast")
	s := take(t)
	for _, moment := range []string{"before", "after"} {
		t.Run(moment, func(t *testing.T) {
			empty(t)
			acknowledge(t)
			here := site{dir: t.TempDir(), target: s.target}
			if err := os.CopyFS(here.dir, os.DirFS(s.dir)); err != nil {
				t.Fatal(err)
			}
			crashes := 0
			for ; ; crashes++ {
				if crashes > 1000 {
					t.Fatal("no end after 1000 crashes")
				}
				if crashed := crashOnce(t, here, moment); !crashed {
					break
				}
			}
			t.Logf("%d crashes %s a write", crashes, moment)
			if crashes < 60 {
				t.Errorf("only %d crashes: the writes were not reached", crashes)
			}
			checkRestored(t, here)
		})
	}
}

// The environment of a process that dies in the middle of a restore.
const (
	crashChild  = "MGMTD_TEST_CRASH_CHILD" // the site's folder
	crashTarget = "MGMTD_TEST_CRASH_TARGET"
	crashMoment = "MGMTD_TEST_CRASH_MOMENT"
)

// crashOnce runs a restore, or resumes it, in a process that dies at its second write (of which it does one when it dies before, so that each run gets on).
func crashOnce(t *testing.T, s site, moment string) (crashed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashChild+"="+s.dir, crashTarget+"="+s.target.KubeconfigFile, crashMoment+"="+moment)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	if status, isWait := exit.Sys().(syscall.WaitStatus); isWait && status.Signaled() && status.Signal() == syscall.SIGKILL {
		return true
	}
	t.Fatalf("restore: %v\n%s", err, out)
	return false
}

func runCrashChild() int {
	s := site{dir: os.Getenv(crashChild), target: mgmt.Options{KubeconfigFile: os.Getenv(crashTarget)}}
	moment := os.Getenv(crashMoment)
	err := s.carryOut(context.Background(), everything, func(m *mgmt.Mgmt) restore.Writer { return &dying{Writer: m.Writer(), moment: moment} })
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// dying kills its own process at a write.
type dying struct {
	restore.Writer
	moment string
	writes atomic.Int64
}

func (d *dying) at(write func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	n := d.writes.Add(1)
	if d.moment == "before" && n == 2 {
		die()
	}
	obj, err := write()
	if d.moment == "after" && err == nil {
		die()
	}
	return obj, err
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (d *dying) Create(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return d.at(func() (*unstructured.Unstructured, error) { return d.Writer.Create(ctx, k, obj) })
}

func (d *dying) Update(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return d.at(func() (*unstructured.Unstructured, error) { return d.Writer.Update(ctx, k, obj) })
}

func (d *dying) UpdateStatus(ctx context.Context, k mgmt.Kind, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return d.at(func() (*unstructured.Unstructured, error) { return d.Writer.UpdateStatus(ctx, k, obj) })
}

// TestAPIOwnerOutside: an object whose owner is neither in the snapshot nor on the target blocks its unit; --drop-owner lets it through.
func TestAPIOwnerOutside(t *testing.T) {
	servers.Fleet(t, 0, "--namespace-prefix", "owner-", "--workloads", "1", "--machines", "1", "--fast")
	s := take(t)
	empty(t)
	w, err := s.open(t.Context(), everything)
	if err != nil {
		t.Fatal(err)
	}
	var unit string
	for _, c := range w.snapshot.Graph.Clusters() {
		if strings.HasPrefix(c.Namespace, "owner-") {
			unit = c.Key().String()
			c.Owners = append(c.Owners, snapshot.Owner{Ref: mgmt.Ref{Group: "example.test", Kind: "Parent", Namespace: c.Namespace, Name: "parent"}, UID: "gone"})
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
	spec.DropOwners = []mgmt.Ref{{Group: "example.test", Kind: "Parent", Namespace: strings.Split(unit, "/")[0], Name: "parent"}}
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
