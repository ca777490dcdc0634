package store

import (
	"slices"
	"testing"

	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// TestContentIDsDifferForEverythingThatDiffers: the same for the same content of the same writer,
// another one for whatever else is another.
func TestContentIDsDifferForEverythingThatDiffers(t *testing.T) {
	t.Parallel()
	keys, others := testKeys(t), testKeys(t)
	root := t.TempDir()
	open := func(root string, change func(*KeyOptions)) *Store {
		t.Helper()
		o := keys
		o.Recipients = slices.Clone(o.Recipients)
		change(&o)
		return mustOpen(t, Options{Bucket: directory.New(root), Keys: mustLoad(t, o), Create: true})
	}
	id := func(s *Store, secret, name, content string) ContentID {
		t.Helper()
		ids, err := s.ContentIDs([]byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return ids.Of(name, []byte(content))
	}
	nothing := func(*KeyOptions) {}
	first := id(open(root, nothing), "secret", "name", "content")
	both := func(o *KeyOptions) { o.Recipients = append(o.Recipients, others.Recipients...) }
	back := func(o *KeyOptions) { both(o); slices.Reverse(o.Recipients) }
	if again := id(open(root, nothing), "secret", "name", "content"); again != first {
		t.Error("another id for the same")
	}
	if id(open(root, both), "secret", "name", "content") != id(open(root, back), "secret", "name",
		"content") {
		t.Error("the order of recipients counts")
	}
	if _, err := open(root, func(o *KeyOptions) { o.SigningKeyFile = "" }).ContentIDs(
		[]byte("secret")); err == nil {
		t.Error("ids without a signing key")
	}
	for what, other := range map[string]ContentID{
		"secret":     id(open(root, nothing), "other", "name", "content"),
		"name":       id(open(root, nothing), "secret", "nam", "econtent"),
		"content":    id(open(root, nothing), "secret", "name", "contents"),
		"store":      id(open(t.TempDir(), nothing), "secret", "name", "content"),
		"recipients": id(open(root, both), "secret", "name", "content"),
		"signing key": id(open(root, func(o *KeyOptions) { o.SigningKeyFile = others.SigningKeyFile }),
			"secret", "name", "content"),
	} {
		if other == first {
			t.Errorf("the same id with another %s", what)
		}
	}
}
