package service

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// thief is somebody with a stolen signing key and credentials of the bucket.
type thief struct {
	d  *attackedDay
	st *store.Store
}

// stealKey makes a key that the daemon trusts within limits, and returns who has stolen it.
func (d *attackedDay) stealKey(limits string) *thief {
	d.t.Helper()
	dir := filepath.Join(d.t.TempDir(), "edge")
	_, err := store.Keygen(dir, time.Now())
	file := filepath.Join(dir, "trusted.yaml")
	if err == nil {
		err = os.WriteFile(file, []byte("trustedKeys:\n- file: "+store.SigningPubFile+"\n  "+limits+
			"\n"), 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	own := &d.cfg.Locations[0].Store
	own.TrustedKeyFiles = append(own.TrustedKeyFiles, file)
	return d.thiefWith(filepath.Join(dir, store.SigningFile))
}

// thiefWith opens the bucket with a signing key.
func (d *attackedDay) thiefWith(signingKey string) *thief {
	d.t.Helper()
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: d.cfg.Locations[0].Store.Recipients,
		SigningKeyFile: signingKey, TrustedKeyFiles: []string{filepath.Join(d.keys,
			store.SigningPubFile)}})
	if err != nil {
		d.t.Fatal(err)
	}
	st, err := store.Open(d.t.Context(), store.Options{Bucket: d.bucket, Keys: keys})
	if err != nil {
		d.t.Fatal(err)
	}
	return &thief{d: d, st: st}
}

// strike signs all kinds of documents about the source of the day: an older tree as the newest
// snapshot, a good result for it and a bad one for the newest, a pin, a prune record that explains
// what is gone, and an ownership record.
func (a *thief) strike(n int) error {
	d, ctx := a.d, a.d.t.Context()
	newest, err := store.ParseEnvelopeKey(d.newestKey())
	if err != nil {
		return err
	}
	good, err := a.st.GetEnvelope(ctx, newest)
	if err != nil {
		return err
	}
	list, err := a.st.Snapshots(ctx, d.source.UID)
	if err != nil {
		return err
	}
	old, err := a.st.GetEnvelope(ctx, list[0])
	if err != nil {
		return err
	}
	forged := good.Envelope
	forged.ID, forged.Tree, forged.Time = store.NewSnapshotID(), old.Tree, time.Now()
	forged.Sequence += int64(1 + n)
	forged.Parent = &store.Parent{ID: good.ID, SHA256: good.SHA256}
	put, err := a.st.PutEnvelope(ctx, forged)
	if err != nil {
		return err
	}
	check := store.Verification{Level: store.LevelFull, Time: time.Now(), Writer: "mgmtd",
		Outcome: store.OutcomeOK, Keys: 1, Objects: 1}
	_, err = a.st.PutVerification(ctx, put, check)
	check.Outcome, check.Findings = store.OutcomeDamaged, 1
	_, damaged := a.st.PutVerification(ctx, good, check)
	pin := a.st.PutPin(ctx, put.Key(), "mine", time.Now())
	_, prune := a.st.PutPruneRecord(ctx, store.Pruned{},
		store.Removal{Numbers: map[string][]int64{d.source.UID: {1, 2, 3}}}, time.Now())
	_, owner := a.st.PutOwner(ctx, store.Owner{WorkloadID: fmt.Sprintf("w%d", n),
		Workload: attackedNamespace + "/alpha", Owner: store.Source{UID: "edge", Name: "edge"}, Epoch: 7,
		Operation: "0123456789ab", Time: time.Now()}, nil)
	return errors.Join(err, damaged, pin, prune, owner)
}

// strikes is strike as an attack. Its keys are those that come to the bucket.
func (a *thief) strikes() attack {
	return attack{name: "sign for another source", do: func(d *attackedDay, n int) (keys []string) {
		before := d.bucket.Keys("")
		if err := a.strike(n); err != nil {
			d.t.Fatal(err)
		}
		for _, key := range d.bucket.Keys("") {
			if !slices.Contains(before, key) {
				d.planted[key], keys = true, append(keys, key)
			}
		}
		return keys
	}, reports: []object.Code{object.CodePassedOver, object.CodeEnvelopeUntrusted,
		object.CodePruneRecord, object.CodeRecordUnusable}}
}

// assertNothingStruck asserts that nothing of the thief's counts.
func (d *attackedDay) assertNothingStruck() {
	d.t.Helper()
	st, err := d.openLocation(d.t.Context(), &d.cfg.Locations[0], d.id, false)
	if err != nil {
		d.t.Fatal(err)
	}
	owners, err := ownership.Owners(d.t.Context(), st)
	if err != nil || len(owners) == 0 {
		d.t.Errorf("%d owners, %v", len(owners), err)
	}
	for id, r := range owners {
		if r.Trusted || r.Highest() != 0 {
			d.t.Errorf("the ownership record of %s counts", id)
		}
	}
	pruned, err := st.Pruned(d.t.Context())
	if err != nil || len(pruned.Unusable) == 0 {
		d.t.Errorf("prune records: %+v, %v", pruned.Unusable, err)
	}
	for _, of := range d.taken {
		list, _, err := st.Verifications(d.t.Context(), of.Key())
		if v, ok := st.DecidingVerification(of.Signed, list); err != nil || ok && v.Outcome !=
			store.OutcomeOK {
			d.t.Errorf("the result of %s counts: %v, %v", of.ID, v.Outcome, err)
		}
	}
}

// TestADayWithAStolenEdgeDaemon: the key of a daemon that takes snapshots of another management
// cluster only signs all kinds of documents about this one.
func TestADayWithAStolenEdgeDaemon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newAttackedDay(t, faultbucket.NewVersioned())
		defer d.close()
		d.pass(2*time.Hour + time.Minute)
		edge := d.stealKey("sources: [edge]")
		for n := range halfHours() {
			d.pass(30 * time.Minute)
			if n%(halfHours()/4) == 0 {
				d.attack(edge.strikes(), n)
			}
		}
		d.assertNewest()
		d.assertNothingStruck()
		d.verify()
		d.assertAttacksReported([]attack{edge.strikes()})
	})
}

// TestADayAfterTheKeyOfTheDaemonWasStolen: the daemon has a new key and trusts the old one up to
// the last snapshot before the theft, which is still trusted.
func TestADayAfterTheKeyOfTheDaemonWasStolen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := newAttackedDay(t, faultbucket.NewVersioned())
		defer d.close()
		d.pass(2*time.Hour + time.Minute)
		last, err := store.ParseEnvelopeKey(d.newestKey())
		if err != nil {
			t.Fatal(err)
		}
		own := &d.cfg.Locations[0].Store
		old := d.thiefWith(own.SigningKeyFile)
		e, err := old.st.GetEnvelope(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(d.keys, "trusted.yaml")
		dir := filepath.Join(t.TempDir(), "new")
		_, err = store.Keygen(dir, time.Now())
		err = errors.Join(err, os.WriteFile(file, fmt.Appendf(nil, "trustedKeys:\n- file: %s\n  "+
			"lastTrusted: [{source: %s, sequence: %d, hash: %s}]\n", store.SigningPubFile, d.source.UID,
			e.Sequence, e.SHA256), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		own.SigningKeyFile, own.TrustedKeyFiles = filepath.Join(dir, store.SigningFile), []string{file}
		d.attack(old.strikes(), 5)
		d.pass(time.Hour)
		st, err := d.openLocation(t.Context(), &d.cfg.Locations[0], d.id, false)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := st.GetEnvelope(t.Context(), last); err != nil || e.Trust != store.Trusted {
			t.Errorf("the last snapshot before the theft is %s, %v", e.Trust, err)
		}
		d.assertNewest()
		d.assertNothingStruck()
		d.verify()
		d.assertAttacksReported([]attack{old.strikes()})
	})
}

// TestAPruneAsksForHiddenOperations: an attacker hides the record of an operation that runs on
// another host.
func TestAPruneAsksForHiddenOperations(t *testing.T) {
	b := faultbucket.NewVersioned()
	d := newAttackedDay(t, b)
	defer d.close()
	st, err := d.openLocation(t.Context(), &d.cfg.Locations[0], nil, true)
	if err != nil {
		t.Fatal(err)
	}
	const operation = "0123456789ab"
	r, err := st.SealOperationRecord(operation, 1, store.OperationHead{Host: "other", Time: time.Now(),
		Kind: "move", State: "running", Snapshot: "snapshot"}, []byte("text"))
	if err == nil {
		err = st.PutOperationRecord(t.Context(), r)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.Hide(r.Key.String())
	_, p, err := d.openPrune(t.Context(), "main", retention.Options{})
	if err != nil {
		t.Fatal(err)
	}
	used, err := p.options.HiddenInUse(t.Context())
	if err != nil || len(used) != 1 || used[operation] != "snapshot" {
		t.Errorf("in use: %v, %v", used, err)
	}
}
