package catalog

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// wordUnreleased is the word of the index for a restore that has succeeded and whose workload
// clusters still wait for their release.
const wordUnreleased = "unreleased"

// unfinishedWords are the words of the index under which an operation is that may still run, by
// kind. Prunes ask for them before each removal, and so does every start: neither may decode the
// whole history.
var unfinishedWords = map[Kind][]string{
	KindSnapshot: {string(Planned), string(Running)},
	KindVerify:   {string(Planned), string(Running)},
	KindPrune:    {string(Planned), string(Running)},
	KindCopy:     {string(Planned), string(Running)},
	KindRestore: {string(Planned), string(Running), string(Stopped), string(Failed),
		string(NeedsIdentity), wordUnreleased},
	KindMove: {string(Planned), string(Running), string(Stopped), string(Failed),
		string(NeedsIdentity), wordUnreleased},
}

// indexWord returns the word under which the index has the operation: its state, or wordUnreleased.
func (op Operation) indexWord() string {
	if op.State == Succeeded && op.Unreleased {
		return wordUnreleased
	}
	return string(op.State)
}

// indexPrefix begins the keys of all operations of a kind under a word.
func indexPrefix(kind Kind, word string) []byte { return fmt.Appendf(nil, "%s/%s/", kind, word) }

func (op Operation) indexKey() []byte {
	return append(indexPrefix(op.Kind, op.indexWord()), op.ID...)
}

// indexPrefixes returns the prefixes of what a filter picks; none when it picks everything.
func (f OperationFilter) indexPrefixes() [][]byte {
	if len(f.Kinds) == 0 && len(f.States) == 0 {
		return nil
	}
	kinds, states := f.Kinds, f.States
	if len(kinds) == 0 {
		kinds = allKinds
	}
	if len(states) == 0 {
		states = allStates
	}
	var prefixes [][]byte
	for _, kind := range kinds {
		for _, state := range states {
			prefixes = append(prefixes, indexPrefix(kind, string(state)))
			if state == Succeeded {
				prefixes = append(prefixes, indexPrefix(kind, wordUnreleased))
			}
		}
	}
	return prefixes
}

// allPrefixes returns the prefixes of all operations of some kinds.
func allPrefixes(kinds ...Kind) [][]byte { return OperationFilter{Kinds: kinds}.indexPrefixes() }

// unfinishedPrefixes returns the prefixes of unfinished operations of some kinds.
func unfinishedPrefixes(kinds ...Kind) (prefixes [][]byte) {
	for _, kind := range kinds {
		for _, word := range unfinishedWords[kind] {
			prefixes = append(prefixes, indexPrefix(kind, word))
		}
	}
	return prefixes
}

// newestBefore returns the ids of at most limit operations under the prefixes, newest first, that
// are older than before; all of them when before is empty. Without prefixes it reads the operations
// themselves.
func newestBefore(tx *bolt.Tx, prefixes [][]byte, before OperationID, limit int) []OperationID {
	if len(prefixes) == 0 {
		all := &idCursor{Cursor: tx.Bucket(bucketOperations).Cursor()}
		all.seek(before)
		return merge([]*idCursor{all}, limit)
	}
	cursors := make([]*idCursor, 0, len(prefixes))
	for _, prefix := range prefixes {
		c := &idCursor{Cursor: tx.Bucket(bucketOperationIndex).Cursor(), prefix: prefix}
		c.seek(before)
		cursors = append(cursors, c)
	}
	return merge(cursors, limit)
}

// merge takes the newest ids of all cursors, which are each sorted.
func merge(cursors []*idCursor, limit int) (ids []OperationID) {
	for len(ids) < limit {
		newest := slices.MaxFunc(cursors, func(a, b *idCursor) int { return cmp.Compare(a.id, b.id) })
		if newest.id == "" {
			break
		}
		ids = append(ids, newest.id)
		newest.take(newest.Prev())
	}
	return ids
}

// idCursor reads ids backwards, from keys that have one prefix.
type idCursor struct {
	*bolt.Cursor
	prefix []byte
	id     OperationID // empty at the end
}

// seek goes to the newest id that is older than before, or to the newest of all.
func (c *idCursor) seek(before OperationID) {
	after := append(bytes.Clone(c.prefix), before...)
	if before == "" {
		after = append(after, 0xff) // no id has it
	}
	if k, _ := c.Seek(after); k == nil {
		c.take(c.Last())
		return
	}
	c.take(c.Prev())
}

func (c *idCursor) take(k, _ []byte) {
	id, ok := bytes.CutPrefix(k, c.prefix)
	if c.id = OperationID(id); !ok {
		c.id = ""
	}
}

// reindex moves the operation to its place in the index.
func (o *opTx) reindex() error {
	key := o.op.indexKey()
	if o.indexed != nil && !bytes.Equal(o.indexed, key) {
		if err := o.tx.Bucket(bucketOperationIndex).Delete(o.indexed); err != nil {
			return err
		}
	}
	return o.tx.Bucket(bucketOperationIndex).Put(key, []byte{})
}

// unindex removes an operation from the index whatever its record says, which may be damaged.
func unindex(tx *bolt.Tx, id OperationID) error {
	for _, prefix := range (OperationFilter{Kinds: allKinds}).indexPrefixes() {
		if err := tx.Bucket(bucketOperationIndex).Delete(append(prefix, id...)); err != nil {
			return err
		}
	}
	return nil
}

// indexOperations makes the index. Version 7 and before had an index of running operations only. It
// leaves out a damaged record, which Check reports.
func indexOperations(tx *bolt.Tx) error {
	index, err := tx.CreateBucketIfNotExists(bucketOperationIndex)
	if err != nil {
		return err
	}
	operations := tx.Bucket(bucketOperations)
	err = operations.ForEachBucket(func(k []byte) error {
		op, err := decodeOperation(operations.Bucket(k).Get(keyRecord))
		if err != nil || string(op.ID) != string(k) {
			return nil
		}
		return index.Put(op.indexKey(), []byte{})
	})
	if err != nil {
		return err
	}
	if tx.Bucket(bucketRunning) == nil {
		return nil
	}
	return tx.DeleteBucket(bucketRunning)
}

// checkIndex compares the index with the operations.
func checkIndex(tx *bolt.Tx, report func(error)) {
	index, operations := tx.Bucket(bucketOperationIndex), tx.Bucket(bucketOperations)
	report(index.ForEach(func(k, _ []byte) error {
		id := k[bytes.LastIndexByte(k, '/')+1:]
		b := operations.Bucket(id)
		if b == nil {
			report(fmt.Errorf("index of operations: %s: there is no such operation", k))
			return nil
		}
		op, err := decodeOperation(b.Get(keyRecord))
		if err == nil && !bytes.Equal(op.indexKey(), k) { // the check of operations reports the other one
			report(fmt.Errorf("index of operations: %s: the operation is %s", k, op.indexKey()))
		}
		return nil
	}))
}
