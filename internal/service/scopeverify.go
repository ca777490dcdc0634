package service

import (
	"errors"
	"fmt"

	"github.com/mgmtd/mgmtd/internal/store"
)

// scopeVerifies verifies the newest snapshot of each scope of a source, one after the other: first
// that of everything, which has begun. It implements schedule.VerifyRun.
type scopeVerifies struct {
	*verifyOperation
	s       *Server
	request verifyRequest // of the first
	// passFailed: the pass of the cycle came to no result.
	passFailed bool
}

// Wait waits until the ends of all are recorded. The outcome is damaged when one snapshot is, and
// "" when another one came to no result.
func (v *scopeVerifies) Wait() (store.VerifyOutcome, error) {
	return guarded(v.s, "verify", v.wait)
}

func (v *scopeVerifies) wait() (store.VerifyOutcome, error) {
	_, err := v.verifyOperation.Wait()
	results := []store.Verification{*v.result}
	scopes := map[string]store.Verification{v.opened.options.Snapshot.ScopeID(): *v.result}
	others, listErr := v.others()
	if listErr != nil {
		results = append(results, store.Verification{})
		err = errors.Join(err, fmt.Errorf("list the scopes to verify: %w", listErr))
	}
	for i := range others {
		if v.s.ctx.Err() != nil { // the next daemon verifies them
			return "", errors.Join(err, v.s.ctx.Err())
		}
		result, otherErr := v.verifyOther(&others[i])
		if otherErr != nil {
			err = errors.Join(err, fmt.Errorf("snapshot %s: %w", others[i].ID, otherErr))
		}
		if result != nil {
			results = append(results, *result)
			scopes[others[i].ScopeID()] = *result
		}
	}
	outcome := worst(results)
	if source := v.opened.source.Name; outcome != "" && source != "" {
		v.s.metrics.verifies.all(verifySeries{v.opened.location, source, v.request.level}, scopes)
	}
	v.passOfCycle()
	return outcome, err
}

// passOfCycle verifies a part of what all snapshots of the source name. Its result does not count
// for the newest snapshots, which Wait is about.
func (v *scopeVerifies) passOfCycle() {
	if v.s.ctx.Err() != nil {
		return
	}
	v.passFailed = true // also when it panics
	done, err := v.s.cyclePass(v.opened)
	v.passFailed = v.s.reportPass(v.opened.location, v.opened.source.UID, done, err)
}

// PassFailed implements schedule.VerifyRun.
func (v *scopeVerifies) PassFailed() bool { return v.passFailed }

// worst returns damaged when one of the outcomes is, else "" when one came to no result.
func worst(results []store.Verification) store.VerifyOutcome {
	outcome := store.OutcomeOK
	for _, r := range results {
		switch r.Outcome {
		case store.OutcomeDamaged:
			return store.OutcomeDamaged
		case store.OutcomeOK:
		case "":
			outcome = ""
		}
	}
	return outcome
}

// others returns the newest snapshots of the scopes that the first verify was not about.
func (v *scopeVerifies) others() ([]store.Signed, error) {
	list, _, err := v.opened.options.Store.NewestOfScopes(v.s.ctx, v.opened.source.UID)
	first := v.opened.options.Snapshot.ScopeID()
	var others []store.Signed
	for _, e := range list {
		if e.ScopeID() != first {
			others = append(others, e)
		}
	}
	return others, err
}

// verifyOther verifies one of the others; nil when a prune has removed it since it was listed.
func (v *scopeVerifies) verifyOther(e *store.Signed) (*store.Verification, error) {
	request, key := v.request, e.Key()
	request.exactly = &key
	run, err := v.s.beginVerify(v.s.ctx, request)
	if store.IsMissing(err) {
		return nil, nil // nothing is there to verify, and nothing is wrong
	}
	if err != nil {
		return &store.Verification{}, err
	}
	_, err = run.Wait()
	return run.result, err
}
