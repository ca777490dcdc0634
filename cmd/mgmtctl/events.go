package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mgmtd/mgmtd/internal/retry"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

const (
	// streamHeld is how long a stream lasts that counts as a new beginning: a daemon that ends its
	// connections once an hour may do so for as long as an operation takes.
	streamHeld = 10 * time.Second
	// streamTries is how many streams in a row may break sooner. With streamBackoff that takes about
	// 11 seconds, in which systemd restarts a daemon.
	streamTries = 10
)

// streamBackoff is between two streams.
func streamBackoff() retry.Backoff {
	return retry.Backoff{First: 100 * time.Millisecond, Longest: 2 * time.Second}
}

// followEvents calls show for each event of an operation until its run ends, over as many streams
// as it takes.
func (p *program) followEvents(ctx context.Context, c *connection, id string,
	show func(*mgmtv1.Event)) (*outcome, error) {
	f := &follower{p: p, show: show, o: &outcome{}, seen: map[string]bool{}}
	for broken := 1; ; broken++ {
		began := time.Now()
		err := f.receive(ctx, c, id)
		if err == nil {
			return f.o, nil
		}
		if time.Since(began) > streamHeld {
			broken = 1
		}
		if !connectionEnded(err) || broken >= streamTries ||
			retry.Sleep(ctx, p.backoff.Wait(broken)) != nil {
			return nil, err
		}
	}
}

// connectionEnded reports an error of the connection. An error of the server has details that say
// why it is unavailable.
func connectionEnded(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable && len(s.Details()) == 0
}

// follower has what it received of the events of an operation.
type follower struct {
	p    *program
	show func(*mgmtv1.Event)

	o        *outcome
	seen     map[string]bool // findings
	runEnded bool
	after    int64 // number of the last event
}

// receive takes the events of one stream. It returns nil when the run has ended.
func (f *follower) receive(ctx context.Context, c *connection, id string) error {
	// without this, grpc holds a stream that is left early until its context ends
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.operations.WatchOperation(ctx,
		&mgmtv1.WatchOperationRequest{Id: id, AfterSeq: f.after})
	for err == nil {
		var resp *mgmtv1.WatchOperationResponse
		if resp, err = stream.Recv(); err == nil {
			err = f.take(resp.GetEvent())
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (f *follower) take(e *mgmtv1.Event) error {
	f.after = max(f.after, e.GetSeq()) // progress has no number
	e.Message = f.p.completeMessage(e.GetMessage(), e.GetHintKey())
	if f.runEnded {
		// This is a resumed operation: the findings of its earlier run may no longer apply.
		f.o.findings, f.seen, f.runEnded = nil, map[string]bool{}, false
	}
	switch e.GetType() {
	case mgmtv1.EventType_EVENT_TYPE_FINDING:
		f.p.completeHint(e.GetFinding())
		key, err := proto.MarshalOptions{Deterministic: true}.Marshal(e.GetFinding())
		if err != nil {
			return fmt.Errorf("read finding: %w", err)
		}
		if !f.seen[string(key)] {
			f.seen[string(key)] = true
			f.o.findings = append(f.o.findings, e.GetFinding())
		}
	case mgmtv1.EventType_EVENT_TYPE_OPERATION:
		f.runEnded = isEnd(e.GetState())
	default: // only these two matter to the outcome
	}
	f.show(e)
	return nil
}
