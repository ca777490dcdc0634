package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// limits of what is stored, in bytes. Writers stay within them, readers refuse what is beyond: they
// are part of the format. A Store has its own so that tests can reach them.
type limits struct {
	packTarget int64 // uncompressed tar after which a pack is cut
	maxObject  int64 // one object; etcd takes a tenth of that
	maxEntries int   // files in one pack
	maxPlain   int64 // uncompressed pack, shard or tree
	maxStored  int64 // the same as stored: what cannot be compressed grows a little
}

func formatLimits() limits {
	return limits{packTarget: 16 << 20, maxObject: 16 << 20, maxEntries: 1 << 15, maxPlain: 32 << 20,
		maxStored: 33 << 20}
}

// zstdWindow is the memory that a reader must have for decompression; part of the format.
const zstdWindow = 8 << 20

// newEncoder makes a compressor of packs; Reset gives it a destination. With less memory it would
// move its whole window at each block.
func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(zstdWindow), zstd.WithZeroFrames(true))
}

// encoders are those of whole documents. Each has megabytes of tables, which cost more to make than
// a small document to compress.
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

// sealer compresses, then encrypts unless the store is plain. Close ends the stream but leaves the
// destination open.
type sealer struct {
	zstd *zstd.Encoder
	age  io.WriteCloser // nil in a plain store
}

// uniqueFrame is a zstd frame that every reader passes over, with random bytes in it. So no two
// writes have one key, not even of the same bytes: a writer that found its key there already could
// rely on one that a prune, to which it is old and named by nothing, is about to delete.
func uniqueFrame() []byte {
	const magic, size = 0x184D2A50, 16
	frame := binary.LittleEndian.AppendUint32(nil, magic)
	frame = binary.LittleEndian.AppendUint32(frame, size)
	frame = append(frame, make([]byte, size)...)
	// never fails: crypto/rand ends the process when there is no randomness
	rand.Read(frame[len(frame)-size:])
	return frame
}

// newSealer begins a stream into dst; head comes before what is compressed. Trees are never
// encrypted: they hold hashes only, and "verify" without a key needs them.
func (s *Store) newSealer(dst io.Writer, enc *zstd.Encoder, encrypt bool, head []byte) (*sealer,
	error) {
	sl := &sealer{zstd: enc}
	if encrypt {
		w, err := s.keys.Encrypt(dst)
		if err != nil {
			return nil, err
		}
		sl.age, dst = w, w
	}
	if _, err := dst.Write(head); err != nil {
		return nil, err
	}
	enc.Reset(dst)
	return sl, nil
}

func (s *sealer) Write(p []byte) (int, error) { return s.zstd.Write(p) }

func (s *sealer) Close() error {
	if err := s.zstd.Close(); err != nil {
		return err
	}
	if s.age == nil {
		return nil
	}
	return s.age.Close()
}

// seal makes the stored bytes of a whole document and their key.
func (s *Store) seal(kind Kind, plain []byte) (Key, []byte, error) {
	if int64(len(plain)) > s.limits.maxPlain {
		return "", nil, fmt.Errorf("store %s: it has %d bytes, more than the %d of the format", kind,
			len(plain), s.limits.maxPlain)
	}
	enc := encoders.Get().(*zstd.Encoder)
	defer func() {
		enc.Reset(nil) // lets go of what it wrote to
		encoders.Put(enc)
	}()
	encrypt := s.Encrypted() && kind != KindTree
	var buf bytes.Buffer
	w, err := s.newSealer(&buf, enc, encrypt, uniqueFrame())
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", nil, fmt.Errorf("store %s: %w", kind, err)
	}
	return layout.KeyOf(kind, encrypt, buf.Bytes()), buf.Bytes(), nil
}

// unseal begins to read what getContent returned for key: decrypts if the key says so,
// decompresses, and bounds how much comes out. The caller closes it. *KeyError when no identity
// fits, damage when it is no age file.
func (s *Store) unseal(key Key, stored []byte) (io.ReadCloser, error) {
	return s.open(string(key), stored, key.Encrypted())
}

func (s *Store) open(key string, stored []byte, encrypted bool) (io.ReadCloser, error) {
	var r io.Reader = bytes.NewReader(stored)
	if encrypted {
		var err error
		if r, err = s.keys.Decrypt(key, r); err != nil {
			return nil, err
		}
	}
	return decompress(r, s.limits.maxPlain)
}

// decompress bounds memory by the window and the output by most, however small the input is.
func decompress(r io.Reader, most int64) (io.ReadCloser, error) {
	dec, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(uint64(max(most, zstdWindow))+1))
	if err != nil {
		return nil, bucket.Damage("decompress: " + err.Error())
	}
	return &plainReader{dec: dec, most: most}, nil
}

type plainReader struct {
	dec  *zstd.Decoder
	read int64
	most int64
}

// Read returns damage for all that is wrong with the stream, so that callers need not tell apart
// whose error it is.
func (p *plainReader) Read(b []byte) (int, error) {
	n, err := p.dec.Read(b)
	if p.read += int64(n); p.read > p.most {
		return 0, bucket.Damage(fmt.Sprintf("more than %d bytes when decompressed", p.most))
	}
	if err != nil && err != io.EOF {
		err = bucket.Damage("decompress: " + err.Error())
	}
	return n, err
}

func (p *plainReader) Close() error {
	p.dec.Close()
	return nil
}

// getPlain reads a whole shard or tree.
func (s *Store) getPlain(ctx context.Context, key Key, kind Kind) ([]byte, error) {
	stored, err := s.getContent(ctx, key, kind)
	if err != nil {
		return nil, err
	}
	r, err := s.unseal(key, stored)
	if err != nil {
		return nil, bucket.AsCorrupt(string(key), err)
	}
	defer r.Close()
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, bucket.AsCorrupt(string(key), err)
	}
	return plain, nil
}
