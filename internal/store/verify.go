package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/layout"
	"github.com/mgmtd/mgmtd/internal/task"
)

// Finding is a finding about one key.
type Finding struct {
	object.Finding
	Key Key
}

// VerifyReport is the result of VerifyStructure.
type VerifyReport struct {
	Keys  int   // shards and packs that the tree names
	Bytes int64 // of those that were read
	// sorted by key; none means that every key is there and its bytes fit its name
	Findings []Finding
}

// VerifyProgress is how far VerifyStructure is.
type VerifyProgress struct {
	Done, Total int
	Bytes       int64
}

// verifyReads is how many keys are read at a time; more do not help a disk, and each needs little
// memory.
const verifyReads = 4

// VerifyStructure checks without an identity that the tree of an envelope is well formed and that
// every key it names is there with the bytes of its name. It reads all of them, streaming, and
// reports all findings; also where an older version of a key is whole, which is what would be read.
// The error is about the check itself: a cancelled context, the store gone or not answering.
// progress may be nil; it is called from one goroutine at a time.
func (s *Store) VerifyStructure(ctx context.Context, e Envelope, progress func(VerifyProgress)) (
	VerifyReport, error) {
	var report VerifyReport
	tree, err := s.GetTree(ctx, e.Tree)
	if err != nil {
		finding, err := s.verifyFinding(ctx, e.Tree, err)
		if err != nil {
			return report, err
		}
		report.Findings = append(report.Findings, finding)
		return report, nil
	}
	if _, err := s.verifyKey(ctx, e.Tree); err != nil { // an older version was read
		finding, err := s.verifyFinding(ctx, e.Tree, err)
		if err != nil {
			return report, err
		}
		report.Findings = append(report.Findings, finding)
	}
	keys := slices.Concat(tree.Shards, tree.Packs)
	content, err := s.VerifyContent(ctx, keys, progress)
	report.Keys, report.Bytes = content.Keys, content.Bytes
	report.Findings = append(report.Findings, content.Findings...)
	slices.SortFunc(report.Findings, func(a, b Finding) int { return cmp.Compare(a.Key, b.Key) })
	return report, err
}

// VerifyContent checks without an identity that each of these keys is there with the bytes of its
// name. Report, error and progress are those of VerifyStructure.
func (s *Store) VerifyContent(ctx context.Context, keys []Key, progress func(VerifyProgress)) (
	VerifyReport, error) {
	report := VerifyReport{Keys: len(keys)}
	var mu sync.Mutex
	done := 0
	group, ctx := task.WithContext(ctx)
	group.SetLimit(verifyReads)
	for _, key := range keys {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			size, err := s.verifyKey(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				finding, err := s.verifyFinding(ctx, key, err)
				if err != nil {
					return err
				}
				report.Findings = append(report.Findings, finding)
			}
			report.Bytes += size
			done++
			if progress != nil {
				progress(VerifyProgress{Done: done, Total: len(keys), Bytes: report.Bytes})
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return report, err
	}
	if done < len(keys) {
		return report, context.Cause(ctx)
	}
	slices.SortFunc(report.Findings, func(a, b Finding) int { return cmp.Compare(a.Key, b.Key) })
	return report, nil
}

func (s *Store) verifyKey(ctx context.Context, key Key) (size int64, err error) {
	r, err := s.bucket.Get(ctx, string(key))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	h := sha256.New()
	size, err = io.Copy(h, io.LimitReader(r, s.limits.maxStored+1))
	if err != nil {
		return size, err
	}
	if size > s.limits.maxStored {
		return size, &CorruptError{Key: string(key), Reason: fmt.Sprintf("it is larger than %d bytes",
			s.limits.maxStored)}
	}
	if hex.EncodeToString(h.Sum(nil)) != key.SHA256() {
		return size, &CorruptError{Key: string(key), Reason: layout.ReasonHash}
	}
	return size, nil
}

// verifyFinding returns the finding for an error about a key, or the error when it is not about
// the key.
func (s *Store) verifyFinding(ctx context.Context, key Key, err error) (Finding, error) {
	if ctx.Err() != nil || errors.Is(err, ErrStoreMissing) || errors.Is(err, ErrUnreachable) {
		return Finding{}, err
	}
	code, message := object.CodeUnreadable, err.Error()
	if corrupt, ok := errors.AsType[*CorruptError](err); ok {
		code, message = object.CodeDamaged, corrupt.Reason
	} else if errors.Is(err, ErrNotFound) {
		code, message = object.CodeMissing, "it is not in the store"
	}
	if _, olderErr := s.getPrevious(ctx, key, err); olderErr == nil {
		message += olderIsWhole
	}
	return Finding{Key: key, Finding: object.Finding{Severity: object.Error, Code: code,
		Message: fmt.Sprintf("%s: %s", key, message)}}, nil
}

const olderIsWhole = "; the bucket has an older version that is whole, and restores read " +
	"that one"
