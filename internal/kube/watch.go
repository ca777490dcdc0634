package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mgmtd/mgmtd/internal/retry"
)

// ErrUnproven means that the server did not prove in time that all changes were sent: some may be
// missing. LIST instead.
var ErrUnproven = errors.New("not proven to be up to date")

var errQuiet = errors.New("the watch sent no event")

const (
	// watchSeconds is how long one request watches. The API server sends a bookmark two seconds
	// before that ends, so one comes after one to two; without a timeout it is a minute
	// (k8s.io/apiserver storage/cacher, nextBookmarkTime).
	watchSeconds = 3
	watchLimit   = 12 * time.Second
)

// Changes calls fn for each change to the objects of a kind after resourceVersion from, up to and
// including to, oldest first: with the bytes of the object after the change, or, when it was
// deleted, with its last state. Changes returns when the server has proven that no change is
// missing, which takes up to two seconds; that no event arrives proves nothing. Bytes are valid
// during the call. Objects have apiVersion and kind, core ones too. Changes only reads and may run
// any number of times. Errors: ErrExpired when the server no longer has from, ErrUnproven, also
// when the credentials may not watch the kind, API errors, what fn returns. After an error it is
// not known which changes fn has seen.
func (r *Reader) Changes(ctx context.Context, k Kind, from, to string,
	fn func(deleted bool, raw []byte) error) error {
	w := watcher{reader: r, kind: k, fn: fn, seconds: watchSeconds}
	var err error
	if w.at, err = ParseVersion(from); err == nil {
		w.to, err = ParseVersion(to)
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w: %w", k.GroupKind, ErrUnproven, err)
	}
	if w.at > w.to {
		return fmt.Errorf("watch %s: %w: it is at %d already, so it does not count with the others",
			k.GroupKind, ErrUnproven, w.at)
	}
	if w.at == w.to {
		return nil
	}
	// A consistent LIST makes the server's watch cache of this kind catch up. The cache of a kind
	// without writes is otherwise as old as the last progress notification of etcd.
	if _, err := r.List(ctx, k, ListOptions{Limit: 1, Metadata: true},
		func([]byte) error { return nil }); err != nil {
		return err
	}
	begin := time.Now()
	// Not retry.Do: each request continues where the last one ended, and most end without an
	// error.
	for attempt := 1; w.at < w.to; attempt++ {
		before := w.at
		request, cancel := context.WithTimeout(ctx, watchLimit)
		err := w.once(request)
		cancel()
		if err == nil && w.at == before && attempt > 1 {
			err = errQuiet // the server ends requests at once
		}
		switch {
		case err == nil:
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			return fmt.Errorf("watch %s: %w: %w", k.GroupKind, ErrExpired, err)
		case apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err): // it may be listed
			return fmt.Errorf("watch %s: %w: %w", k.GroupKind, ErrUnproven, withoutWords(err))
		case !errors.Is(err, errQuiet) && !Transient(err):
			return fmt.Errorf("watch %s: %w", k.GroupKind, withoutWords(err))
		default:
			if err := retry.Sleep(ctx, Backoff(min(attempt, 4), err)); err != nil {
				return err
			}
		}
		if w.at < w.to && time.Since(begin) > watchLimit {
			return fmt.Errorf("watch %s: %w: it is at %d, wanted is %d", k.GroupKind, ErrUnproven, w.at,
				w.to)
		}
	}
	return nil
}

// ParseVersion parses a resourceVersion as a number. Kubernetes promises since 1.35 (KEP 5504)
// that the versions of one API server can be compared as numbers; those from etcd always could.
func ParseVersion(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("resourceVersion %.40q is not a number", v)
	}
	return n, nil
}

// watcher watches a kind from one resourceVersion to another.
type watcher struct {
	reader *Reader
	kind   Kind
	// namespace, labels and name pick what is watched; those that are empty do not.
	namespace, labels, name string
	fn                      func(deleted bool, raw []byte) error
	at, to                  uint64 // fn has seen all changes up to at
	seconds                 int    // of one request
}

// once watches until fn has seen all changes or the request ends, which is no error.
func (w *watcher) once(ctx context.Context) error {
	request := w.reader.client.Get().AbsPath(w.kind.Path(w.namespace)).
		Param("watch", "true").Param("resourceVersion", strconv.FormatUint(w.at, 10)).
		Param("allowWatchBookmarks", "true").Param("timeoutSeconds", strconv.Itoa(w.seconds))
	if w.labels != "" {
		request = request.Param("labelSelector", w.labels)
	}
	if w.name != "" {
		request = request.Param("fieldSelector", "metadata.name="+w.name)
	}
	body, err := request.Stream(streamed(ctx))
	if err != nil {
		return err
	}
	defer body.Close()
	return w.read(ctx, body)
}

func (w *watcher) read(ctx context.Context, body io.Reader) error {
	bounded := &itemReader{from: body}
	dec := jsontext.NewDecoder(bounded, jsontext.AllowDuplicateNames(true))
	for w.at < w.to {
		bounded.next()
		event, err := dec.ReadValue()
		if errors.Is(err, ErrUnbounded) {
			return err
		}
		if err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return context.Cause(ctx)
			}
			// The server ended it, or the connection broke: the next request continues after the last
			// event.
			return nil //nolint:nilerr // as above
		}
		if err := w.event(event); err != nil {
			return err
		}
	}
	return nil
}

// event handles one event of a watch.
func (w *watcher) event(event []byte) error {
	kind, object := gjson.GetBytes(event, "type").String(), gjson.GetBytes(event, "object")
	if kind == "ERROR" {
		var status metav1.Status
		if err := json.Unmarshal([]byte(object.Raw), &status); err != nil {
			return fmt.Errorf("decode watch error: %w", err)
		}
		return apierrors.FromObject(&status)
	}
	at, err := ParseVersion(object.Get("metadata.resourceVersion").String())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	switch kind {
	case "ADDED", "MODIFIED", "DELETED":
		if at > w.to {
			break // after the end of the range: it proves that all changes before it were sent
		}
		if err := w.fn(kind == "DELETED", []byte(object.Raw)); err != nil {
			return &callbackError{err}
		}
	case "BOOKMARK":
	default:
		return fmt.Errorf("%w: unknown event %.20q", ErrUnproven, kind)
	}
	w.at = max(w.at, at)
	return nil
}
