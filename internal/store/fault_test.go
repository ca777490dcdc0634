package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/bucket/buckettest"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/faultbucket"
)

// TestFaultBucketWithoutFaultsFulfilsTheContract: the layer itself fulfils the contract, so that
// what is found through it is the fault's, or the store's.
func TestFaultBucketWithoutFaultsFulfilsTheContract(t *testing.T) {
	open := func(t *testing.T) *faultbucket.Bucket {
		return faultbucket.New(directory.New(t.TempDir()),
			1)
	}
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t) })
	buckettest.RunConditional(t, func(t *testing.T) buckettest.ConditionalBucket { return open(t) })
	buckettest.RunRemover(t, func(t *testing.T) buckettest.RemoverBucket { return open(t) })
	buckettest.RunBatchRemover(t, func(t *testing.T) buckettest.BatchBucket { return open(t) })
}

// faulty is an encrypted store behind faults, and the same without them.
type faulty struct {
	*store.Store
	bucket *faultbucket.Bucket
	keys   *store.Keys
	direct *store.Store
	dir    *directory.Bucket
	rand   *rand.Rand
}

func newFaulty(t *testing.T, seed uint64) *faulty {
	t.Helper()
	root, keys := t.TempDir(), t.TempDir()
	made, err := store.Keygen(keys, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := store.LoadKeys(store.KeyOptions{
		Recipients: []string{made.Recipient}, IdentityFiles: []string{filepath.Join(keys,
			store.IdentityFile)}, SigningKeyFile: filepath.Join(keys, store.SigningFile),
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{dir: directory.New(root), keys: loaded, rand: rand.New(rand.NewPCG(seed, 3))}
	f.bucket = faultbucket.New(f.dir, seed)
	if f.direct, err = store.Open(t.Context(), store.Options{Bucket: f.dir, Keys: loaded,
		Create: true}); err != nil {
		t.Fatal(err)
	}
	if f.Store, err = store.Open(t.Context(), store.Options{Bucket: f.bucket,
		Keys: loaded}); err != nil {
		t.Fatal(err)
	}
	return f
}

// seeds runs a test with some seeds; all of them have to meet all faults of a list.
func seeds(t *testing.T, n uint64, faults []faultbucket.Fault, test func(t *testing.T, f *faulty)) {
	t.Helper()
	hits := map[faultbucket.Fault]int{}
	for seed := range n {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			f := newFaulty(t, seed)
			f.bucket.Set(0.3, faults...)
			test(t, f)
			for fault, n := range f.bucket.Hits() {
				hits[fault] += n
			}
		})
	}
	for _, fault := range faults {
		if hits[fault] == 0 {
			t.Errorf("%s was never met: %v", fault, hits)
		}
	}
}

// classified wants an error that says what it is: one of the classes of the faults, or damage.
func classified(t *testing.T, err error) {
	t.Helper()
	_, corrupt := errors.AsType[*store.CorruptError](err)
	// of a document of which not even the version can be read
	_, format := errors.AsType[*store.FormatError](err)
	var hinter interface{ Hint() string }
	switch {
	case !corrupt && !format && !errors.Is(err, store.ErrForeign) &&
		!errors.Is(err, store.ErrStoreMissing) && !errors.Is(err, store.ErrUnreachable) &&
		!errors.Is(err, store.ErrNoSpace) && !errors.Is(err, store.ErrNotFound):
		t.Errorf("an error without a class: %v", err)
	case !errors.As(err, &hinter) || hinter.Hint() == "":
		t.Errorf("an error without a hint: %v", err)
	}
}

func direct(t *testing.T, b bucket.Bucket, key string) ([]byte, error) {
	t.Helper()
	r, err := b.Get(t.Context(), key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// TestPutUnderFaultsIsWholeOrNotThere: what was put is there; what failed is there whole or not at
// all, and goes through when it is tried again.
func TestPutUnderFaultsIsWholeOrNotThere(t *testing.T) {
	faults := []faultbucket.Fault{faultbucket.Timeout, faultbucket.ServerError, faultbucket.SlowDown,
		faultbucket.NoSpace}
	seeds(t, 4, faults, func(t *testing.T, f *faulty) {
		for i := range 100 {
			key, data := fmt.Sprintf("x/%d", i), bytes.Repeat([]byte{byte(i)}, 5000)
			err := f.bucket.Put(t.Context(), key, data)
			got, readErr := direct(t, f.dir, key)
			switch {
			case readErr == nil && !bytes.Equal(got, data):
				t.Errorf("%s is there in part, after %v", key, err)
			case err == nil && readErr != nil:
				t.Errorf("put %s was well, and it is not there: %v", key, readErr)
			case err != nil:
				classified(t, err)
			}
			for err != nil && !errors.Is(err, bucket.ErrExists) {
				err = f.bucket.Put(t.Context(), key, data)
			}
			if got, err := direct(t, f.dir, key); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s after another try: %v", key, err)
			}
		}
	})
}

func entryOf(t *testing.T, i int) string {
	t.Helper()
	name, err := store.EntryName(store.Entry{Kind: "Secret", Namespace: "ns",
		Name: fmt.Sprint("s-", i)})
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// write makes a snapshot through the faults; each step may fail.
func (f *faulty) write(t *testing.T, number int) (store.Signed, string, error) {
	t.Helper()
	ctx, body := t.Context(), fmt.Sprintf(`{"number":%d,"text":"%x"}`, number, f.rand.Uint64())
	w, err := f.NewPackWriter(ctx, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	ref, err := w.Add(entryOf(t, number), []byte(body))
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return store.Signed{}, body, err
	}
	shard, err := f.PutShard(ctx, []byte(body))
	if err != nil {
		return store.Signed{}, body, err
	}
	tree, err := f.PutTree(ctx, store.Tree{Shards: []store.Key{shard.Key},
		Packs: []store.Key{ref.Key()}})
	if err != nil {
		return store.Signed{}, body, err
	}
	signed, err := f.PutEnvelope(ctx, store.Envelope{
		ID: store.NewSnapshotID(), Sequence: int64(number) + 1, Time: time.Unix(1e9+int64(number), 0),
		Source: store.Source{UID: "source"}, Tree: tree,
	})
	return signed, body, err
}

// TestSnapshotsUnderFaultsAreWholeOrAnError: one that was written is whole, whatever failed on the
// way to others; what is read is what was written, or an error; and a verify that finds nothing is
// right.
func TestSnapshotsUnderFaultsAreWholeOrAnError(t *testing.T) {
	seeds(t, 6, faultbucket.All, func(t *testing.T, f *faulty) {
		bodies := map[string]string{}
		for i := range 60 {
			f.bucket.Find() // mgmtd.json, for one
			signed, body, err := f.write(t, i)
			if err != nil {
				classified(t, err)
				continue
			}
			bodies[signed.Key().String()] = body
			report, err := f.direct.VerifyStructure(t.Context(), signed.Envelope, nil)
			if err != nil || len(report.Findings) > 0 {
				t.Fatalf("it was written, and is not whole: %v, %v", report.Findings, err)
			}
		}
		if len(bodies) == 0 {
			t.Fatal("no snapshot was written")
		}
		keys, err := f.direct.Snapshots(t.Context(), "source")
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			if _, err := f.Snapshots(t.Context(), "source"); err != nil {
				classified(t, err)
			}
			e, err := f.direct.GetEnvelope(t.Context(), key)
			if err != nil {
				t.Fatalf("an envelope is there in part: %v", err)
			}
			f.read(t, e, bodies[key.String()])
			if i%3 == 0 {
				f.readDamaged(t, e)
			}
		}
	})
}

// read reads a snapshot through the faults.
func (f *faulty) read(t *testing.T, e store.Signed, body string) {
	t.Helper()
	if got, err := f.GetEnvelope(t.Context(), e.Key()); err != nil {
		classified(t, err)
	} else if got.Trust == store.Trusted && got.Tree != e.Tree {
		t.Errorf("the envelope was read with another tree")
	}
	tree, err := f.GetTree(t.Context(), e.Tree)
	if err != nil {
		classified(t, err)
		return
	}
	for _, key := range tree.Shards {
		if got, err := f.GetShard(t.Context(), key); err != nil {
			classified(t, err)
		} else if body != "" && string(got) != body {
			t.Errorf("the shard was read as %q", got)
		}
	}
	for _, key := range tree.Packs {
		err := f.ReadPack(t.Context(), key, func(_ string, got []byte) error {
			if body != "" && string(got) != body {
				t.Errorf("the object was read as %q", got)
			}
			return nil
		})
		if err != nil {
			classified(t, err)
		}
	}
}

// readDamaged spoils a pack behind the store: a verify through the faults must not miss that.
func (f *faulty) readDamaged(t *testing.T, e store.Signed) {
	t.Helper()
	tree, err := f.direct.GetTree(t.Context(), e.Tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(f.dir.String(), string(tree.Packs[0])), 100); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		report, err := f.VerifyStructure(t.Context(), e.Envelope, nil)
		if err != nil {
			classified(t, err)
		} else if len(report.Findings) == 0 {
			t.Error("verify found nothing")
		}
	}
}

// TestOwnersUnderFaultsNeverGoBack: an ownership record that was written exists. One whose write
// failed may exist, and the writer can go on after it has read again.
func TestOwnersUnderFaultsNeverGoBack(t *testing.T) {
	seeds(t, 4, []faultbucket.Fault{
		faultbucket.Timeout, faultbucket.ServerError, faultbucket.SlowDown, faultbucket.NoSpace,
		faultbucket.Cut, faultbucket.Broken, faultbucket.Flipped, faultbucket.Vanished,
	}, func(t *testing.T, f *faulty) {
		var epoch int64
		for i := range 60 {
			var previous *store.SignedOwner
			o, err := f.GetOwner(t.Context(), "w")
			switch {
			case err == nil:
				if o.Trust == store.Trusted && o.Epoch < epoch {
					t.Fatalf("epoch %d was written, %d is read", epoch, o.Epoch)
				}
				if o.RequireTrusted() != nil {
					continue // the flipped bit is in the id of the key
				}
				previous = &o
			case !errors.Is(err, store.ErrNotFound):
				classified(t, err)
				continue
			}
			next := store.Owner{WorkloadID: "w", Workload: "ns/w", Owner: store.Source{UID: "m"}, Epoch: 1,
				Operation: fmt.Sprint(i), Time: time.Unix(1e9, 0)}
			if previous != nil {
				next.Epoch = previous.Epoch + 1
			}
			written, err := f.PutOwner(t.Context(), next, previous)
			if err != nil {
				if !errors.Is(err, store.ErrConflict) { // of a record that was not found
					classified(t, err)
				}
				continue
			}
			there, err := f.direct.GetOwner(t.Context(), "w")
			if err != nil || there.Epoch != next.Epoch || there.Operation != next.Operation ||
				written.Epoch != next.Epoch || next.Epoch <= epoch {
				t.Fatalf("wrote %+v, there is %+v, %v", next, there.Owner, err)
			}
			epoch = next.Epoch
		}
		if epoch < 5 {
			t.Errorf("only %d epochs were written", epoch)
		}
	})
}

// TestFaultsOfOperationRecords: what was recorded is read as it was, or not at all.
func TestFaultsOfOperationRecords(t *testing.T) {
	seeds(t, 4, faultbucket.All, func(t *testing.T, f *faulty) {
		for i := range int64(60) {
			text := fmt.Sprintf("record %d %x", i, f.rand.Uint64())
			r, err := f.SealOperationRecord("op", i+1, store.OperationHead{Time: time.Unix(1e9, 0)},
				[]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if err := f.PutOperationRecord(t.Context(), r); err != nil {
				classified(t, err)
				continue
			}
			if _, got, _, err := f.direct.GetOperationRecord(t.Context(), r.Key); err != nil ||
				string(got) != text {
				t.Fatalf("recorded, and there is %q, %v", got, err)
			}
			if _, err := f.OperationRecords(t.Context(), "op"); err != nil {
				classified(t, err)
			}
			if _, got, _, err := f.GetOperationRecord(t.Context(), r.Key); err == nil &&
				string(got) != text {
				t.Errorf("read %q, want %q", got, text)
			} else if _, untrusted := errors.AsType[*store.TrustError](err); err != nil && !untrusted {
				classified(t, err)
			}
		}
	})
}

// TestOpenUnderFaultsWritesNothingUnderAnotherID: no second store is made in the place of one that
// is there. A wrong bit can show it under another id; nothing is written under that.
func TestOpenUnderFaultsWritesNothingUnderAnotherID(t *testing.T) {
	faults := slices.DeleteFunc(slices.Clone(faultbucket.All),
		func(f faultbucket.Fault) bool { return f == faultbucket.NoSpace })
	opened, wrong := 0, 0
	seeds(t, 4, faults, func(t *testing.T, f *faulty) {
		f.bucket.Heal()
		if _, _, err := f.write(t, 0); err != nil {
			t.Fatal(err)
		}
		for try := range 200 {
			f.bucket.Heal()
			f.bucket.Set(0.5, faults...)
			if try%2 == 0 {
				f.bucket.Set(1, faultbucket.Flipped)
			}
			st, err := store.Open(t.Context(), store.Options{Bucket: f.bucket, Keys: f.keys, Create: true})
			if err != nil {
				classified(t, err)
				continue
			}
			if opened++; st.ID() == f.direct.ID() {
				continue
			}
			wrong++
			f.bucket.Heal()
			through := &faulty{Store: st, rand: f.rand}
			_, _, snapshotErr := through.write(t, 1)
			_, ownerErr := st.PutOwner(t.Context(), store.Owner{WorkloadID: "w", Workload: "ns/w",
				Owner: store.Source{UID: "m"}, Epoch: 1, Operation: "o", Time: time.Unix(1e9, 0)}, nil)
			r, err := st.SealOperationRecord("op", 1, store.OperationHead{Time: time.Unix(1e9, 0)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"snapshot": snapshotErr, "owner": ownerErr,
				"record": st.PutOperationRecord(t.Context(), r)} {
				if !errors.Is(err, store.ErrForeign) {
					t.Errorf("%s under a wrong id: %v, want ErrForeign", what, err)
				}
			}
		}
		if keys, err := f.direct.Snapshots(t.Context(), ""); err != nil || len(keys) != 1 {
			t.Errorf("there are %d snapshots, %v", len(keys), err)
		}
	})
	if opened == 0 || wrong == 0 {
		t.Errorf("it was opened %d times, %d of them with a wrong id", opened, wrong)
	}
}
