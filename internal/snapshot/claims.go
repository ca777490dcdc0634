package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/kube"
)

// claims compares objects with their nodes, which come from shards.
type claims struct {
	nodes *capture.NodeReader
	kinds []kube.Kind
}

func newClaims(kinds []kube.Kind) claims {
	return claims{nodes: capture.NewNodeReader(kinds, nil).WithoutRefs(), kinds: kinds}
}

// broken returns in what an object differs from its node, or "". Checks read nodes and writes use
// the bytes, so the two must not differ in anything that a check depends on (invariant I8). A name
// that occurs twice is refused: decoders differ in which value they use.
func (c claims) broken(n *graph.Node, body []byte) string {
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != n.Content {
		return "its bytes do not fit the hash"
	}
	if !jsontext.Value(body).IsValid() {
		return "not JSON, or a name occurs twice"
	}
	k, ok := kube.FindKind(c.kinds, n.GroupKind())
	if !ok {
		return "its kind is not among those captured"
	}
	k.Version = n.Version
	if gjson.GetBytes(body, "kind").String() != n.Kind ||
		gjson.GetBytes(body, "apiVersion").String() != k.APIVersion() {
		return "another kind or version"
	}
	is := c.nodes.Node(k, body)
	switch {
	case is.Ref != n.Ref:
		return "another name or namespace"
	case is.UID != n.UID, !slices.EqualFunc(is.Owners, n.Owners, sameOwner):
		return "another UID, or other owners"
	case is.Paused != n.Paused, is.Deleting != n.Deleting, is.WorkloadID != n.WorkloadID:
		return "another state"
	}
	return ""
}

// sameOwner compares two owner references. Their namespaces are not compared: they follow from
// whether the kind of the owner is namespaced, and not all kinds of the source are known here.
func sameOwner(a, b graph.Owner) bool {
	return a.UID == b.UID && a.Name == b.Name && a.GroupKind() == b.GroupKind()
}
