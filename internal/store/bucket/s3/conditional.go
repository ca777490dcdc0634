package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/document"
)

// PutIf writes with If-None-Match or If-Match; its tag is the ETag. A server that ignores those is
// refused.
func (b *Bucket) PutIf(ctx context.Context, key string, data []byte, tag string) (string, error) {
	if err := b.begin(ctx, "put", key); err != nil {
		return "", err
	}
	honoured, err := b.SupportsConditionalWrites(ctx)
	if err != nil {
		return "", err
	}
	if honoured {
		honoured, err = b.confirmConditions(ctx)
	}
	if err != nil {
		return "", err
	}
	if !honoured {
		return "", &bucket.Error{Op: "put", Key: key, Err: bucket.ErrUnconditional}
	}
	when := tag
	if tag == "" {
		when = mustNotExist
	}
	// not retained: each write leaves a version behind, and only the newest one counts
	newTag, err := b.write(ctx, key, data, condition{when: when})
	if err != nil || newTag != "" {
		return newTag, err
	}
	_, newTag, err = b.GetTagged(ctx, key) // the answer of some servers has no ETag
	return newTag, err
}

// conditionalKey is the record of whether the server supports conditional writes; docs/format.md
// has the protocol.
const conditionalKey = "conditional.json"

// conditionalRecord is what is in it.
type conditionalRecord struct {
	Format      int    `json:"format"`
	Conditional string `json:"conditional"`
}

const (
	conditionalYes     = "yes"
	conditionalNo      = "no"
	conditionalProbing = "probing"

	maxConditional = 4 << 10

	// neverTag is no ETag of anything.
	neverTag = "00000000000000000000000000000000"
)

// SupportsConditionalWrites reads the record, or tries the server out and writes it. The answer is
// cached.
func (b *Bucket) SupportsConditionalWrites(ctx context.Context) (bool, error) {
	var known *bool
	select {
	case known = <-b.probed:
	case <-ctx.Done():
		return false, &bucket.Error{Op: "get", Key: conditionalKey, Err: ctx.Err()}
	}
	defer func() { b.probed <- known }()
	if known != nil {
		return *known, nil
	}
	state, _, err := b.readConditional(ctx)
	if errors.Is(err, bucket.ErrNotFound) || err == nil && state == conditionalProbing {
		state, err = b.probe(ctx)
	}
	if err != nil {
		return false, err
	}
	honoured := state == conditionalYes
	known = &honoured
	return honoured, nil
}

// unreadableRecord reports whether the record is something that no version of ours wrote. Then
// somebody wrote over it: what is written once is written as without conditions, and nothing is
// fenced.
func unreadableRecord(err error) bool {
	_, corrupt := errors.AsType[*bucket.CorruptError](err)
	_, format := errors.AsType[*document.FormatError](err)
	return corrupt || format
}

// confirmConditions tries once in each process that the server honours conditions, although the
// record says so: everybody who can write to the bucket can write "yes".
func (b *Bucket) confirmConditions(ctx context.Context) (bool, error) {
	if b.confirmed.Load() {
		return true, nil
	}
	err := b.putRecord(ctx, conditionalNo, neverTag)
	honoured := errors.Is(err, bucket.ErrConflict)
	if honoured {
		err = b.putRecord(ctx, conditionalProbing, mustNotExist)
		if honoured = errors.Is(err, bucket.ErrConflict); err == nil {
			// The record was gone, or the server does not honour this one.
			var state string
			state, err = b.probe(ctx)
			honoured = err == nil && state == conditionalYes
		}
	}
	if honoured {
		b.confirmed.Store(true)
		return true, nil
	}
	if err != nil && !errors.Is(err, errNotImplemented) {
		return false, err
	}
	select {
	case <-b.probed:
		b.probed <- &honoured
	case <-ctx.Done():
		return false, &bucket.Error{Op: "put", Key: conditionalKey, Err: ctx.Err()}
	}
	return false, nil
}

func (b *Bucket) readConditional(ctx context.Context) (state, tag string, err error) {
	data, tag, err := b.GetTagged(ctx, conditionalKey)
	if err != nil {
		return "", "", err
	}
	state, err = parseConditional(data)
	return state, tag, err
}

func parseConditional(data []byte) (state string, err error) {
	if len(data) > maxConditional {
		return "", &bucket.CorruptError{Key: conditionalKey,
			Reason: fmt.Sprintf("it is larger than %d bytes",
				maxConditional)}
	}
	if found, err := document.FormatOf(data); err != nil {
		return "", &bucket.CorruptError{Key: conditionalKey, Reason: err.Error()}
	} else if found != document.Format {
		return "", &document.FormatError{Key: conditionalKey, Format: found}
	}
	var r conditionalRecord
	if err := document.Decode(data, &r); err != nil {
		return "", &bucket.CorruptError{Key: conditionalKey, Reason: err.Error()}
	}
	return r.Conditional, nil
}

// probe tries the server out with the record itself: each write that a server takes although it
// should refuse it leaves the record "no", so that several may probe at once and die at any step.
func (b *Bucket) probe(ctx context.Context) (string, error) {
	for _, step := range []struct{ state, when string }{
		{conditionalNo, neverTag},
		{conditionalProbing, mustNotExist},
		{conditionalNo, mustNotExist},
	} {
		err := b.putRecord(ctx, step.state, step.when)
		if errors.Is(err, errNotImplemented) {
			return conditionalNo, b.putRecord(ctx, conditionalNo, unconditional)
		}
		if err == nil && step.state == conditionalNo {
			return conditionalNo, nil
		}
		if err != nil && !errors.Is(err, bucket.ErrConflict) {
			return "", err
		}
	}
	state, tag, err := b.readConditional(ctx)
	if errors.Is(err, bucket.ErrNotFound) {
		// The server refuses to create the record and does not show it: versitygw v1.8.0 does so while
		// a delete marker is on it. The refusals above prove that it honours conditions.
		if err := b.putRecord(ctx, conditionalProbing, unconditional); err != nil {
			return "", err
		}
		state, tag, err = b.readConditional(ctx)
	}
	if err != nil || state != conditionalProbing {
		return state, err
	}
	if tag == "" { // without ETags there is nothing to compare with
		return conditionalNo, b.putRecord(ctx, conditionalNo, unconditional)
	}
	err = b.putRecord(ctx, conditionalYes, tag)
	if errors.Is(err, bucket.ErrConflict) { // another one was faster
		state, _, err = b.readConditional(ctx)
		return state, err
	}
	return conditionalYes, err
}

var errNotImplemented = errors.New("not implemented")

// putRecord writes without reading back after a lost answer: every other prober writes the same
// bytes. A lost answer of a write that had an effect shows as a conflict, after which the record is
// read.
func (b *Bucket) putRecord(ctx context.Context, state, when string) error {
	data, err := document.Encode(conditionalRecord{Format: document.Format, Conditional: state})
	if err != nil {
		return err
	}
	unknown := false
	err = b.do(ctx, "put", conditionalKey, 0, func(ctx context.Context) error {
		_, err := b.putOnce(ctx, conditionalKey, data, condition{when: when})
		answer := minio.ToErrorResponse(err)
		if answer.Code == "NotImplemented" || answer.StatusCode == http.StatusNotImplemented {
			unknown = true
			return nil
		}
		if answer.Code == "NoSuchKey" { // If-Match of a key that is not there
			return minio.ErrorResponse{Code: "PreconditionFailed", StatusCode: http.StatusPreconditionFailed}
		}
		return err
	})
	if unknown {
		return errNotImplemented
	}
	return err
}
