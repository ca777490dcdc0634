package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/mgmtd/mgmtd/internal/retry"
)

// ErrExpired means that a resourceVersion is compacted: the cut cannot be read any more and the
// capture has to begin from scratch. The continue token that the server offers with this error must
// not be used: it continues at another resourceVersion.
var ErrExpired = errors.New("resourceVersion expired")

// ErrExactRefused means that the server does not read this kind at an exact resourceVersion
// (aggregated APIs may not).
var ErrExactRefused = errors.New("resourceVersionMatch=Exact refused")

const (
	pageLimit    = 500
	listAttempts = 6
)

// Reader can LIST and nothing else.
type Reader struct {
	client *rest.RESTClient
	kinds  *crdCache
}

// ManyNamespaces is the number of namespaces that are listed one by one at most: with more of them
// it takes less time to list all.
const ManyNamespaces = 16

// ListOptions pick what a LIST reads.
type ListOptions struct {
	Namespace string // empty: all namespaces
	// Namespaces are those of which objects are read; empty: all of them. It takes as few LISTs as
	// it can. With more than ManyNamespaces all objects are read. Not together with Namespace, Name,
	// Limit, Exact, Whole and Since, nor for kinds that are in no namespace.
	Namespaces []string
	Name       string // only the object of this name; a GET would ignore Exact
	Labels     string // a label selector; empty: all objects
	Exact      string // read as of this resourceVersion; empty reads the newest state
	Limit      int    // stop after so many objects; 0 reads all
	// Whole requests all objects in one answer, which the API server serves from its watch cache.
	// With pages, the second page of a kind without recent writes comes from etcd, at many times
	// the cost (k8s.io/apiserver storage/cacher has snapshots for pages only since the last
	// compaction). An answer that breaks off is an error, after which fn may have seen objects. Not
	// together with Exact.
	Whole bool
	// Since accepts what the API server remembers, at this resourceVersion or a newer one: it asks
	// etcd for nothing, and waits only when it lags. What was written in the last moment may be
	// missing. The version has to be that of an object of the kind: others may be ahead of what the
	// server remembers of it. It is asked for once, since the server may not come so far. Only
	// together with Whole.
	Since string
	// Metadata requests PartialObjectMetadata: a third of the time and half of the bytes.
	Metadata bool
}

// ListResult describes a finished LIST.
type ListResult struct {
	ResourceVersion string
	Items           int
	Remaining       int // objects after Limit, 0 if the server does not report it
}

// List reads all objects of a kind, page by page, and calls fn with the bytes of each as the server
// sent them; they are valid only during the call. Objects of core kinds have no apiVersion and kind
// in a list: List inserts both in front. A page that breaks off is requested again without the
// objects that fn has seen, so fn sees each object once. Errors: ErrExpired, ErrExactRefused, API
// errors, what fn returns.
func (r *Reader) List(ctx context.Context, k Kind, o ListOptions, fn func(raw []byte) error) (
	ListResult, error) {
	if len(o.Namespaces) > 0 {
		return r.listIn(ctx, k, o, fn)
	}
	l := lister{reader: r, kind: k, opts: o, fn: fn}
	for {
		if err := l.page(ctx); err != nil {
			return ListResult{}, fmt.Errorf("list %s: %w", k.GroupKind, withoutWords(err))
		}
		if err := l.endless(); err != nil {
			return ListResult{}, fmt.Errorf("list %s: %w", k.GroupKind, err)
		}
		if l.token == "" || (o.Limit > 0 && l.given >= o.Limit) {
			return ListResult{ResourceVersion: l.version, Items: l.given, Remaining: l.remaining}, nil
		}
	}
}

type lister struct {
	reader  *Reader
	kind    Kind
	opts    ListOptions
	fn      func([]byte) error
	token   string
	version string
	given   int

	remaining int

	last  string // the token before
	empty int    // pages in a row without an object
}

// endless reports a list whose pages lead nowhere: ErrUnbounded.
func (l *lister) endless() error {
	if l.token == "" {
		return nil
	}
	if l.token == l.last {
		return fmt.Errorf("%w: it gives the same continue token again", ErrUnbounded)
	}
	if l.empty > maxEmptyPages {
		return fmt.Errorf("%w: %d pages without an object", ErrUnbounded, l.empty)
	}
	l.last = l.token
	return nil
}

// page reads one page and retries transient errors.
func (l *lister) page(ctx context.Context) error {
	before := l.given
	err := retry.Do(ctx, func(failures int, err error) (time.Duration, bool) {
		last := l.opts.Since != "" || l.opts.Whole && l.given > before
		return Backoff(failures, err), failures < listAttempts && Transient(err) && !last
	}, func(ctx context.Context) error {
		next, err := l.tryPage(ctx, l.given-before)
		if err == nil {
			l.token = next
		}
		return err
	})
	l.empty++
	if l.given > before {
		l.empty = 0
	}
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return fmt.Errorf("%w: %w", ErrExpired, err)
	case l.opts.Exact != "" && l.token == "" && (apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err)):
		return fmt.Errorf("%w: %w", ErrExactRefused, err)
	}
	return err
}

// request makes the request for the next page.
func (l *lister) request() *rest.Request {
	limit := pageLimit
	if l.opts.Limit > 0 {
		limit = min(limit, l.opts.Limit)
	}
	req := l.reader.client.Get().AbsPath(l.kind.Path(l.opts.Namespace))
	if !l.opts.Whole {
		req = req.Param("limit", strconv.Itoa(limit))
	}
	if l.opts.Metadata {
		req = req.SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	}
	if l.opts.Name != "" {
		req = req.Param("fieldSelector", "metadata.name="+l.opts.Name)
	}
	if l.opts.Labels != "" {
		req = req.Param("labelSelector", l.opts.Labels)
	}
	switch {
	case l.token != "": // carries resourceVersion and match itself; giving them again is an error
		req = req.Param("continue", l.token)
	case l.opts.Since != "":
		req = req.Param("resourceVersion", l.opts.Since).Param("resourceVersionMatch", "NotOlderThan")
	case l.opts.Exact != "":
		req = req.Param("resourceVersion", l.opts.Exact).Param("resourceVersionMatch", "Exact")
	}
	return req
}

// giver returns the function that passes an object to the caller, with the kind and version that
// lists of core kinds leave out.
func (l *lister) giver() func(raw []byte) error {
	prefix := l.corePrefix()
	return func(raw []byte) error {
		if l.given >= maxItems {
			return fmt.Errorf("%w: a list has more than %d objects", ErrUnbounded, maxItems)
		}
		if prefix != nil {
			raw = append(bytes.Clone(prefix), raw[1:]...)
		}
		if err := l.fn(raw); err != nil {
			return &callbackError{err}
		}
		l.given++
		return nil
	}
}

// tryPage reads the next page without its first skip objects, which fn has seen in an earlier try.
// It returns the token of the page after it.
func (l *lister) tryPage(ctx context.Context, skip int) (string, error) {
	body, err := l.request().Stream(streamed(ctx))
	if err != nil {
		return "", err
	}
	defer body.Close()
	var head struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
		Remaining       int    `json:"remainingItemCount"`
	}
	give := l.giver()
	// A second try of an exact page returns the same objects in the same order. Another page may
	// not, so its objects wait until the page is complete.
	exact := l.opts.Exact != "" || l.token != "" || l.opts.Whole
	var waiting [][]byte
	size := 0
	err = readList(body, &head, func(raw []byte) error {
		switch {
		case !exact:
			if size += len(raw); size > maxWaiting {
				return fmt.Errorf("%w: a page has more than %d MiB", ErrUnbounded, maxWaiting>>20)
			}
			waiting = append(waiting, bytes.Clone(raw))
		case skip > 0:
			skip--
		default:
			return give(raw)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	for _, raw := range waiting {
		if err := give(raw); err != nil {
			return "", err
		}
	}
	l.version, l.remaining = head.ResourceVersion, head.Remaining
	return head.Continue, nil
}

// corePrefix returns the fields that a core object lacks in a list; nil for other objects.
func (l *lister) corePrefix() []byte {
	if l.kind.Group != "" || l.opts.Metadata {
		return nil
	}
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, l.kind.Kind, l.kind.Version)
}

// readList walks a List document without holding more than one object. The order of its fields is
// not fixed.
func readList(r io.Reader, head any, item func([]byte) error) error {
	bounded := &itemReader{from: r}
	bounded.next()
	dec := jsontext.NewDecoder(bounded)
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return errors.Join(errors.New("decode list: want an object"), err)
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return fmt.Errorf("decode list: %w", err)
		}
		switch name.String() {
		case "metadata":
			v, err := dec.ReadValue()
			if err != nil {
				return fmt.Errorf("decode list: %w", err)
			}
			if err := json.Unmarshal(v, head); err != nil {
				return fmt.Errorf("decode list metadata: %w", err)
			}
		case "items":
			if err := readItems(dec, bounded, item); err != nil {
				return err
			}
			bounded.next()
		default:
			if err := dec.SkipValue(); err != nil {
				return fmt.Errorf("decode list: %w", err)
			}
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return fmt.Errorf("decode list: %w", err)
	}
	return nil
}

func readItems(dec *jsontext.Decoder, bounded *itemReader, item func([]byte) error) error {
	if dec.PeekKind() == 'n' { // an empty typed list is null
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return fmt.Errorf("decode list items: %w", err)
	}
	for bounded.next(); dec.PeekKind() != ']'; bounded.next() {
		v, err := dec.ReadValue()
		if err != nil {
			return fmt.Errorf("decode list items: %w", err)
		}
		if v.Kind() != '{' {
			return errors.New("decode list items: want objects")
		}
		if err := item(v); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// callbackError marks an error of the caller's function: it is not retried.
type callbackError struct{ err error }

func (e *callbackError) Error() string { return e.err.Error() }
func (e *callbackError) Unwrap() error { return e.err }

// Transient reports whether the same request may succeed when it is sent again.
func Transient(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" && op.Timeout() {
		return true // its error may also be that of a deadline, which is that of the dialer
	}
	var cb *callbackError
	if errors.As(err, &cb) || errors.Is(err, ErrUnbounded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) {
		return true
	}
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return err != nil && !answered && isBroken(err)
}

// isBroken reports whether an error is that of a connection, or of an answer that broke off.
func isBroken(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		isSyntactic(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		strings.Contains(err.Error(), resetStream)
}

// resetStream is in the text of the error of an answer that a server broke off over HTTP/2. Its
// type is not ours to name: client-go may use that of net/http or that of x/net.
const resetStream = "stream error: stream ID"

// Unanswered reports whether an error says that an API server did not answer, so that it says
// nothing of the object that the server was asked for. It is false for nil.
func Unanswered(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return !answered && Transient(err)
}

// isSyntactic reports whether a document broke off, because the server died while it wrote.
func isSyntactic(err error) bool {
	var s *jsontext.SyntacticError
	return errors.As(err, &s)
}

// Backoff returns how long to wait after that many failures: the time that the server asks for,
// else 100 ms doubling to 5 s with jitter: many units may contend for one shared object.
func Backoff(failures int, err error) time.Duration {
	if s, ok := apierrors.SuggestsClientDelay(err); ok && s > 0 {
		return time.Duration(s) * time.Second
	}
	return retry.Backoff{First: 100 * time.Millisecond, Longest: 5 * time.Second,
		Jitter: true}.Wait(failures)
}

func getJSON(ctx context.Context, c *rest.RESTClient, path string, into any) error {
	raw, err := do(ctx, c.Get().AbsPath(path))
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}
