//go:build api

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// copyObject copies an object of the source to the target, without its owners.
func (l *lab) copyObject(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: copy REF")
	}
	ref, err := object.ParseRef(args[0])
	ts.Check(err)
	k, ok := kube.FindKind(l.kinds, ref.GroupKind())
	if !ok {
		ts.Fatalf("copy: no kind %s", ref.GroupKind())
	}
	obj, err := l.source.Reader().Get(context.Background(), k, ref.Namespace, ref.Name)
	ts.Check(err)
	obj.SetResourceVersion("")
	obj.SetUID("")
	obj.SetManagedFields(nil)
	obj.SetOwnerReferences(nil)
	_, err = l.target.Writer().Create(context.Background(), k, obj)
	ts.Check(err)
}

// newestEnvelope is the file of the newest snapshot in the store.
func newestEnvelope(ts *testscript.TestScript) string {
	files, err := filepath.Glob(ts.MkAbs("store/snapshots/*/*.json"))
	ts.Check(err)
	if len(files) == 0 {
		ts.Fatalf("the store has no snapshot")
	}
	return slices.MaxFunc(files, func(a, b string) int {
		return cmp.Compare(filepath.Base(a),
			filepath.Base(b))
	})
}

// rewriteEnvelope changes the newest envelope as somebody would who can write to the store.
func rewriteEnvelope(ts *testscript.TestScript, change func(envelope map[string]string)) {
	file := newestEnvelope(ts)
	data, err := os.ReadFile(file)
	ts.Check(err)
	envelope := map[string]string{}
	ts.Check(json.Unmarshal(data, &envelope))
	if envelope["payload"] == "" || envelope["signature"] == "" {
		ts.Fatalf("%s has no payload or no signature", file)
	}
	change(envelope)
	data, err = json.Marshal(envelope)
	ts.Check(err)
	ts.Check(os.WriteFile(file, data, 0o600))
}

func unsign(ts *testscript.TestScript, _ bool, _ []string) {
	rewriteEnvelope(ts, func(e map[string]string) { e["signature"] = "" })
}

func tamper(ts *testscript.TestScript, _ bool, _ []string) {
	rewriteEnvelope(ts, func(e map[string]string) {
		changed := strings.Replace(e["payload"], `"sequence":1`, `"sequence":7`, 1)
		if changed == e["payload"] {
			ts.Fatalf("the payload has no sequence to change")
		}
		e["payload"] = changed
	})
}

func truncate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: truncate PATTERN")
	}
	files, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(files) != 1 {
		ts.Fatalf("truncate: %d files fit %s, want 1", len(files), args[0])
	}
	info, err := os.Stat(files[0])
	ts.Check(err)
	ts.Check(os.Truncate(files[0], info.Size()/2))
}

// unlock ends the retention of an envelope in the script's bucket, and waits for the end: versitygw
// takes none that is past.
func (l *lab) unlock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: unlock ID")
	}
	client, bucket := l.s3.Client(l.t), filepath.Base(ts.Getenv("BUCKET"))
	n, governance, until := 0, minio.Governance, time.Now().Add(2*time.Second)
	for o := range client.ListObjectsIter(context.Background(), bucket,
		minio.ListObjectsOptions{Prefix: "snapshots/", Recursive: true}) {
		ts.Check(o.Err)
		if strings.Contains(o.Key, args[0]) {
			n++
			ts.Check(client.PutObjectRetention(context.Background(), bucket, o.Key,
				minio.PutObjectRetentionOptions{GovernanceBypass: true, Mode: &governance,
					RetainUntilDate: &until}))
		}
	}
	if n != 1 {
		ts.Fatalf("unlock: %d envelopes fit %s, want 1", n, args[0])
	}
	time.Sleep(time.Until(until))
}

// disk mounts a tmpfs, which is full as a real disk is full. It does not skip where that is
// refused: a full disk is what happens in an outage.
func disk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: disk DIR SIZE")
	}
	dir, size := ts.MkAbs(args[0]), "size="+args[1]
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, size); err == nil {
		return
	}
	ts.Check(os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, size+",mode=0700"); err != nil {
		ts.Fatalf("mount a small file system: %v: this test needs the right to mount (run it as root, "+
			"or in a container with CAP_SYS_ADMIN)", err)
	}
	ts.Defer(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	file := ts.MkAbs(args[0])
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if data, err := os.ReadFile(file); err == nil && re.Match(data) {
			return
		}
	}
	data, _ := os.ReadFile(file)
	ts.Fatalf("await: %s does not match %s:\n%s", args[0], args[1], data)
}

func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setenv NAME REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) != 2 {
		ts.Fatalf("setenv: stdout does not match %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}
