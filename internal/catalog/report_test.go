package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// closedCatalog makes a catalog with a failed move that changed something, lets change write to it,
// and closes it.
func closedCatalog(t *testing.T, change func(*bolt.Tx, OperationID) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "catalog.db")
	c, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := newOperationOf(t, c, KindMove, Running)
	mustBegin(t, c, id)
	setState(t, c, id, Failed)
	if err := c.update(t.Context(), func(tx *bolt.Tx) error { return change(tx, id) }); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCheckOfAFileChangesNothing: not its bytes, its mode nor its folder, also where it is of an
// older version.
func TestCheckOfAFileChangesNothing(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]byte{"of this version": byte(newestSchema()),
		"of version 7": 7} {
		path := closedCatalog(t, func(tx *bolt.Tx, _ OperationID) error {
			if version == 7 {
				if err := tx.DeleteBucket(bucketOperationIndex); err != nil {
					return err
				}
			}
			return tx.Bucket(bucketMeta).Put(keySchema, []byte{0, 0, 0, version})
		})
		if err := os.Chmod(path, 0o444); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := CheckFile(t.Context(), path)
		if err != nil || len(r.Problems) > 0 || r.Operations != 1 || r.Schema != uint32(version) ||
			r.Size != int64(len(before)) || r.Unfinished != nil {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		after, err := os.ReadFile(path)
		if err != nil || string(after) != string(before) {
			t.Errorf("%s: the file was changed, %v", name, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o444 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
		list, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(list) != 1 {
			t.Errorf("%s: in its folder: %v, %v", name, list, err)
		}
	}
}

func TestCheckOfAFileFindsEveryKindOfDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]struct {
		do   func(tx *bolt.Tx, id OperationID) error
		want string
	}{
		"an operation is not in the index": {func(tx *bolt.Tx, id OperationID) error {
			return unindex(tx, id)
		}, "not in the index"},
		"the index has one in another state": {func(tx *bolt.Tx, id OperationID) error {
			return tx.Bucket(bucketOperationIndex).Put(append(indexPrefix(KindMove, string(Running)),
				id...), nil)
		}, "the operation is move/failed"},
		"the index has one too many": {func(tx *bolt.Tx, _ OperationID) error {
			return tx.Bucket(bucketOperationIndex).Put([]byte("move/failed/aa0000000001"), nil)
		}, "there is no such operation"},
		"a record that is not JSON": {func(tx *bolt.Tx, id OperationID) error {
			return tx.Bucket(bucketOperations).Bucket([]byte(id)).Put(keyRecord, []byte("{"))
		}, "damaged record"},
		"a record of another operation": {func(tx *bolt.Tx, id OperationID) error {
			b := tx.Bucket(bucketOperations).Bucket([]byte(id))
			return b.Put(keyRecord, []byte(strings.Replace(string(b.Get(keyRecord)), string(id),
				"aa0000000001", 1)))
		}, "stored under"},
		"a snapshot that is not JSON": {func(tx *bolt.Tx, _ OperationID) error {
			return tx.Bucket(bucketSnapshots).Put([]byte("x"), []byte("{"))
		}, "snapshot"},
		"a bucket is missing": {func(tx *bolt.Tx, _ OperationID) error {
			return tx.DeleteBucket(bucketEpochs)
		}, "bucket epochs is missing"},
	} {
		r, err := CheckFile(t.Context(), closedCatalog(t, damage.do))
		if err != nil || !strings.Contains(errors.Join(r.Problems...).Error(), damage.want) {
			t.Errorf("%s: %v, %v; want %q", name, r.Problems, err, damage.want)
		}
		if named := len(r.Unfinished) == 1; named != (!strings.Contains(name, "record that is not")) {
			t.Errorf("%s: unfinished %v", name, r.Unfinished)
		}
	}
}

// TestCheckOfAFileSurvivesEveryDamagedPage: whatever a page holds, the check ends and does not end
// the process.
func TestCheckOfAFileSurvivesEveryDamagedPage(t *testing.T) {
	t.Parallel()
	path := closedCatalog(t, func(tx *bolt.Tx, _ OperationID) error {
		b, err := tx.Bucket(bucketSnapshotState).CreateBucket([]byte("s/source"))
		if err != nil {
			return err
		}
		for _, name := range [][]byte{[]byte("parts"), []byte("keys")} {
			if _, err := b.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	})
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page, found := os.Getpagesize(), 0
	for p := range len(good) / page {
		for _, mask := range []byte{0x5a, 0xff} {
			bad := append([]byte(nil), good...)
			for i := p*page + 8; i < (p+1)*page; i += 3 {
				bad[i] ^= mask
			}
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := CheckFile(t.Context(), path)
			if err != nil {
				t.Errorf("page %d: %v", p, err)
			}
			if len(r.Problems) > 0 {
				found++
			}
		}
	}
	if found == 0 {
		t.Error("no damage was found at all")
	}
	for name, content := range map[string][]byte{"cut short": good[:len(good)-page],
		"text": []byte("not a database"), "empty": nil} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := CheckFile(t.Context(), path); err != nil || len(r.Problems) == 0 {
			t.Errorf("%s: %v, %v", name, r.Problems, err)
		}
	}
}

// TestCheckOfAFileFindsDamagedFreePages, and still says what else the file has.
func TestCheckOfAFileFindsDamagedFreePages(t *testing.T) {
	t.Parallel()
	path := closedCatalog(t, func(*bolt.Tx, OperationID) error { return nil })
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const flags, count, freelist = 8, 10, 0x10 // of bbolt's pages: internal/common/page.go
	for name, change := range map[string]func(page []byte){
		"no page is free": func(page []byte) { page[count], page[count+1] = 0, 0 },
		"no list":         func(page []byte) { page[flags] = 0xff },
	} {
		bad := bytes.Clone(good)
		for at := 0; at < len(bad); at += os.Getpagesize() {
			if binary.LittleEndian.Uint16(bad[at+flags:]) == freelist {
				change(bad[at:])
			}
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := CheckFile(t.Context(), path)
		if err != nil || len(r.Problems) == 0 || r.Operations != 1 || len(r.Unfinished) != 1 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestCheckOfAFileOfALaterVersionSaysSo and does not call it damaged.
func TestCheckOfAFileOfALaterVersionSaysSo(t *testing.T) {
	path := closedCatalog(t, func(tx *bolt.Tx, _ OperationID) error {
		return tx.Bucket(bucketMeta).Put(keySchema, []byte{0, 0, 0, byte(newestSchema()) + 1})
	})
	r, err := CheckFile(t.Context(), path)
	if future, ok := errors.AsType[*FutureSchemaError](err); !ok || future.Known != newestSchema() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestCheckOfAFileThatIsOpenElsewhereNamesTheHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.db")
	openPath(t, path)
	locked, ok := errors.AsType[*LockedError](func() error {
		_, err := CheckFile(t.Context(), path)
		return err
	}())
	if !ok || locked.PID != os.Getpid() {
		t.Errorf("locked by %+v", locked)
	}
	if _, err := CheckFile(t.Context(), path+"x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
}

// TestAFolderIsNoDamagedCatalog: the hint about damage says to move the file away.
func TestAFolderIsNoDamagedCatalog(t *testing.T) {
	if r, err := CheckFile(t.Context(), t.TempDir()); err == nil || len(r.Problems) > 0 {
		t.Errorf("problems %v, %v", r.Problems, err)
	}
}
