// Package spill moves bytes out of memory into a temporary file that has no name and is encrypted.
package spill

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
)

// File is a temporary file. The system frees it when the File is collected, and after a crash: it
// has no name any more once it is made. What is in it is encrypted with a key that is in the memory
// of this process alone, since it may be from Secrets. Its methods may be called from several
// goroutines.
type File struct {
	file *os.File
	aead cipher.AEAD

	mu  sync.Mutex
	end int64
	// closed: it takes nothing more, since it could not be made, or a write failed. What it has can
	// still be read.
	closed bool
}

// Place is where a File has the bytes of one Add.
type Place struct {
	at   int64
	size int // as they are in the file
}

// New makes a File in the folder for temporary files (TMPDIR). When that is not possible, the File
// takes nothing.
func New() *File {
	f, err := newFile()
	if err != nil {
		return &File{closed: true}
	}
	return f
}

func newFile() (*File, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it would end the process rather than fail
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "mgmtd-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{file: f, aead: aead}, nil
}

// Add appends bytes. It reports false when the file does not take them: then it takes nothing more,
// and the caller keeps them in memory.
func (f *File) Add(body []byte) (p Place, added bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return p, false
	}
	sealed := f.aead.Seal(nil, f.nonce(f.end), body, nil)
	if _, err := f.file.WriteAt(sealed, f.end); err != nil {
		f.closed = true // so that no nonce is used twice either
		return p, false
	}
	p = Place{at: f.end, size: len(sealed)}
	f.end += int64(len(sealed))
	return p, true
}

// Read returns the bytes at a place.
func (f *File) Read(p Place) ([]byte, error) {
	sealed := make([]byte, p.size)
	if _, err := f.file.ReadAt(sealed, p.at); err != nil {
		return nil, fmt.Errorf("read a temporary file: %w", err)
	}
	body, err := f.aead.Open(sealed[:0], f.nonce(p.at), sealed, nil)
	if err != nil {
		return nil, errors.New("read a temporary file: it was changed on its disk")
	}
	return body, nil
}

// nonce is that of the bytes at an offset: nothing else is ever encrypted there.
func (f *File) nonce(at int64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, f.aead.NonceSize()-8), uint64(at))
}
