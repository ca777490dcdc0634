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
)

// ErrUnproven says that the server did not show in time that nothing is left to come: what was
// given may not be all. LIST instead.
var ErrUnproven = errors.New("not proven to be up to date")

var errQuiet = errors.New("nothing came")

const (
	// watchSeconds is how long one request watches. The API server sends a bookmark two seconds
	// before that ends, so one comes after one to two; without a timeout it is a minute
	// (k8s.io/apiserver storage/cacher, nextBookmarkTime).
	watchSeconds = 3
	watchLimit   = 12 * time.Second
)

// Changes gives what became of the objects of a kind after resourceVersion from, up to and
// including to: the bytes of each as they were after a change, oldest change first, and what is
// deleted as it last was. It ends when the server has proven that nothing is left to come, which
// takes up to two seconds; that no event comes proves nothing. Bytes are valid during the call.
// Objects come with apiVersion and kind, core ones too. It reads only and may run any number of
// times. Errors: ErrExpired when the server does not remember from, ErrUnproven, API errors, what
// fn returns; after any of them it is not known which changes were given.
func (r *Reader) Changes(ctx context.Context, k Kind, from, to string,
	fn func(deleted bool, raw []byte) error) error {
	w := watcher{reader: r, kind: k, fn: fn}
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
	// A consistent LIST makes the server's cache of this kind catch up. That of a quiet kind is
	// otherwise as old as the last progress that etcd told of.
	if _, err := r.List(ctx, k, ListOptions{Limit: 1, Metadata: true},
		func([]byte) error { return nil }); err != nil {
		return err
	}
	begin := time.Now()
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
		case !errors.Is(err, errQuiet) && !Transient(err):
			return fmt.Errorf("watch %s: %w", k.GroupKind, err)
		default:
			if err := Sleep(ctx, Backoff(min(attempt, 4), err)); err != nil {
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

// ParseVersion reads a resourceVersion as the number that it is. That versions of one API server
// can be compared so is promised since Kubernetes 1.35 (KEP 5504), and has always been true of
// etcd's.
func ParseVersion(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("resourceVersion %.40q is not a number", v)
	}
	return n, nil
}

// watcher goes from one version to another.
type watcher struct {
	reader *Reader
	kind   Kind
	fn     func(bool, []byte) error
	at, to uint64 // everything up to at was given
}

// once watches until all is given or the request ends, which is no error.
func (w *watcher) once(ctx context.Context) error {
	body, err := w.reader.client.Get().AbsPath(w.kind.Path("")).
		Param("watch", "true").Param("resourceVersion", strconv.FormatUint(w.at, 10)).
		Param("allowWatchBookmarks", "true").Param("timeoutSeconds", strconv.Itoa(watchSeconds)).Stream(
		ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	return w.read(ctx, body)
}

func (w *watcher) read(ctx context.Context, body io.Reader) error {
	dec := jsontext.NewDecoder(body, jsontext.AllowDuplicateNames(true))
	for w.at < w.to {
		event, err := dec.ReadValue()
		if err != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return context.Cause(ctx)
			}
			return nil //nolint:nilerr // the server ended it, or the connection broke: the next request goes on from the last event
		}
		if err := w.take(event); err != nil {
			return err
		}
	}
	return nil
}

func (w *watcher) take(event []byte) error {
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
			break // of the next time; and that it came says that all before it did
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
