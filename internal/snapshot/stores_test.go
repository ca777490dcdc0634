package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// storeExpect is what a store of testdata/stores holds, as its writer knew it before it wrote.
type storeExpect struct {
	StoreID   string            `json:"storeID"`
	Encrypted bool              `json:"encrypted"`
	Snapshots []snapshotExpect  `json:"snapshots"` // oldest first
	Owner     store.Owner       `json:"owner"`
	Records   map[string]string `json:"records"` // texts of the one operation's records, by state
	// What the first writer did not know.
	Pins map[string]string `json:"pins,omitempty"` // reasons, by snapshot
	// the one of each snapshot that was verified
	Checks  map[string]store.Verification `json:"checks,omitempty"`
	Removed map[string][]store.Range      `json:"removed,omitempty"` // by source
}

type snapshotExpect struct {
	ID              string      `json:"id"`
	Trust           store.Trust `json:"trust"`
	ResourceVersion string      `json:"resourceVersion"`
	// SHA-256 of the bytes of each object, by ref
	Objects map[string]string `json:"objects"`
	Missing []string          `json:"missing"`
	Expires time.Time         `json:"expires,omitzero"`
	// Partial ones of writers before there were scopes have none.
	Partial bool   `json:"partial,omitempty"`
	Scope   string `json:"scope,omitempty"`
	// fingerprints of those to whom it is encrypted
	Recipients []string `json:"recipients,omitempty"`
}

// testKey returns a copy of a key file that is published with the tests. A checkout has files that
// everybody may read, which is refused for private keys.
func testKey(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "stores", "keys-of-tests-only", name))
	file := filepath.Join(t.TempDir(), name)
	if err = errors.Join(err, os.WriteFile(file, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestEveryEarlierStoreIsReadable asserts the promise of docs/format.md: every later version reads
// what an earlier one wrote. TestMakeStores wrote each store with the code of its time.
func TestEveryEarlierStoreIsReadable(t *testing.T) {
	files, err := filepath.Glob("testdata/stores/*.json")
	if err != nil || len(files) < 6 {
		t.Fatalf("stores %q, %v", files, err)
	}
	for _, file := range files {
		root := strings.TrimSuffix(file, ".json")
		t.Run(filepath.Base(root), func(t *testing.T) { checkStore(t, root) })
	}
}

// checkStore reads all that is in a store and compares it with the JSON file next to it.
func checkStore(t *testing.T, root string) {
	t.Helper()
	ctx := t.Context()
	var want storeExpect
	if data, err := os.ReadFile(root + ".json"); err != nil {
		t.Fatal(err)
	} else if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	st := openToRead(t, root, !want.Encrypted)
	if st.ID() != want.StoreID || st.Encrypted() != want.Encrypted {
		t.Errorf("store %s, encrypted %v; want %s, %v", st.ID(), st.Encrypted(), want.StoreID,
			want.Encrypted)
	}
	keys, err := st.Snapshots(ctx, "")
	if err != nil || len(keys) != len(want.Snapshots) {
		t.Fatalf("%d snapshots, %v; want %d", len(keys), err, len(want.Snapshots))
	}
	packs := map[store.Key]int{}
	var chain []store.Signed
	for i, key := range keys {
		e, err := st.GetEnvelope(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, e)
		tree := checkSnapshot(t, st, e, want.Snapshots[i])
		if len(tree.Shards) < 4 && !e.Partial {
			t.Errorf("snapshot %s has %d shards, which is too few to show anything", e.ID, len(tree.Shards))
		}
		for _, p := range tree.Packs {
			packs[p]++
		}
	}
	if findings := store.CheckChain(chain, want.Removed[chain[0].Source.UID]); len(findings) > 0 {
		t.Errorf("chain: %v", findings)
	}
	if slices.Max(slices.Collect(maps.Values(packs))) < 2 {
		t.Error("no pack is of two snapshots")
	}
	checkRecords(t, st, root, want)
	checkRetention(t, st, chain, want)
}

// checkRetention reads pins, results of verifies and records of prunes. A store that was written
// before there were any has none.
func checkRetention(t *testing.T, st *store.Store, chain []store.Signed, want storeExpect) {
	t.Helper()
	ctx := t.Context()
	pins, err := st.Pins(ctx, "")
	if err != nil || len(pins) != len(want.Pins) {
		t.Errorf("pins %v, %v; want %v", pins, err, want.Pins)
	}
	for _, e := range chain {
		if reason, pinned := want.Pins[string(e.ID)]; pinned {
			if pin, err := st.GetPin(ctx, e.Key()); err != nil || pin.Reason != reason {
				t.Errorf("pin of %s: %+v, %v; want %q", e.ID, pin, err, reason)
			}
		}
		var wantChecks, got []string
		if c, checked := want.Checks[string(e.ID)]; checked {
			wantChecks = append(wantChecks, asText(t, c))
		}
		list, damaged, err := st.Verifications(ctx, e.Key())
		if err != nil || len(damaged) > 0 {
			t.Errorf("checks of %s: %v, %v", e.ID, damaged, err)
		}
		for _, c := range list {
			got = append(got, asText(t, c.Verification))
		}
		if diff := cmp.Diff(wantChecks, got); diff != "" {
			t.Errorf("checks of %s (-want +got):\n%s", e.ID, diff)
		}
		if v, ok := st.DecidingVerification(e, list); ok != (len(wantChecks) > 0) || ok &&
			v.Trust != store.Trusted {
			t.Errorf("verdict of %s: %v, %+v", e.ID, ok, v)
		}
	}
	pruned, err := st.Pruned(ctx)
	if err != nil || len(pruned.Unusable) > 0 {
		t.Errorf("records of prunes: %v, %v", pruned.Unusable, err)
	}
	if len(want.Removed) > 0 || len(pruned.Removed) > 0 {
		if diff := cmp.Diff(want.Removed, pruned.Removed); diff != "" {
			t.Errorf("removed (-want +got):\n%s", diff)
		}
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// openToRead opens a store with what a reader has: an identity and a trusted key, or for a plain
// store none of both.
func openToRead(t *testing.T, root string, plain bool) *store.Store {
	t.Helper()
	o := store.KeyOptions{TrustedKeyFiles: []string{testKey(t, "signing.pub")}}
	if !plain {
		o.IdentityFiles = []string{testKey(t, "identity.txt")}
	}
	keys, err := store.LoadKeys(o)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root), Keys: keys,
		Plain: plain})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func checkSnapshot(t *testing.T, st *store.Store, e store.Signed, want snapshotExpect) store.Tree {
	t.Helper()
	ctx := t.Context()
	if string(e.ID) != want.ID || e.Trust != want.Trust || e.ResourceVersion != want.ResourceVersion {
		t.Errorf("snapshot %s, %s, resourceVersion %s; want %s, %s, %s", e.ID, e.Trust, e.ResourceVersion,
			want.ID, want.Trust, want.ResourceVersion)
	}
	if !e.Expires.Equal(want.Expires) {
		t.Errorf("snapshot %s expires %s, want %s", e.ID, e.Expires, want.Expires)
	}
	if wantScope := want.Scope; e.Partial != want.Partial || e.Scope != nil != (wantScope != "") ||
		e.Scope != nil && e.ScopeID() != wantScope || !slices.Equal(e.Recipients, want.Recipients) {
		t.Errorf("snapshot %s: partial %v, scope %+v, recipients %v; want %v, %q, %v", e.ID, e.Partial,
			e.Scope, e.Recipients, want.Partial, wantScope, want.Recipients)
	}
	tree, err := st.GetTree(ctx, e.Tree)
	if err != nil {
		t.Fatal(err)
	}
	report, err := st.VerifyStructure(ctx, e.Envelope, nil)
	if err != nil || len(report.Findings) > 0 || report.Bytes != e.Bytes {
		t.Errorf("verify structure: %d of %d bytes, %v, %v", report.Bytes, e.Bytes, report.Findings, err)
	}
	s, err := snapshot.Open(ctx, st, e.Envelope, nil)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := s.Verify(ctx, 100, nil)
	checked.Findings = slices.DeleteFunc(checked.Findings, func(f store.Finding) bool {
		return f.Code == object.CodeEdges // newer rules may read more edges than were known
	})
	if err != nil || len(checked.Findings) > 0 || checked.Objects != len(want.Objects) {
		t.Errorf("verify in full: %d of %d objects, %v, %v", checked.Objects, len(want.Objects),
			checked.Findings, err)
	}
	contents, err := s.Load(ctx, s.Graph.Nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range s.Graph.Nodes {
		body, err := contents.Bytes(n.Ref)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(body)
		got[n.Ref.String()] = hex.EncodeToString(sum[:])
	}
	if diff := cmp.Diff(want.Objects, got); diff != "" {
		t.Errorf("objects of %s (-want +got):\n%s", e.ID, diff)
	}
	var missing []string
	for _, m := range s.Graph.Missing {
		missing = append(missing, m.Ref.String())
	}
	if diff := cmp.Diff(want.Missing, missing); diff != "" {
		t.Errorf("missing in %s (-want +got):\n%s", e.ID, diff)
	}
	if len(s.About.Providers) == 0 || len(s.About.Kinds) == 0 || s.About.KubernetesVersion == "" {
		t.Errorf("about the source of %s: %+v", e.ID, s.About)
	}
	return tree
}

// checkRecords reads the ownership record and the records of the operation. In a plain store these
// are not signed, and its operator vouches for them by giving no key.
func checkRecords(t *testing.T, st *store.Store, root string, want storeExpect) {
	t.Helper()
	ctx := t.Context()
	if !want.Encrypted {
		var err error
		if st, err = store.Open(ctx, store.Options{Bucket: directory.New(root),
			Plain: true}); err != nil {
			t.Fatal(err)
		}
	}
	o, err := st.GetOwner(ctx, want.Owner.WorkloadID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Owner, o.Owner); diff != "" || !st.Vouches(o) {
		t.Errorf("owner, vouched for: %v (-want +got):\n%s", st.Vouches(o), diff)
	}
	if _, draft := want.Records["planned"]; draft {
		return // of a form that no released version wrote, which is passed over
	}
	operations, err := st.Operations(ctx)
	if err != nil || !slices.Equal(operations, []string{want.Owner.Operation}) {
		t.Fatalf("operations %v, %v", operations, err)
	}
	records, err := st.OperationRecords(ctx, operations[0])
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, key := range records {
		_, text, _, err := st.GetOperationRecord(ctx, key)
		if err != nil {
			t.Errorf("record %s: %v", key, err)
		}
		got[fmt.Sprint(key.Seq)] = string(text)
	}
	if diff := cmp.Diff(want.Records, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

// TestStoreOfALaterFormatIsRefused: a store that says it is of another format is refused, whatever
// else is in it.
func TestStoreOfALaterFormatIsRefused(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	if err := os.CopyFS(root, os.DirFS("testdata/stores/1-first-plain")); err != nil {
		t.Fatal(err)
	}
	marker := filepath.Join(root, "mgmtd.json")
	data, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(data), `"format":1`, `"format":3`, 1)
	if later == string(data) {
		t.Fatalf("no format 1 in %s", data)
	}
	if err := os.WriteFile(marker, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(t.Context(), store.Options{Bucket: directory.New(root), Plain: true})
	f, ok := errors.AsType[*store.FormatError](err)
	if !ok || f.Format != 3 || f.Key != "mgmtd.json" {
		t.Fatalf("error %v", err)
	}
	const want = "read mgmtd.json: format 3 is not known, this version reads format 1"
	if err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if want := "use a newer version: this store was written by one"; f.Hint() != want {
		t.Errorf("hint %q, want %q", f.Hint(), want)
	}
}
