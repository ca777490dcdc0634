package record

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/store/document"
	"github.com/mgmtd/mgmtd/internal/store/keys"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Copying says which trees a copy run is about to bring to a copy. While it is there, a prune of
// the copy removes nothing that these trees name: a copied key has the name that it has in the
// origin, so that what an interrupted run left has to be used again.
type Copying struct {
	document.Header
	Time  time.Time    `json:"time"`
	Trees []layout.Key `json:"trees"`
}

const (
	// CopyingFolder has the records of copy runs.
	CopyingFolder = layout.CopyingFolder
	// MaxCopying is how many trees a record names at most.
	MaxCopying = 1000
)

// IsCopyingKey reports whether key is that of a record of a copy run.
func IsCopyingKey(key string) bool {
	name, ok := strings.CutPrefix(key, CopyingFolder)
	if !ok {
		return false
	}
	_, err := layout.ParseEnvelopeKey(layout.EnvelopeFolder + "x/" + name) // the same form
	return err == nil
}

// Claim returns what the record is for: it is about the store, not about certain sources.
func (c *Copying) Claim() keys.Claim { return keys.Claim{Purpose: keys.ForStore} }

// Validate returns what breaks the format.
func (c *Copying) Validate() error {
	if len(c.Trees) > MaxCopying {
		return fmt.Errorf("it names more than %d trees", MaxCopying)
	}
	for _, key := range c.Trees {
		if key.Kind() != layout.KindTree {
			return fmt.Errorf("%.120q is not the key of a tree", string(key))
		}
	}
	if !document.ValidTime(c.Time) {
		return errors.New("time is not in whole milliseconds, or out of range")
	}
	return nil
}
