package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/mgmt"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/snapshot/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// verify checks a snapshot: its signature, and what the level says. It reports all findings of a level before it fails.
func verify(ctx context.Context, c *catalog.Catalog, j *catalog.Journal, st *store.Store, e store.Signed, level mgmtv1.VerifyLevel) error {
	var findings []mgmt.Finding
	forged := mayRead(st, e)
	if untrusted, ok := errors.AsType[*store.TrustError](e.RequireTrusted()); ok {
		f := mgmt.Finding{Severity: mgmt.Warning, Code: "signature", Message: untrusted.Error(), Hint: untrusted.Hint()}
		if forged != nil {
			f.Severity = mgmt.Error
		}
		findings = append(findings, f)
	}
	bad, of := 0, 0
	if level != mgmtv1.VerifyLevel_VERIFY_LEVEL_SAMPLE {
		report, err := st.VerifyStructure(ctx, e.Envelope, func(p store.VerifyProgress) { j.Progress("keys checked", int64(p.Done), int64(p.Total)) })
		if err != nil {
			return err
		}
		bad, of = len(report.Findings), report.Keys
		for _, f := range report.Findings {
			findings = append(findings, mgmt.Finding{Severity: mgmt.Error, Code: string(f.Code), Message: fmt.Sprintf("%s: %s", f.Key, f.Message),
				Hint: "restore from another snapshot; older versions of the key may be in a versioned bucket"})
		}
	}
	what := "keys"
	if bad == 0 && forged == nil && level > mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE { // else it is known to be of no use
		what = "objects"
		more, checked, err := verifyContent(ctx, j, st, e, level)
		if err != nil {
			return err
		}
		findings, of = append(findings, more...), checked
		for _, f := range more {
			if f.Severity == mgmt.Error {
				bad++
			}
		}
	}
	if bad > 0 {
		// The next snapshot would name the same keys.
		return errors.Join(notWhole(ctx, j, bad, of, what, findings...), c.ForgetKnown(ctx, st.ID(), e.Source.UID))
	}
	return errors.Join(emit(ctx, j, findings), forged)
}

// mayRead refuses what is inside a snapshot that no trusted key signed (invariant I8: signature first). Who gives no trusted keys, or reads a plain store, did not
// ask for that; what changes a management cluster asks anew.
func mayRead(st *store.Store, e store.Signed) error {
	if e.Trust == store.Unchecked || !st.Encrypted() {
		return nil
	}
	return e.RequireTrusted()
}

// verifyContent opens a snapshot and compares objects with their shards. Damage is a finding, also where it keeps the snapshot from being opened.
func verifyContent(ctx context.Context, j *catalog.Journal, st *store.Store, e store.Signed, level mgmtv1.VerifyLevel) ([]mgmt.Finding, int, error) {
	finding := func(severity mgmt.Severity, code string, ref mgmt.Ref, message string) mgmt.Finding {
		hint := "do not restore from this snapshot"
		if severity < mgmt.Error {
			hint = "it may have been taken by another version of mgmtd (" + e.Writer + "); a restore reads the edges anew"
		}
		return mgmt.Finding{Severity: severity, Code: code, Ref: ref, Message: message, Hint: hint}
	}
	s, err := snapshot.Open(ctx, st, e.Envelope)
	if corrupt, ok := errors.AsType[*store.CorruptError](err); ok {
		return []mgmt.Finding{finding(mgmt.Error, snapshot.CheckDamaged, mgmt.Ref{}, corrupt.Key+": "+corrupt.Reason)}, 1, nil
	}
	if errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrStoreMissing) {
		return []mgmt.Finding{finding(mgmt.Error, string(store.VerifyMissing), mgmt.Ref{}, err.Error())}, 1, nil
	}
	if err != nil {
		return nil, 0, err
	}
	r, err := s.Check(ctx, level == mgmtv1.VerifyLevel_VERIFY_LEVEL_SAMPLE, func(done, total int64) { j.Progress("objects checked", done, total) })
	if err != nil {
		return nil, 0, err
	}
	var findings []mgmt.Finding
	for _, f := range r.Findings {
		severity := mgmt.Error
		if f.Code == snapshot.CheckEdges {
			severity = mgmt.Warning
		}
		findings = append(findings, finding(severity, f.Code, f.Ref, f.Message))
	}
	return findings, r.Objects, nil
}

func emit(ctx context.Context, j *catalog.Journal, findings []mgmt.Finding) error {
	events := make([]catalog.Event, 0, len(findings))
	for _, f := range findings {
		events = append(events, restore.FindingEvent(f.Unit, f))
	}
	return j.Emit(ctx, events...)
}

func notWhole(ctx context.Context, j *catalog.Journal, bad, of int, what string, findings ...mgmt.Finding) error {
	return errors.Join(emit(ctx, j, findings), &Error{
		Reason: ReasonFindings, Message: fmt.Sprintf("%d of %d %s are not as they should be", bad, of, what), Hint: "do not rely on this snapshot; take a new one where snapshots are taken, with mgmtctl snapshot create --full, or restore from another",
	})
}
