package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// checkKeys checks the keys of a looker, or other ones that a request has.
func (l *looker) checkKeys(req *mgmtv1.CheckKeysRequest) (*mgmtv1.CheckKeysResponse, error) {
	if req.Identity == nil {
		req.Identity = l.identity
	}
	return (&storeService{s: l.service.s}).CheckKeys(l.t.Context(), req)
}

// outcome returns the ids of the snapshots that open, and the codes of the findings, sorted.
func outcome(resp *mgmtv1.CheckKeysResponse) (opens, codes string) {
	var ids, words []string
	for _, c := range resp.GetSnapshots() {
		if c.GetOpens() {
			ids = append(ids, c.GetSnapshot().GetId())
		}
	}
	for _, f := range resp.GetFindings() {
		words = append(words, f.GetCode()+" "+strings.ToLower(strings.TrimPrefix(
			f.GetSeverity().String(), "SEVERITY_")))
	}
	slices.Sort(ids)
	slices.Sort(words)
	return strings.Join(ids, " "), strings.Join(words, ", ")
}

// TestKeyCheckTriesTheNewestSnapshotOfEachScope and no other: a recipient that was changed since
// makes an older one of no account.
func TestKeyCheckTriesTheNewestSnapshotOfEachScope(t *testing.T) {
	l := newLooker(t)
	old := l.take(nil)
	whole := l.take(nil)
	team := l.take(func(o *snapshot.Options) { o.Scope.Namespaces = []string{"team-1"} })
	if len(whole.Recipients) != 1 || !slices.Equal(whole.Recipients, l.st.Identities()) {
		t.Errorf("recipients %v, want those of %v", whole.Recipients, l.st.Identities())
	}
	resp, err := l.checkKeys(&mgmtv1.CheckKeysRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{string(whole.ID), string(team.ID)}
	slices.Sort(want)
	if opens, codes := outcome(resp); opens != strings.Join(want, " ") || codes != "" {
		t.Errorf("opens %s, findings %s; want %v and none", opens, codes, want)
	}
	if !resp.GetEncrypted() || !slices.Equal(resp.GetIdentities(), whole.Recipients) ||
		!slices.Equal(resp.GetRecipients(), whole.Recipients) ||
		!slices.Equal(resp.GetSnapshots()[0].GetSnapshot().GetRecipients(), whole.Recipients) {
		t.Errorf("response %v", resp)
	}
	resp, err = l.checkKeys(&mgmtv1.CheckKeysRequest{Id: string(old.ID)})
	if opens, codes := outcome(resp); err != nil || opens != string(old.ID) || codes != "" {
		t.Errorf("by id: opens %s, findings %s, %v", opens, codes, err)
	}
	resp, err = l.checkKeys(&mgmtv1.CheckKeysRequest{Id: latest})
	if opens, codes := outcome(resp); err != nil || opens != string(whole.ID) || codes != "" {
		t.Errorf("latest: opens %s, findings %s, %v", opens, codes, err)
	}
}

// TestKeyCheckDecryptsAndDoesNotBelieveTheList: a snapshot that lists a recipient proves nothing.
func TestKeyCheckDecryptsAndDoesNotBelieveTheList(t *testing.T) {
	l := newLooker(t)
	e := l.take(nil)
	other, err := os.ReadFile(keygenInto(t))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := l.checkKeys(&mgmtv1.CheckKeysRequest{Identity: other})
	if err != nil {
		t.Fatal(err)
	}
	if opens, codes := outcome(resp); opens != "" ||
		codes != "identity-wrong error, recipient-missing error" {
		t.Errorf("opens %q, findings %s", opens, codes)
	}
	if text := resp.GetFindings()[1].GetMessage(); !strings.Contains(text, e.Recipients[0]) {
		t.Errorf("the finding does not name the recipients %v: %s", e.Recipients, text)
	}
	both := append(slices.Clone(l.identity), other...)
	resp, err = l.checkKeys(&mgmtv1.CheckKeysRequest{Identity: both})
	if opens, codes := outcome(resp); err != nil || opens != string(e.ID) || codes != "" {
		t.Errorf("with both: opens %q, findings %s, %v", opens, codes, err)
	}

	// the shard that is tried holds something else now
	tree, err := l.st.GetTree(t.Context(), e.Tree)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.st.String(), string(tree.Shards[0]))
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	resp, err = l.checkKeys(&mgmtv1.CheckKeysRequest{})
	if opens, codes := outcome(resp); err != nil || opens != "" || codes != "damaged error" {
		t.Errorf("damaged: opens %q, findings %s, %v", opens, codes, err)
	}
}

// TestKeyCheckOpensNothingThatNoTrustedKeySigned (I8: signature first).
func TestKeyCheckOpensNothingThatNoTrustedKeySigned(t *testing.T) {
	l := newLooker(t)
	e := l.take(nil)
	location := &l.service.s.cfg.Locations[0].Store
	ours := location.TrustedKeyFiles
	location.SigningKeyFile = ""
	location.TrustedKeyFiles = []string{filepath.Join(filepath.Dir(keygenInto(t)),
		store.SigningPubFile)}
	reads := &shardReads{Bucket: l.service.s.buckets[""]}
	l.service.s.buckets[""] = reads
	for _, id := range []string{"", string(e.ID)} {
		resp, err := l.checkKeys(&mgmtv1.CheckKeysRequest{Id: id})
		if opens, codes := outcome(resp); err != nil || opens != "" || codes != "signature error" {
			t.Errorf("%q: opens %q, findings %s, %v", id, opens, codes, err)
		}
	}
	if len(reads.keys) > 0 {
		t.Errorf("content was read: %v", reads.keys)
	}
	location.TrustedKeyFiles = nil
	resp, err := l.checkKeys(&mgmtv1.CheckKeysRequest{})
	if opens, codes := outcome(resp); err != nil || opens != string(e.ID) ||
		codes != "signature warning" {
		t.Errorf("unchecked: opens %q, findings %s, %v", opens, codes, err)
	}
	location.TrustedKeyFiles = ours
	if _, err := l.checkKeys(&mgmtv1.CheckKeysRequest{Identity: []byte{}}); FromStatus(
		err).Reason != ReasonIdentity {
		t.Errorf("without an identity: %v", err)
	}
	if len(reads.keys) != 1 {
		t.Errorf("keys %v were read, want one shard", reads.keys)
	}
}

// TestKeyCheckAsksForASnapshot: keys that were tried on nothing prove nothing.
func TestKeyCheckAsksForASnapshot(t *testing.T) {
	l := newLooker(t)
	_, err := l.checkKeys(&mgmtv1.CheckKeysRequest{})
	if e := FromStatus(err); e == nil || e.Reason != ReasonNotFound ||
		e.HintKey != object.HintFirstSnapshot {
		t.Errorf("empty store: %v", err)
	}
	l.take(func(o *snapshot.Options) { o.TTL = time.Hour })
	if _, err := l.checkKeys(&mgmtv1.CheckKeysRequest{Source: "none"}); FromStatus(
		err).Reason != ReasonNotFound {
		t.Errorf("another source: %v", err)
	}
}
