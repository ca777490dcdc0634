package config

import (
	"fmt"
	"time"

	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
)

type verifyEntry struct {
	Every     string `json:"every"`
	Level     string `json:"level"`
	FullEvery string `json:"fullEvery"`
}

// The defaults of spec.verify. To read all keys of a snapshot once a day finds what a disk or a
// server lost while older snapshots are still there.
const (
	defaultVerifyEvery = 24 * time.Hour
	defaultFullEvery   = 7 * 24 * time.Hour
	// shortestVerify is the shortest interval. A shorter one would have a daemon do nothing else, and
	// fill a store with results.
	shortestVerify = time.Minute
	levelNone      = "none"
)

// readVerify reads how snapshots are verified. readable says that their contents can be read: there
// is an identity, or nothing is encrypted.
func (d *document) readVerify(e verifyEntry, readable bool) schedule.VerifyOptions {
	const noIdentity = "give spec.identityFile, or verify the structure, which needs none"
	o := schedule.VerifyOptions{Level: store.VerifyLevel(e.Level),
		Every: d.readInterval("spec.verify.every", e.Every, defaultVerifyEvery)}
	switch o.Level {
	case "":
		o.Level = store.LevelStructure
	case store.LevelStructure:
	case store.LevelSample, store.LevelFull:
		if !readable {
			d.problem("spec.verify.level", fmt.Sprintf("%s reads what is encrypted, and there is no "+
				"spec.identityFile", o.Level), noIdentity)
		}
	case levelNone:
		if e.Every != "" || e.FullEvery != "" {
			d.problem("spec.verify.level", "none verifies nothing, so every and fullEvery have no meaning",
				"remove them, or the level")
		}
		return schedule.VerifyOptions{}
	default:
		d.problem("spec.verify.level", fmt.Sprintf("%q is not a level", e.Level),
			"write structure, sample or full; none verifies nothing by itself")
	}
	switch {
	case o.Level == store.LevelFull && e.FullEvery != "":
		d.problem("spec.verify.fullEvery", "set besides level full", "remove it: every is how often")
	case o.Level == store.LevelFull:
	case readable:
		o.FullEvery = d.readInterval("spec.verify.fullEvery", e.FullEvery, defaultFullEvery)
	case e.FullEvery != "":
		d.problem("spec.verify.fullEvery",
			"it reads what is encrypted, and there is no spec.identityFile", noIdentity)
	}
	return o
}

// readInterval reads a duration as Go and Velero write it.
func (d *document) readInterval(field, text string, otherwise time.Duration) time.Duration {
	if text == "" || text == "0s" { // which counts as not set everywhere in the file
		return otherwise
	}
	interval, err := time.ParseDuration(text)
	if err != nil || interval < shortestVerify {
		d.problem(field, fmt.Sprintf("%q is not a duration of a minute or more", text),
			"write hours, such as 24h, or minutes, such as 30m")
		return otherwise
	}
	return interval
}
