// Package seal compresses and encrypts what a store holds, and is the reverse.
package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// zstdWindow is the memory that a reader must have for decompression; part of the format.
const zstdWindow = 8 << 20

// NewEncoder returns a compressor for streams such as packs; NewWriter gives it a destination. With
// less memory it would move its whole window at each block.
func NewEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(zstdWindow), zstd.WithZeroFrames(true))
}

// encoders are the compressors of whole documents. Each has megabytes of tables, which take longer
// to make than a small document takes to compress.
var encoders = sync.Pool{New: func() any {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(documentWindow), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
	if err != nil {
		panic(err) // the options are constant
	}
	return enc
}}

// documentWindow is enough for a shard, in which what repeats is near.
const documentWindow = 1 << 20

// Encrypter encrypts what is written; keys.Keys is one. A nil Encrypter means a plain store.
type Encrypter interface {
	Encrypt(dst io.Writer) (io.WriteCloser, error)
}

// Decrypter decrypts what is stored under key. A nil Decrypter means that it is plain.
type Decrypter interface {
	Decrypt(key string, src io.Reader) (io.Reader, error)
}

// Writer compresses, then encrypts unless the store is plain. Close ends the stream but leaves the
// destination open.
type Writer struct {
	zstd *zstd.Encoder
	age  io.WriteCloser // nil in a plain store
}

// UniqueFrame returns a zstd skippable frame with random bytes. It makes every key unique, even for
// equal content. Otherwise a writer could find its key in place and reference an old object that a
// concurrent prune, seeing no reference to it, is about to delete.
func UniqueFrame() []byte {
	const magic, size = 0x184D2A50, 16
	frame := binary.LittleEndian.AppendUint32(nil, magic)
	frame = binary.LittleEndian.AppendUint32(frame, size)
	frame = append(frame, make([]byte, size)...)
	// never fails: crypto/rand ends the process when there is no randomness
	rand.Read(frame[len(frame)-size:])
	return frame
}

// NewWriter begins a stream into dst with the encoder; head comes before what is compressed.
func NewWriter(dst io.Writer, enc *zstd.Encoder, to Encrypter, head []byte) (*Writer, error) {
	w := &Writer{zstd: enc}
	if to != nil {
		encrypted, err := to.Encrypt(dst)
		if err != nil {
			return nil, err
		}
		w.age, dst = encrypted, encrypted
	}
	if _, err := dst.Write(head); err != nil {
		return nil, err
	}
	enc.Reset(dst)
	return w, nil
}

// Write adds to the stream.
func (w *Writer) Write(p []byte) (int, error) { return w.zstd.Write(p) }

// Close ends the stream and leaves its destination open.
func (w *Writer) Close() error {
	if err := w.zstd.Close(); err != nil {
		return err
	}
	if w.age == nil {
		return nil
	}
	return w.age.Close()
}

// Document returns the stored bytes of a whole document.
func Document(plain []byte, to Encrypter) ([]byte, error) {
	enc := encoders.Get().(*zstd.Encoder)
	defer func() {
		enc.Reset(nil) // lets go of what it wrote to
		encoders.Put(enc)
	}()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, enc, to, UniqueFrame())
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Open returns a reader of what is stored under key: it decrypts, decompresses, and gives at most
// most bytes. The caller closes it. Errors are those of from, and bucket.DamageError.
func Open(key string, stored []byte, from Decrypter, most int64) (io.ReadCloser, error) {
	var r io.Reader = bytes.NewReader(stored)
	if from != nil {
		var err error
		if r, err = from.Decrypt(key, r); err != nil {
			return nil, err
		}
	}
	return Decompress(r, most)
}

// Decompress bounds its memory by the window and its output by most, however small the input is: a
// few bytes may decompress to gigabytes.
func Decompress(r io.Reader, most int64) (io.ReadCloser, error) {
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(uint64(max(most, zstdWindow))+1))
	if err != nil {
		return nil, bucket.DamageError("decompress: " + err.Error())
	}
	return &plainReader{dec: dec, most: most}, nil
}

type plainReader struct {
	dec  *zstd.Decoder
	read int64
	most int64
}

// Read returns bucket.DamageError for every error of the stream.
func (p *plainReader) Read(b []byte) (int, error) {
	n, err := p.dec.Read(b)
	if p.read += int64(n); p.read > p.most {
		return 0, bucket.DamageError(fmt.Sprintf("more than %d bytes when decompressed", p.most))
	}
	if err != nil && err != io.EOF {
		err = bucket.DamageError("decompress: " + err.Error())
	}
	return n, err
}

func (p *plainReader) Close() error {
	p.dec.Close()
	return nil
}
