package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFullDiskLosesNoRecord fills a real file system: a small tmpfs, mounted in the namespaces of a
// child process.
func TestFullDiskLosesNoRecord(t *testing.T) {
	t.Parallel()
	if folder := os.Getenv(noSpaceEnv); folder != "" {
		childNoSpace(folder)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDiskLosesNoRecord$")
	cmd.Env = append(os.Environ(), noSpaceEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	err := cmd.Start()
	if err != nil {
		t.Skipf("no user namespaces here: %v", err)
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() == noMount {
		t.Skip("no mount in a user namespace here")
	}
	if err != nil {
		t.Error(err)
	}
}

const (
	noMount    = 77
	noSpaceEnv = "CATALOG_TEST_NOSPACE"
)

func childNoSpace(folder string) {
	ctx := context.Background()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=512k"); err != nil {
		os.Exit(noMount)
	}
	path := filepath.Join(folder, "catalog.db")
	c, err := Open(ctx, path, Options{})
	must(err)
	op, err := c.CreateOperation(ctx, Operation{Kind: KindRestore})
	must(err)
	_, err = c.PutPlan(ctx, op.ID, bytes.NewReader([]byte("a small plan")))
	must(err)

	large := make([]byte, 1<<20)
	_, _ = rand.Read(large)
	if _, err := c.PutPlan(ctx, op.ID, bytes.NewReader(large)); !errors.Is(err, ErrNoSpace) {
		must(fmt.Errorf("large plan on a full disk: %w; want ErrNoSpace", err))
	}
	plan, err := c.Plan(ctx, op.ID)
	if string(plan) != "a small plan" {
		must(fmt.Errorf("plan after that is %q, %w", plan, err))
	}
	// What is small still fits, and the file is whole.
	_, err = c.SetState(ctx, op.ID, Running, Outcome{})
	must(err)
	must(c.Journal(op.ID, JournalOptions{}).Do(ctx, testStep, nothing))
	must(errors.Join(c.Check(ctx)...))
	must(c.Close())

	// On a disk that is full to the last byte, the catalog can be read, and makes room for itself
	// when there is some again.
	filler := filepath.Join(folder, "filler")
	f, err := os.Create(filler)
	must(err)
	for err == nil {
		_, err = f.Write(large[:4096])
	}
	must(f.Close())
	c, err = Open(ctx, path, Options{})
	must(err)
	_, err = c.Operation(ctx, op.ID)
	must(err)
	if _, err := Open(ctx, filepath.Join(folder, "another.db"), Options{}); !errors.Is(err,
		ErrNoSpace) {
		must(fmt.Errorf("new catalog on a full disk: %w; want ErrNoSpace", err))
	}
	must(os.Remove(filler))
	_, err = c.SetState(ctx, op.ID, Succeeded, Outcome{})
	must(err)
	must(errors.Join(c.Check(ctx)...))
	must(c.Close())
}
