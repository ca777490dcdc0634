package move

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
)

// The catalog has, of each Cluster of a batch, what shows a change of it on the source. A bare hash
// would confirm a guess at a topology variable, which may be a secret: so it is an HMAC whose key
// comes from the signing key, which the catalog does not have (invariant I6). A move without a
// signing key is one with a plain store, where the guess is not needed; its hash is salted with the
// id of the snapshot. Batches of version 0.4 and older have a bare hash.
const (
	contentKeyed  = "hmac:"
	contentSalted = "salted:"
)

// setIDs makes the key. It does not depend on recipients: another host, which has the signing key,
// may have others.
func (b *batch) setIDs(st *store.Store) (err error) {
	if st != nil && st.Signs() { // a rollback compares nothing, and may have no store
		b.ids, err = st.HostIDs([]byte("move " + b.Snapshot))
	}
	return err
}

// contentID returns what is stored of the text of a Cluster.
func (b *batch) contentID(text []byte) string {
	if b.ids != nil {
		id := b.ids.Of("source", text)
		return contentKeyed + hex.EncodeToString(id[:])
	}
	sum := sha256.Sum256(append([]byte(b.Snapshot), text...))
	return contentSalted + hex.EncodeToString(sum[:])
}

// hasContent reports whether a text is the one of which id was stored.
func (b *batch) hasContent(id string, text []byte) bool {
	if strings.Contains(id, ":") {
		return id == b.contentID(text)
	}
	sum := sha256.Sum256(text)
	return id == hex.EncodeToString(sum[:])
}

// withoutPause returns an object without our lock and what publishes its pause, its resourceVersion
// and its managed fields.
func withoutPause(c *snapshot.Contents, ref object.Ref) ([]byte, error) {
	u, err := decode(c, ref)
	if err != nil {
		return nil, err
	}
	capi.Unannotate(u.Object, capi.AnnotationOperation)
	if ref.GroupKind() != capi.Cluster {
		capi.RemovePaused(u.Object)
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", ref, err)
	}
	return text, nil
}
