package ownership

import (
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/store"
)

// EpochMark returns the value of the annotation that carries an epoch on a Cluster. The store is in
// it, because epochs of two stores cannot be compared; those of a store and its copies can, and
// have the id of the origin (store.Store.OriginID). Epoch 0 has no mark.
func EpochMark(storeID string, epoch int64) string {
	if epoch == 0 {
		return ""
	}
	return storeID + "/" + strconv.FormatInt(epoch, 10)
}

// MarkedEpoch returns the epoch that an annotation carries, 0 when it has none that counts: of
// another store, or out of range.
func MarkedEpoch(storeID, mark string) int64 {
	id, text, ok := strings.Cut(mark, "/")
	epoch, err := strconv.ParseInt(text, 10, 64)
	if !ok || id != storeID || err != nil || epoch < 1 || epoch > store.MaxEpoch {
		return 0
	}
	return epoch
}

// MarkedElsewhere returns the store whose epoch an annotation carries, and that epoch; "" when that
// is the store itself, or there is none.
func MarkedElsewhere(storeID, mark string) (other string, epoch int64) {
	id, _, _ := strings.Cut(mark, "/")
	if epoch = MarkedEpoch(id, mark); epoch == 0 || id == storeID {
		return "", 0
	}
	return id, epoch
}

// Raise notes that an epoch of the ownership record of a workload cluster was seen elsewhere, such
// as on its Cluster.
func Raise(owners map[string]Record, workloadID string, seen int64) {
	if r := owners[workloadID]; seen > r.Seen {
		r.Seen = seen
		owners[workloadID] = r
	}
}
