package move

import (
	"crypto/sha256"
	"encoding/hex"
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
	if _, err := store.Keygen(filepath.Join(dir, "keys"), time.Now()); err != nil {
		t.Fatal(err)
	}
	open := func(key string, plain bool) *store.Store {
		keys, err := store.LoadKeys(store.KeyOptions{SigningKeyFile: key})
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), store.Options{Keys: keys, Plain: plain, Create: true,
			Bucket: directory.New(filepath.Join(dir, "store"))})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	text := []byte(`{"variable":"guess"}`)
	bare := sha256.Sum256(text)
	salted := sha256.Sum256(append([]byte("s1"), text...))
	b := &batch{Snapshot: "s1"}
	if err := b.setIDs(open(filepath.Join(dir, "keys", "signing.key"), true)); err != nil {
		t.Fatal(err)
	}
	id := b.contentID(text)
	for _, sum := range [][32]byte{bare, salted} {
		if strings.Contains(id, hex.EncodeToString(sum[:16])) {
			t.Errorf("the id %s is a hash", id)
		}
	}
	other := &batch{Snapshot: "s2"}
	if err := other.setIDs(open(filepath.Join(dir, "keys", "signing.key"), true)); err != nil {
		t.Fatal(err)
	}
	if other.contentID(text) == id {
		t.Error("two batches have the same id of one content")
	}
	unsigned := &batch{Snapshot: "s1"}
	if err := unsigned.setIDs(open("", true)); err != nil {
		t.Fatal(err)
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
