package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const kubernetesVersion = "v1.36.3"

// target is one program to build from modules.
type target struct {
	name    string // of the program in bin/
	module  string // folder of its go.mod, below e2e/
	pkg     string
	ldflags string
	sources []string // folders of e2e/ that its stamp covers, for our own programs
}

// targets is in the order of need: what takes longest comes first, so that a
// failure of the long builds is seen early.
func targets() []target {
	kubernetes := versionFlags("k8s.io/component-base/version", kubernetesVersion)
	targets := []target{
		{name: "kube-apiserver", module: "tools/kubernetes", pkg: "k8s.io/kubernetes/cmd/kube-apiserver",
			ldflags: kubernetes},
		{name: "kube-controller-manager", module: "tools/kubernetes",
			pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", ldflags: kubernetes},
		{name: "kubectl", module: "tools/kubernetes", pkg: "k8s.io/kubernetes/cmd/kubectl",
			ldflags: kubernetes},
		{name: "etcd", module: "tools/etcd", pkg: "go.etcd.io/etcd/server/v3"},
		{name: "versitygw", module: "tools/versitygw", pkg: "github.com/versity/versitygw/cmd/versitygw"},
		// AGPL: run as a process in tests only, never linked and never shipped.
		{name: "minio", module: "tools/minio", pkg: "github.com/minio/minio"},
		{name: "age", module: "tools/open", pkg: "filippo.io/age/cmd/age"},
		{name: "minisign", module: "tools/open", pkg: "aead.dev/minisign/cmd/minisign"},
		{name: "jq", module: "tools/open", pkg: "github.com/itchyny/gojq/cmd/gojq"},
		{name: "zstd", module: "tools/open", pkg: "./zstd", sources: []string{"tools/open/zstd"}},
		{name: "cloud", module: ".", pkg: "./cmd/cloud", sources: []string{"cloud", "cmd/cloud"}},
	}
	targets = append(targets, current().targets()...)
	return append(targets, target{name: "lab", module: ".", pkg: "./cmd/lab",
		sources: []string{"cmd/lab", "lab", "fleet", "cloud/control"}})
}

// versionFlags are the linker flags without which a program reports no version;
// clients and controllers compare it.
func versionFlags(pkg, version string) string {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	return fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s",
		pkg, version, parts[0], parts[1])
}

// BuildOptions are what Build makes beside what every lab needs.
type BuildOptions struct {
	// Old makes the programs of Cluster API 1.10, which only AddOld needs.
	Old bool
	// Providers makes the programs and manifests that only AddProviders needs.
	Providers bool
	// Peers makes the programs that mgmtctl is compared with.
	Peers bool
}

// Build makes every program and manifest that a lab needs, from modules alone.
// It skips what is up to date by its stamp. It calls progress with one line for each step.
func Build(ctx context.Context, home Home, opts BuildOptions, progress func(string)) error {
	if err := os.MkdirAll(home.bin(".stamps"), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	unlock, err := lockFile(filepath.Join(string(home), "build.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	all := targets()
	if opts.Old {
		all = append(all, old().targets()...)
	}
	if opts.Providers {
		for _, e := range extras() {
			all = append(all, e.target())
		}
	}
	if opts.Peers {
		all = append(all, clusterctl())
	}
	for _, t := range all {
		if err := buildTarget(ctx, home, t, progress); err != nil {
			return err
		}
	}
	input, err := hashSources(filepath.Join(home.source(), "lab"))
	if err != nil {
		return err
	}
	for _, r := range []release{current(), old()} {
		if err := step(home, "manifests"+r.suffix, input+r.version, progress,
			func() error { return writeManifests(ctx, home, r) }); err != nil {
			return err
		}
	}
	crds, err := hashSources(filepath.Join(home.source(), crdModule))
	if err != nil {
		return err
	}
	if err := step(home, "provider-crds", input+crds, progress,
		func() error { return writeProviderCRDs(ctx, home) }); err != nil {
		return err
	}
	if !opts.Providers {
		return nil
	}
	for _, e := range extras() {
		if err := step(home, "manifests-"+e.role, input+e.version, progress,
			func() error { return e.writeManifests(ctx, home) }); err != nil {
			return err
		}
	}
	return nil
}

func buildTarget(ctx context.Context, home Home, t target, progress func(string)) error {
	dir := filepath.Join(home.source(), t.module)
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read module of %s: %w", t.name, err)
		}
		hash.Write(data)
	}
	fmt.Fprintln(hash, runtime.Version(), t.pkg, t.ldflags)
	for _, source := range t.sources {
		input, err := hashSources(filepath.Join(home.source(), source))
		if err != nil {
			return err
		}
		fmt.Fprintln(hash, input)
	}
	if _, err := os.Stat(home.bin(t.name)); err != nil {
		// Without the program its stamp must not count.
		os.Remove(home.bin(".stamps/" + t.name))
	}
	return step(home, t.name, hex.EncodeToString(hash.Sum(nil)), progress, func() error {
		// Build under another name and rename: a running lab may be executing the old program.
		out := home.bin("." + t.name + ".new")
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags",
			strings.TrimSpace("-s -w "+t.ldflags), "-o", out, t.pkg)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off")
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%w\n%s", err, tail(output.String(), 40))
		}
		return os.Rename(out, home.bin(t.name))
	})
}

// step runs make unless the stamp of name says that its input was made already.
func step(home Home, name, input string, progress func(string), build func() error) error {
	stamp := home.bin(".stamps/" + name)
	if old, err := os.ReadFile(stamp); err == nil && string(old) == input {
		progress(fmt.Sprintf("%-28s up to date", name))
		return nil
	}
	begin := time.Now()
	progress(fmt.Sprintf("%-28s building", name))
	if err := build(); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	progress(fmt.Sprintf("%-28s built in %s", name, time.Since(begin).Round(100*time.Millisecond)))
	if err := os.WriteFile(stamp, []byte(input), 0o644); err != nil {
		return fmt.Errorf("write stamp of %s: %w", name, err)
	}
	return nil
}

// sourceFiles are the extensions of what programs and manifests are made of.
var sourceFiles = []string{".go", ".jsonl", ".mod", ".sum", ".yaml"}

// hashSources hashes the Go files below dir and what they embed, tests apart. The hash has their
// paths below dir, so that it is the same in every checkout.
func hashSources(dir string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains(sourceFiles, filepath.Ext(path)) ||
			strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		fmt.Fprintln(hash, filepath.ToSlash(name), len(data))
		hash.Write(data)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hash sources: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// lockFile has a second build of the same folder wait: two at once would need twice the memory and
// write the same files.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
