package move

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// TestI6TheCatalogConfirmsNoGuessAtACluster: what it has of a Cluster cannot be made from a guess
// and the catalog alone. A host with the signing key and other recipients makes the same.
func TestI6TheCatalogConfirmsNoGuessAtACluster(t *testing.T) {
	dir := t.TempDir()
	keygen := func(name string) store.Generated {
		made, err := store.Keygen(filepath.Join(dir, name), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	own, others := keygen("keys"), keygen("others")
	signingKey := filepath.Join(dir, "keys", "signing.key")
	// open opens one of two stores: one without recipients is plain.
	open := func(key string, recipients ...string) *store.Store {
		keys, err := store.LoadKeys(store.KeyOptions{SigningKeyFile: key, Recipients: recipients})
		if err != nil {
			t.Fatal(err)
		}
		plain := len(recipients) == 0
		s, err := store.Open(t.Context(), store.Options{Keys: keys, Plain: plain, Create: true,
			Bucket: directory.New(filepath.Join(dir, fmt.Sprint("store plain ", plain)))})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	idsOf := func(snapshot string, st *store.Store) *batch {
		b := &batch{Snapshot: snapshot}
		if err := b.setIDs(st); err != nil {
			t.Fatal(err)
		}
		return b
	}
	text := []byte(`{"variable":"guess"}`)
	bare := sha256.Sum256(text)
	salted := sha256.Sum256(append([]byte("s1"), text...))
	b, unsigned := idsOf("s1", open(signingKey)), idsOf("s1", open(""))
	id := b.contentID(text)
	for _, sum := range [][32]byte{bare, salted} {
		if strings.Contains(id, hex.EncodeToString(sum[:16])) {
			t.Errorf("the id %s is a hash", id)
		}
	}
	if strings.Contains(unsigned.contentID(text), hex.EncodeToString(bare[:16])) {
		t.Error("the id of a move without a key is a bare hash")
	}
	if idsOf("s2", open(signingKey)).contentID(text) == id {
		t.Error("two batches have the same id of one content")
	}
	here := idsOf("s1", open(signingKey, own.Recipient))
	if there := idsOf("s1", open(signingKey, own.Recipient, others.Recipient)); here.contentID(text) !=
		there.contentID(text) {
		t.Error("a host with other recipients makes another id")
	}
	for name, tt := range map[string]struct {
		b    *batch
		id   string
		text string
		want bool
	}{
		"the same":                     {b, id, string(text), true},
		"another content":              {b, id, "other", false},
		"without the key":              {unsigned, id, string(text), false},
		"a move without a key":         {unsigned, unsigned.contentID(text), string(text), true},
		"its Cluster was changed":      {unsigned, unsigned.contentID(text), "other", false},
		"a batch of version 0.4":       {b, hex.EncodeToString(bare[:]), string(text), true},
		"its Cluster was changed, too": {b, hex.EncodeToString(bare[:]), "other", false},
	} {
		if got := tt.b.hasContent(tt.id, []byte(tt.text)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
