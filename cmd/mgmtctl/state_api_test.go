//go:build api

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/task"
)

// state is what must not change: objects with their UIDs and versions, files with their hashes.
type state map[string]string

// captureState reads the state of the script's namespace on both servers, and of its store.
func (l *lab) captureState(ts *testscript.TestScript) state {
	all := state{}
	var mu sync.Mutex
	set := func(key, value string) {
		mu.Lock()
		defer mu.Unlock()
		all[key] = value
	}
	ns := ts.Getenv("NS")
	var g task.Group
	g.SetLimit(8)
	for side, m := range map[string]*kube.Mgmt{"source": l.source, "target": l.target} {
		for _, k := range l.kinds {
			o := kube.ListOptions{Namespace: ns, Metadata: true}
			if !k.Namespaced {
				o.Name = ns
			}
			g.Go(func() error {
				_, err := m.Reader().List(context.Background(), k, o, func(raw []byte) error {
					meta := gjson.GetBytes(raw, "metadata")
					set(fmt.Sprintf("%s: %s/%s", side, k.GroupKind, meta.Get("name")), meta.Get("uid").String()+
						" version "+meta.Get("resourceVersion").String())
					return nil
				})
				if apierrors.IsNotFound(err) {
					return nil // a script has taken the kind away
				}
				return err
			})
		}
	}
	ts.Check(g.Wait())
	root := ts.MkAbs("store")
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String() + " " + info.ModTime().String()
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		all[path] = text
		return nil
	}))
	return all
}

// differences gives a line for each key that is not alike.
func (s state) differences(now state) []string {
	var lines []string
	keys := maps.Clone(s)
	maps.Copy(keys, now)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if s[key] != now[key] {
			lines = append(lines, fmt.Sprintf("%s: was %q, is %q", key, s[key], now[key]))
		}
	}
	return lines
}

// refuses runs mgmtctl, wants this exit code and that nothing has changed.
func (l *lab) refuses(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refuses CODE ARG...")
	}
	before := l.captureState(ts)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(before)),
		func(key string) bool { return strings.HasPrefix(key, "source: Cluster.") }) {
		ts.Fatalf("the source holds no Clusters in %s: this proves nothing", ts.Getenv("NS"))
	}
	exits(ts, neg, split(args))
	if d := before.differences(l.captureState(ts)); len(d) > 0 {
		ts.Fatalf("something changed:\n%s", strings.Join(d, "\n"))
	}
	if args[0] == "11" {
		return // another process holds the catalog: no operation could have been written to it
	}
	if left := atWorkIn(ts); len(left) > 0 {
		ts.Fatalf("operations were left running: %v", left)
	}
}

// atWorkIn gives the operations of the script's catalog that have not ended.
func atWorkIn(ts *testscript.TestScript) []string {
	var out, said bytes.Buffer
	p := &program{stdin: strings.NewReader(""), stdout: &out, stderr: &console{w: &said},
		getenv: ts.Getenv, now: time.Now, serve: serveStandalone}
	if code := p.run(context.Background(), append([]string{"operation", "list", "-o", "json"},
		strings.Fields(ts.Getenv("CATALOG"))...)); code != 0 {
		ts.Fatalf("list operations: exit code %d: %s", code, &said)
	}
	var ids []string
	for _, op := range gjson.Get(out.String(), "operations").Array() {
		if state := op.Get("state").String(); state == "OPERATION_STATE_RUNNING" ||
			state == "OPERATION_STATE_PLANNED" {
			ids = append(ids, op.Get("id").String())
		}
	}
	return ids
}
