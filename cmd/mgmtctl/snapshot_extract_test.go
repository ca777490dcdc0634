package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// extractedObject is a piece of the stream.
func extractedObject(o *mgmtv1.ExtractedObject) *mgmtv1.ExtractObjectsResponse {
	return &mgmtv1.ExtractObjectsResponse{Item: &mgmtv1.ExtractObjectsResponse_Object{Object: o}}
}

// testExtract is a Namespace, a Secret without its values, and a Cluster in two pieces.
func testExtract() []*mgmtv1.ExtractObjectsResponse {
	secret := testObject()
	cluster := ref(clusterAPI, "Cluster", "team-a", "web")
	return []*mgmtv1.ExtractObjectsResponse{
		{Item: &mgmtv1.ExtractObjectsResponse_Progress{Progress: &mgmtv1.ExtractProgress{Done: 1000,
			Total: 1003}}},
		extractedObject(&mgmtv1.ExtractedObject{Ref: ref("", "Namespace", "", "team-a"),
			Json: []byte(`{"kind":"Namespace","metadata":{"name":"team-a"}}`)}),
		extractedObject(&mgmtv1.ExtractedObject{Ref: secret.GetRef(), Json: secret.GetJson(),
			ValuesLeftOut: true}),
		extractedObject(&mgmtv1.ExtractedObject{Ref: cluster, Json: []byte(`{"kind":"Cl`),
			Continued: true}),
		extractedObject(&mgmtv1.ExtractedObject{Ref: cluster, Json: []byte(`uster"}`)}),
	}
}

// extractInto runs snapshot extract --out with what a service sends.
func extractInto(t *testing.T, dir, flags string, pieces ...*mgmtv1.ExtractObjectsResponse) result {
	t.Helper()
	f := newFake()
	f.extract = pieces
	return runner{fake: f}.run(t, "snapshot extract latest"+readFlags+" --out "+dir+flags)
}

// filesIn returns the files below a folder, and fails if somebody else may read them.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if e.Type().IsRegular() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSnapshotExtractSendsWhatItIsAskedFor(t *testing.T) {
	for line, want := range map[string]string{
		"":                            "[] [] [] []",
		" Secret":                     "[Secret] [] [] []",
		" secret a/b c":               "[] [] [] [secret a b, secret  c]",
		" Secret/a/b Namespace/c":     "[] [] [] [Secret.core a b, Namespace.core  c]",
		" --kind x --namespace y":     "[x] [y] [] []",
		" Secret --workload a/b":      "[Secret] [] [a/b] []",
		" Secret a/b --kind Cluster":  "[Cluster] [] [] [Secret a b]",
		" Machine.cluster.x-k8s.io/a": "[] [] [] [Machine.cluster.x-k8s.io  a]",
	} {
		f := newFake()
		r := runner{fake: f}.run(t, "snapshot extract 1a2b"+readFlags+line).want(t, 0)
		r.stderrHas(t, "no objects")
		req := requestOf[*mgmtv1.ExtractObjectsRequest](t, f)
		var objects []string
		for _, o := range req.GetFilter().GetObjects() {
			objects = append(objects, o.GetKind()+" "+o.GetNamespace()+" "+o.GetName())
		}
		if got := fmt.Sprintf("%v %v %v [%s]", req.GetFilter().GetKinds(), req.GetFilter().GetNamespaces(),
			req.GetFilter().GetWorkloads(), strings.Join(objects, ", ")); got != want ||
			req.GetWithSecrets() || req.GetForKubectl() || req.GetId() != "1a2b" {
			t.Errorf("%q: %s, want %s; %v", line, got, want, req)
		}
	}
	for _, line := range []string{"", " latest Secret a/b/c", " latest Secret/a/b Secret", " latest -o table",
		" latest --overwrite", " latest a,b"} {
		runner{fake: newFake()}.run(t, "snapshot extract"+readFlags+line).want(t, 2)
	}
}

// TestSnapshotExtractWritesFiles that only their owner may read, and nothing into a folder that is
// in use.
func TestSnapshotExtractWritesFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	extractInto(t, dir, "", testExtract()...).want(t, 0).stderrHas(t, "3 objects written to "+dir,
		"the values of 1 Secret are left out; --with-secrets writes them")
	want := []string{"_cluster/Namespace/team-a.yaml", "team-a/Cluster.cluster.x-k8s.io/web.yaml",
		"team-a/Secret/cloud.yaml"}
	if got := filesIn(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, want[1]))
	if err != nil || string(text) != "kind: Cluster\n" {
		t.Errorf("%q, %v", text, err)
	}

	extractInto(t, dir, "", testExtract()...).want(t, 2).stderrHas(t, "not empty", "--overwrite")
	extractInto(t, filepath.Join(dir, want[0]), "", testExtract()...).want(t, 2)
	empty := t.TempDir()
	extractInto(t, empty, " -o json", testExtract()[1]).want(t, 0)
	if got := filesIn(t, filepath.Join(empty, "_cluster")); !slices.Equal(got,
		[]string{"Namespace/team-a.json"}) {
		t.Errorf("%q", got)
	}
}

// TestSnapshotExtractOverwritesNoLink: a file that is there is replaced with its mode, and what a
// link names keeps its bytes.
func TestSnapshotExtractOverwritesNoLink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	file := filepath.Join(dir, "_cluster", "Namespace", "team-a.yaml")
	for _, make := range []func() error{
		func() error { return os.WriteFile(file, []byte("old"), 0o644) },
		func() error { return os.Symlink(other, file) },
		func() error { return os.Link(other, file) },
	} {
		if err := errorOf(os.RemoveAll(filepath.Dir(file)), os.MkdirAll(filepath.Dir(file), 0o700),
			os.WriteFile(other, []byte("other"), 0o644), make()); err != nil {
			t.Fatal(err)
		}
		extractInto(t, dir, "", testExtract()...).want(t, 2)
		extractInto(t, dir, " --overwrite", testExtract()...).want(t, 0)
		filesIn(t, filepath.Dir(file))
		if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
			t.Errorf("a file outside: %q, %v", text, err)
		}
	}
	if err := errorOf(os.RemoveAll(filepath.Join(dir, "team-a")),
		os.Symlink(filepath.Dir(other), filepath.Join(dir, "team-a"))); err != nil {
		t.Fatal(err)
	}
	extractInto(t, dir, " --overwrite", testExtract()...).want(t, 1)
	if entries, err := os.ReadDir(filepath.Dir(other)); err != nil || len(entries) != 1 {
		t.Errorf("a folder outside: %v, %v", entries, err)
	}
}

// TestSnapshotExtractOverwritesNothingThatAppears in the folder after it was found empty.
func TestSnapshotExtractOverwritesNothingThatAppears(t *testing.T) {
	dir := t.TempDir()
	f, err := newFolder(extractFlags{dir: dir, as: formatYAML})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "_cluster", "Namespace", "team-a.yaml")
	if err := errorOf(os.MkdirAll(filepath.Dir(file), 0o700),
		os.WriteFile(file, []byte("of somebody else"), 0o600)); err != nil {
		t.Fatal(err)
	}
	err = f.put(testExtract()[1].GetObject())
	if text, readErr := os.ReadFile(file); err == nil || readErr != nil ||
		string(text) != "of somebody else" {
		t.Errorf("%v; %q, %v", err, text, readErr)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestSnapshotExtractIsSafeFromHostileNames: whatever a snapshot calls its objects, their files are
// below the folder, are told apart where case does not count, and mean nothing to a shell, a
// terminal or Windows (invariant I8).
func TestSnapshotExtractIsSafeFromHostileNames(t *testing.T) {
	long := strings.Repeat("n", 253)
	refs := []*mgmtv1.Ref{
		ref("", "Secret", "../..", "../../etc/passwd"), ref("", "../..", "..", ".."),
		ref("/etc", "Secret", "/etc", "/etc/passwd"), ref("", "Secret", `..\..`, `..\..\boot.ini`),
		ref("", "Secret", "a", "x"), ref("", "Secret", "a", "X"), ref("", "Secret", "A", "x"),
		ref("", "SECRET", "a", "x"), ref("", "Secret", "a", "%58"), ref("", "Secret", "a", "x.yaml"),
		ref("", "Secret", "a", long), ref("", "Secret", "a", long+"m"), ref(long, "Secret", "a", "x"),
		ref("", "Secret", "a", "-rf"), ref("", "Secret", "a", "$(reboot) *"), ref("", "Secret", "a", "\x1b[2J"),
		ref("", "Secret", "a", "caf\u00e9"), ref("", "Secret", "a", "cafe\u0301"),
		ref("", "Secret", "a", ".hidden"), ref("", "Secret", "con", "nul"), ref("", "Aux", "a", "COM1.x"),
		ref("", "Secret", "", "x"), ref("", "Secret", "_cluster", "x"),
	}
	dir := filepath.Join(t.TempDir(), "outer", "inner", "out")
	var pieces []*mgmtv1.ExtractObjectsResponse
	for _, r := range refs {
		pieces = append(pieces, extractedObject(&mgmtv1.ExtractedObject{Ref: r, Json: []byte(`{}`)}))
	}
	extractInto(t, dir, "", pieces...).want(t, 0).stderrHas(t, fmt.Sprintf("%d objects", len(refs)))
	if outside := filesIn(t, filepath.Dir(dir)); len(outside) != len(refs) {
		t.Errorf("%d files, want %d", len(outside), len(refs))
	}
	folded := map[string]string{}
	for _, name := range filesIn(t, dir) {
		if other, ok := folded[strings.ToLower(name)]; ok {
			t.Errorf("%q and %q are the same where case does not count", other, name)
		}
		folded[strings.ToLower(name)] = name
		for part := range strings.SplitSeq(name, "/") {
			stem, _, _ := strings.Cut(strings.ToLower(part), ".")
			if len(part) > 220 || strings.Trim(part, shownInNames) != "" ||
				strings.ContainsAny(part[:1], ".-~") || slices.Contains([]string{"con", "nul", "aux",
				"com1"}, stem) {
				t.Errorf("the name %q is in use", part)
			}
		}
	}
	if got := folded["a/secret/x.yaml"]; got != "a/Secret/x.yaml" {
		t.Errorf("the first of several has the name %q", got)
	}
	for _, r := range []*mgmtv1.Ref{refs[4], {}, ref("", "Secret", "a", "")} {
		extractInto(t, t.TempDir(), "", pieces[4], extractedObject(&mgmtv1.ExtractedObject{Ref: r,
			Json: []byte(`{}`)})).want(t, 1)
	}
}

// shownInNames are the characters that occur in names of files.
const shownInNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_%~"

// TestSnapshotExtractSaysWhatIsNotWritten: objects that the snapshot left out, and an answer that
// ends too early.
func TestSnapshotExtractSaysWhatIsNotWritten(t *testing.T) {
	omitted := extractedObject(&mgmtv1.ExtractedObject{Ref: ref(clusterAPI, "Machine", "team-a", "many"),
		Omitted: true})
	dir := t.TempDir()
	extractInto(t, dir, "", omitted, testExtract()[1]).want(t, 3).stderrHas(t,
		"Machine.cluster.x-k8s.io/team-a/many is not written: the snapshot left it out")
	if got := filesIn(t, filepath.Join(dir, "_cluster")); len(got) != 1 {
		t.Errorf("%q", got)
	}
	extractInto(t, t.TempDir(), "", testExtract()[:4]...).want(t, 1).stderrHas(t, "ends in the middle")
	missing := filepath.Join(t.TempDir(), "missing")
	extractInto(t, missing, "").want(t, 0).stderrHas(t, "no objects")
	if _, err := os.Stat(missing); err == nil {
		t.Error("a folder for no objects")
	}
	hidden := extractedObject(&mgmtv1.ExtractedObject{Ref: ref("", "Secret", "a", "b"),
		Json: []byte(`hidden`)})
	if r := extractInto(t, t.TempDir(), " -o json", hidden).want(t, 1); strings.Contains(r.stderr, "hidden") {
		t.Errorf("an error quotes the object: %s", r.stderr)
	}
}
