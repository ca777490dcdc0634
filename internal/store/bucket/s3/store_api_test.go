//go:build api

package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/location"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
	"github.com/mgmtd/mgmtd/internal/task"
)

func TestAPIS3ErrorsOfServersHaveClassAndHint(t *testing.T) {
	onEach(t, s3test.Options{TLS: true},
		s3RealErrors)
}

func s3RealErrors(t *testing.T, s *s3test.Server) {
	s.NewBucket(t, "errors")
	file := func(key, secret string) string {
		f := filepath.Join(t.TempDir(), "credentials")
		if err := os.WriteFile(f, []byte("[default]\naws_access_key_id="+key+"\naws_secret_access_key="+
			secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for name, tt := range map[string]struct {
		options s3.Options
		class   error
		hint    string
	}{
		"wrong secret": {s3.Options{Bucket: "errors", CAFile: s.CAFile,
			CredentialsFile: file(s.AccessKey, fakeSecret)}, bucket.ErrDenied,
			"does not take these credentials"},
		"wrong key": {s3.Options{Bucket: "errors", CAFile: s.CAFile,
			CredentialsFile: file(fakeKey, fakeSecret)}, bucket.ErrDenied,
			"does not take these credentials"},
		"wrong region": {s3.Options{Bucket: "errors", CAFile: s.CAFile,
			CredentialsFile: s.CredentialsFile, Region: "eu-south-7"}, bucket.ErrUnreachable, "region="},
		"no bucket": {s3.Options{Bucket: "none", CAFile: s.CAFile,
			CredentialsFile: s.CredentialsFile}, bucket.ErrStoreMissing, "create the bucket"},
		"authority not known": {s3.Options{Bucket: "errors", CredentialsFile: s.CredentialsFile},
			bucket.ErrUnreachable, "ca-file="},
	} {
		tt.options.Endpoint = s.Endpoint
		b := newS3(t, tt.options)
		_, getErr := b.Get(t.Context(), "key")
		errs := map[string]error{"get": getErr, "put": b.Put(t.Context(), "key", nil),
			"list": b.List(t.Context(), "", func(bucket.Info) error { return nil })}
		for call, err := range errs {
			if !errors.Is(err, tt.class) || !strings.Contains(hintOf(err), tt.hint) {
				t.Errorf("%s: %s: %v (hint %q), want %v and hint %q", name, call, err, hintOf(err), tt.class,
					tt.hint)
			}
			wantNoSecret(t, err)
		}
		_, err := store.Open(t.Context(), store.Options{Bucket: b, Plain: true, Create: true})
		if !errors.Is(err, tt.class) {
			t.Errorf("%s: open: %v, want %v", name, err, tt.class)
		}
	}
}

// TestAPIS3ListsMoreThanOnePage: a list that is longer than a page, with a page that fails at
// first, is whole and in order.
func TestAPIS3ListsMoreThanOnePage(t *testing.T) { onEach(t, s3test.Options{}, s3LongList) }

func s3LongList(t *testing.T, s *s3test.Server) {
	p := newProxy(t, s)
	b, direct := p.bucket(t, "long")
	var want []string
	var g task.Group
	g.SetLimit(16)
	for i := range 2300 {
		key := fmt.Sprintf("packs/%02x/%05d", i%7, i)
		if i%3 == 0 {
			// sorts before what is in the folder of the same name
			key = fmt.Sprintf("packs/%02x-%05d/x", i%7, i)
		}
		want = append(want, key)
		g.Go(func() error { return direct.Put(t.Context(), key, []byte("x")) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	var pages atomic.Int32
	p.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("list-type") == "" {
			return false
		}
		if pages.Add(1)%2 == 0 { // every second one fails
			p.hits.Add(1)
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		return false
	})
	var got []string
	err := b.List(t.Context(), "packs/", func(i bucket.Info) error {
		got = append(got, i.Key)
		return nil
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("list: %d keys, want %d, equal %v, %v", len(got), len(want), slices.Equal(got, want),
			err)
	}
	p.wantHits(t, 2)
}

// TestAPIS3HoldsAWholeStore: several processes create a store at once, and it is written, read and
// owned as one in a directory.
func TestAPIS3HoldsAWholeStore(t *testing.T) { onEach(t, s3test.Options{}, s3Store) }

func s3Store(t *testing.T, server *s3test.Server) {
	server.NewBucket(t, "store")
	server.Setenv(t)
	dir := t.TempDir()
	g, err := store.Keygen(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	keys, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{g.Recipient}, IdentityFiles: []string{filepath.Join(dir,
			store.IdentityFile)}, SigningKeyFile: filepath.Join(dir, store.SigningFile),
	})
	if err != nil {
		t.Fatal(err)
	}
	var ids sync.Map
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			b, err := location.Open(server.URL("store", "prod/a"))
			if err != nil {
				t.Error(err)
				return
			}
			s, err := store.Open(t.Context(), store.Options{Bucket: b, Keys: keys, Create: true})
			if err != nil {
				t.Error(err)
				return
			}
			ids.Store(s.ID(), s)
		})
	}
	wg.Wait()
	var s *store.Store
	n := 0
	ids.Range(func(_, v any) bool {
		n++
		s, _ = v.(*store.Store)
		return true
	})
	if n != 1 {
		t.Fatalf("%d stores were made", n)
	}
	shard, err := s.PutShard(t.Context(), []byte(`{"unit":"fleet/alpha"}`))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := s.GetShard(t.Context(), shard.Key); err != nil ||
		string(text) != `{"unit":"fleet/alpha"}` {
		t.Errorf("shard %q, %v", text, err)
	}
	if err := s.CanFence(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner := store.Owner{WorkloadID: "w1", Workload: "fleet/alpha", Owner: store.Source{UID: "uid-a",
		Name: "a"}, Epoch: 1, Operation: "op", Time: time.Now()}
	first, err := s.PutOwner(t.Context(), owner, nil)
	if err != nil {
		t.Fatal(err)
	}
	owner.Epoch, owner.Owner.UID = 2, "uid-b"
	if _, err := s.PutOwner(t.Context(), owner, &first); err != nil {
		t.Fatal(err)
	}
	owner.Epoch = 3
	if _, err := s.PutOwner(t.Context(), owner, &first); !errors.Is(err, bucket.ErrConflict) {
		t.Errorf("hand over what was handed over: %v, want ErrConflict", err)
	}
	if got, err := s.GetOwner(t.Context(), "w1"); err != nil || got.Epoch != 2 ||
		got.Trust != store.Trusted {
		t.Errorf("owner %+v, %v", got, err)
	}
	head := store.OperationHead{Host: "a", Time: time.Unix(1e9, 0).UTC(), Kind: "move"}
	var sealed [2]store.OperationRecord
	for i := range sealed {
		if sealed[i], err = s.SealOperationRecord("op", 1, head, []byte("text")); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a second time, after a lost answer, is no error
		if err := s.PutOperationRecord(t.Context(), sealed[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutOperationRecord(t.Context(), sealed[1]); !errors.Is(err, bucket.ErrExists) {
		t.Errorf("the record of another host: %v, want ErrExists", err)
	}
	records, err := s.OperationRecords(t.Context(), "op")
	if err != nil || len(records) != 1 {
		t.Fatalf("records %v, %v", records, err)
	}
	if got, text, _, err := s.GetOperationRecord(t.Context(), records[0]); err != nil ||
		string(text) != "text" || got != head {
		t.Errorf("record %+v %q, %v", got, text, err)
	}
	if got, err := s.GetOperationHead(t.Context(), records[0]); err != nil || got != head {
		t.Errorf("head %+v, %v", got, err)
	}
}
