package service

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mgmtd/mgmtd/internal/capture"
	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/mirror"
	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/move"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/schedule"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/verify"
)

// This file maps errors to gRPC statuses and exit codes. An error crosses the wire as a status
// whose ErrorInfo holds a Reason, and comes back as an *Error with the same one. So mgmtctl exits
// alike with the server in its own process and with a daemon.

// The exit codes of mgmtctl.
const (
	ExitDone        = 0   // all done
	ExitError       = 1   // any error that has no code of its own
	ExitUsage       = 2   // usage, unreadable kubeconfig or config, confirmation missing
	ExitFindings    = 3   // findings of severity error, nothing changed
	ExitIncomplete  = 4   // something changed and work is left
	ExitStore       = 10  // store missing, denied or unreachable
	ExitHeld        = 11  // fenced, owned or locked by another
	ExitKeys        = 12  // identity missing or wrong, signature missing or untrusted
	ExitInterrupted = 130 // interrupted before any change, or by a second Ctrl-C
)

// Reason says why a call was refused or ended. It is part of the API: words are added, never
// changed.
type Reason string

// The reasons.
const (
	ReasonInternal Reason = "INTERNAL" // nothing below fits
	ReasonUsage    Reason = "USAGE"    // the request cannot be meant as it is
	// the beginning of an id fits several, or a source must be named; the message lists them
	ReasonAmbiguous  Reason = "AMBIGUOUS"
	ReasonKubeconfig Reason = "KUBECONFIG" // a kubeconfig cannot be read or used
	// no snapshot, operation or management cluster of this name
	ReasonNotFound Reason = "NOT_FOUND"
	// a management cluster or the daemon does not answer, or refuses us
	ReasonUnreachable Reason = "UNREACHABLE"
	ReasonDenied      Reason = "DENIED"   // the caller has no role that may do it
	ReasonNoSpace     Reason = "NO_SPACE" // disk, quota or store is full
	// what is stored is not what its name or signature says
	ReasonDamaged     Reason = "DAMAGED"
	ReasonTimeout     Reason = "TIMEOUT"     // the time limit of the client passed
	ReasonUnsupported Reason = "UNSUPPORTED" // this version of the server cannot do it
	// findings block everything; nothing changed
	ReasonFindings Reason = "FINDINGS"
	// the plan has changed since the operator saw it
	ReasonPlanChanged      Reason = "PLAN_CHANGED"
	ReasonIncomplete       Reason = "INCOMPLETE"        // something changed and work is left
	ReasonStoreMissing     Reason = "STORE_MISSING"     // there is no store
	ReasonStoreDenied      Reason = "STORE_DENIED"      // the store refuses access
	ReasonStoreUnreachable Reason = "STORE_UNREACHABLE" // the store does not answer
	ReasonLocked           Reason = "LOCKED"            // another process or run holds it
	// another management cluster owns the workload cluster
	ReasonOwned       Reason = "OWNED"
	ReasonFenced      Reason = "FENCED"      // the fence is held by another, or was lost
	ReasonIdentity    Reason = "IDENTITY"    // identity missing or wrong
	ReasonSignature   Reason = "SIGNATURE"   // signature missing or not trusted
	ReasonInterrupted Reason = "INTERRUPTED" // cancelled by the caller
)

// reasons gives each reason its gRPC code and its exit code. Several reasons may share a gRPC code.
// A status without one of our reasons (from grpc itself, a proxy or a newer server) gets the reason
// that is marked bare; INTERNAL when none is.
var reasons = []struct {
	reason Reason
	code   codes.Code
	exit   int
	bare   bool
}{
	{ReasonInternal, codes.Internal, ExitError, true},
	{ReasonUsage, codes.InvalidArgument, ExitUsage, true},
	{ReasonAmbiguous, codes.InvalidArgument, ExitUsage, false},
	{ReasonKubeconfig, codes.InvalidArgument, ExitUsage, false},
	{ReasonNotFound, codes.NotFound, ExitError, true},
	{ReasonUnreachable, codes.Unavailable, ExitError, true},
	{ReasonDenied, codes.PermissionDenied, ExitError, true},
	{ReasonNoSpace, codes.ResourceExhausted, ExitError, false},
	{ReasonDamaged, codes.DataLoss, ExitError, true},
	{ReasonTimeout, codes.DeadlineExceeded, ExitError, true},
	{ReasonUnsupported, codes.Unimplemented, ExitError, true},
	{ReasonFindings, codes.FailedPrecondition, ExitFindings, false},
	{ReasonPlanChanged, codes.FailedPrecondition, ExitFindings, false},
	{ReasonIncomplete, codes.FailedPrecondition, ExitIncomplete, false},
	{ReasonStoreMissing, codes.FailedPrecondition, ExitStore, false},
	{ReasonStoreDenied, codes.PermissionDenied, ExitStore, false},
	{ReasonStoreUnreachable, codes.Unavailable, ExitStore, false},
	{ReasonLocked, codes.FailedPrecondition, ExitHeld, false},
	{ReasonOwned, codes.FailedPrecondition, ExitHeld, false},
	{ReasonFenced, codes.FailedPrecondition, ExitHeld, false},
	{ReasonIdentity, codes.FailedPrecondition, ExitKeys, false},
	{ReasonSignature, codes.FailedPrecondition, ExitKeys, false},
	{ReasonInterrupted, codes.Canceled, ExitInterrupted, true},
}

// mapping gives the errors that match a reason.
type mapping struct {
	match  func(error) bool
	reason Reason
}

// mappings gives the errors of other packages their reasons; the first match counts. An error
// without a match is INTERNAL.
var mappings = []mapping{
	// Damage counts even if recording it was interrupted.
	{as[*verify.DamagedError], ReasonFindings},
	{as[*verify.RemovedError], ReasonNotFound},
	// An *Error has a reason of its own, and a cancelled call is INTERRUPTED whatever it
	// interrupted. A deadline is last: packages set deadlines of their own, so that it counts only
	// when nothing else fits.
	{is(context.Canceled), ReasonInterrupted},
	{as[*restore.IncompleteError], ReasonIncomplete},
	{as[*restore.FindingsError], ReasonFindings},
	{as[*restore.PlanChangedError], ReasonPlanChanged},
	{as[*restore.SelectionError], ReasonUsage},
	{as[*modify.MismatchError], ReasonUsage},
	{as[*modify.ParseError], ReasonUsage},
	{as[*move.ForwardError], ReasonIncomplete},
	{as[*move.CopiesLeftError], ReasonIncomplete},
	{as[*move.SourceLeftError], ReasonIncomplete},
	{as[*move.DoubtError], ReasonIncomplete},
	{as[*move.LockedError], ReasonLocked},
	{as[*move.OtherEndsError], ReasonUsage},
	{as[*ownership.OwnedError], ReasonOwned},
	{as[*ownership.WentBackError], ReasonOwned},
	{as[*schedule.UnknownError], ReasonNotFound},
	{as[*mirror.FencedError], ReasonFenced},
	{as[*mirror.RemovedError], ReasonFenced},
	{as[*store.FenceError], ReasonFenced},
	{is(store.ErrConflict), ReasonOwned},
	{as[*capture.UnknownNamespaceError], ReasonUsage},
	{as[*retention.BlockedError], ReasonIncomplete},
	{as[*retention.RetainedError], ReasonIncomplete},
	{as[*retention.RefusedError], ReasonFindings},
	{as[*retention.PlanChangedError], ReasonPlanChanged},
	{as[*kube.KubeconfigError], ReasonKubeconfig},
	{as[*kube.UnreachableError], ReasonUnreachable},
	{as[*store.UsageError], ReasonUsage},
	{as[*store.KeyError], ReasonIdentity},
	{as[*store.TrustError], ReasonSignature},
	{as[*store.CorruptError], ReasonDamaged},
	{is(store.ErrRecordGone), ReasonDamaged},
	{isNoStore, ReasonStoreMissing},
	{isGone, ReasonStoreMissing},
	{as[*store.FormatError], ReasonUnsupported},
	{isAmbiguousSnapshot, ReasonAmbiguous},
	{as[*store.LookupError], ReasonNotFound},
	{is(store.ErrNoSpace), ReasonNoSpace},
	{is(store.ErrStoreMissing), ReasonStoreMissing},
	{is(store.ErrForeign), ReasonStoreMissing},
	{is(store.ErrNotFound), ReasonDamaged}, // a stored document names a missing key
	{is(store.ErrDenied), ReasonStoreDenied},
	{is(store.ErrUnreachable), ReasonStoreUnreachable},
	{as[*catalog.LockedError], ReasonLocked},
	{as[*catalog.TransitionError], ReasonLocked},
	{as[*catalog.AmbiguousError], ReasonAmbiguous},
	{as[*catalog.DamagedError], ReasonDamaged},
	{as[*catalog.FutureSchemaError], ReasonUnsupported},
	{is(catalog.ErrNoSpace), ReasonNoSpace},
	{is(catalog.ErrNotFound), ReasonNotFound},
	{is(syscall.ENOSPC), ReasonNoSpace},
	{is(context.DeadlineExceeded), ReasonTimeout},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// isNoStore reports an error about a place that holds something other than a store.
func isNoStore(err error) bool {
	e, ok := errors.AsType[*store.FormatError](err)
	return ok && e.Format == 0
}

func isAmbiguousSnapshot(err error) bool {
	e, ok := errors.AsType[*store.LookupError](err)
	return ok && e.Ambiguous
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Error is an error with a reason, on either side of the wire.
type Error struct {
	Reason  Reason
	Message string
	Hint    string // what to do next, or empty
	// HintKey names the commands that a client adds to the hint, or is empty.
	HintKey object.HintKey
	err     error // cause; does not cross the wire
}

func (e *Error) Error() string { return e.Message }

// addHint adds what else the operator can do; key names the commands for that.
func (e *Error) addHint(hint string, key object.HintKey) {
	if e.Hint != "" {
		hint = e.Hint + "; " + hint
	}
	e.Hint, e.HintKey = hint, key
}

// Unwrap returns the cause, nil when the error came over the wire.
func (e *Error) Unwrap() error { return e.err }

// ExitCode returns the exit code of the error's reason.
func (e *Error) ExitCode() int {
	for _, r := range reasons {
		if r.reason == e.Reason {
			return r.exit
		}
	}
	return ExitError
}

func (e *Error) code() codes.Code {
	for _, r := range reasons {
		if r.reason == e.Reason {
			return r.code
		}
	}
	return codes.Internal
}

// errorDomain names the owner of our reasons in ErrorInfo. The others are keys of its metadata: the
// hint, and its object.HintKey.
const (
	errorDomain     = "mgmtd.dev"
	metadataHint    = "hint"
	metadataHintKey = "hintKey"
)

// ToStatus turns an error into one that crosses the wire: a status with an ErrorInfo. A status
// stays as it is, nil stays nil.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := fromWire(err); ok {
		return err
	}
	e := classify(err)
	// Protobuf refuses text that is not UTF-8, and an error may quote anything: without this, a
	// broken message would lose its reason.
	s := status.New(e.code(), strings.ToValidUTF8(e.Message, "\uFFFD"))
	info := &errdetails.ErrorInfo{Reason: string(e.Reason), Domain: errorDomain}
	if e.Hint != "" {
		info.Metadata = map[string]string{metadataHint: strings.ToValidUTF8(e.Hint, "\uFFFD")}
		if e.HintKey != "" {
			info.Metadata[metadataHintKey] = string(e.HintKey)
		}
	}
	detailed, err := s.WithDetails(info)
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// FromStatus is the inverse of ToStatus. It accepts errors that never crossed a wire and classifies
// them by the same table. nil gives nil.
func FromStatus(err error) *Error {
	if err == nil {
		return nil
	}
	s, ok := fromWire(err)
	if !ok {
		return classify(err)
	}
	e := &Error{Reason: bareReason(s.Code()), Message: s.Message()}
	for _, detail := range s.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != errorDomain {
			continue
		}
		e.Hint = info.GetMetadata()[metadataHint]
		e.HintKey = object.HintKey(info.GetMetadata()[metadataHintKey])
		if known(Reason(info.GetReason())) {
			e.Reason = Reason(info.GetReason())
		}
	}
	return e
}

// fromWire reports whether err is a status. An *Error around a status is not: its reason was chosen
// on purpose.
func fromWire(err error) (*status.Status, bool) {
	if as[*Error](err) {
		return nil, false
	}
	return status.FromError(err)
}

// ExitCode returns the exit code of mgmtctl for an error of either side of the wire.
func ExitCode(err error) int {
	if err == nil {
		return ExitDone
	}
	return FromStatus(err).ExitCode()
}

// classify finds the reason and the hint of an error of this process; the message is the error's
// whole text.
func classify(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Reason: e.Reason, Message: err.Error(), Hint: e.Hint, HintKey: e.HintKey, err: err}
	}
	e := &Error{Reason: ReasonInternal, Message: err.Error(), Hint: hint(err),
		HintKey: hintKeyOf(err), err: err}
	for _, m := range mappings {
		if m.match(err) {
			e.Reason = m.reason
			break
		}
	}
	return e
}

// hint returns the hint of the first error in the chain that has one.
func hint(err error) string {
	var hinter interface {
		error
		Hint() string
	}
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}

// hintKeyOf returns the key of the hint of an error, of the first in its chain that has a hint.
func hintKeyOf(err error) object.HintKey {
	var hinter interface {
		error
		Hint() string
	}
	if !errors.As(err, &hinter) {
		return ""
	}
	if keyed, ok := hinter.(interface{ HintKey() object.HintKey }); ok {
		return keyed.HintKey()
	}
	return ""
}

func known(r Reason) bool {
	for _, row := range reasons {
		if row.reason == r {
			return true
		}
	}
	return false
}

func bareReason(code codes.Code) Reason {
	for _, r := range reasons {
		if r.bare && r.code == code {
			return r.reason
		}
	}
	return ReasonInternal
}

// ServerOptions are the options of every gRPC server for this service: they convert each error with
// ToStatus, so that no handler can forget it.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			resp, err := handle(ctx, req)
			return resp, ToStatus(err)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
			handle grpc.StreamHandler) error {
			return ToStatus(handle(srv, stream))
		}),
	}
}
