package record

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/envelope"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Owner says which management cluster reconciles a workload cluster. The record with the highest
// epoch decides. A management cluster that is not its owner must leave the workload cluster paused,
// provided that a trusted key signed the record.
type Owner struct {
	// Format and StoreID are set by PutOwner.
	Format  int    `json:"format"`
	StoreID string `json:"storeID"`

	WorkloadID string          `json:"workloadID"`
	Workload   string          `json:"workload"`  // "namespace/name" of its Cluster, for people
	Owner      envelope.Source `json:"owner"`     // UID and name of the management cluster
	Epoch      int64           `json:"epoch"`     // from 1; each hand-over adds
	Operation  string          `json:"operation"` // the move or restore that wrote this
	Time       time.Time       `json:"time"`      // PutOwner cuts it to milliseconds, UTC
}

// MaxEpoch bounds the epochs that count: JSON readers that use floating point read each of them
// exactly, and counting up from any of them does not overflow.
const MaxEpoch = 1<<53 - 1

// The parts of the key of an ownership record.
const (
	OwnerFolder = "owners/"
	OwnerSuffix = ".json"
)

// OwnerKey is the key of the record of a workload cluster.
func OwnerKey(workloadID string) string { return OwnerFolder + workloadID + OwnerSuffix }

// Place returns the store and the key that the record belongs to.
func (o *Owner) Place() (storeID, key string) { return o.StoreID, OwnerKey(o.WorkloadID) }

// Claim returns what the record is for. It is about no certain sources: it does not say which
// management cluster the workload cluster is taken from.
func (o *Owner) Claim() keys.Claim { return keys.Claim{Purpose: keys.ForOwnership} }

// Validate returns what breaks the format.
func (o *Owner) Validate() error {
	if !layout.ValidSource(o.WorkloadID) {
		return fmt.Errorf("workload id %.40q is not a UID", o.WorkloadID)
	}
	if !layout.ValidSource(o.Owner.UID) {
		return fmt.Errorf("owner %.40q is not a UID", o.Owner.UID)
	}
	if o.Epoch < 1 {
		return errors.New("epoch is less than 1")
	}
	if !document.ValidTime(o.Time) {
		return errors.New("time is not in whole milliseconds, or out of range")
	}
	if namespace, name, ok := strings.Cut(o.Workload, "/"); !ok || namespace == "" || name == "" {
		return fmt.Errorf("workload %.80q is not a namespace and a name", o.Workload)
	}
	for _, text := range []string{o.Workload, o.Owner.Name, o.Owner.KubernetesVersion, o.Operation} {
		if !document.Printable(text) {
			return fmt.Errorf("%.80q does not print", text)
		}
	}
	return nil
}
