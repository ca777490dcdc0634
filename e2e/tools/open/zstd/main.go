// Command zstd decompresses as "zstd -dc [FILE...]" does, and does nothing else: the tests type the
// commands of docs/format.md on machines that have no zstd. No module has the original program, but
// this one has the original library in C (github.com/DataDog/zstd), and shares no code with the
// product, which uses another one.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/DataDog/zstd"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "-dc" {
		fmt.Fprintln(os.Stderr, "usage: zstd -dc [FILE...]")
		os.Exit(2)
	}
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "zstd:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	if len(files) == 0 {
		return decompress("stdin", os.Stdin)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = decompress(name, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func decompress(name string, in io.Reader) error {
	b := bufio.NewReader(in)
	if err := skip(b); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r := zstd.NewReader(b)
	defer r.Close()
	if _, err := io.Copy(os.Stdout, r); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// skip passes over skippable frames in front (RFC 8878, section 3.1.2), as the original program
// does; the reader of this library takes one for the end.
func skip(b *bufio.Reader) error {
	for {
		head, err := b.Peek(8)
		if err != nil || binary.LittleEndian.Uint32(head)&^0xf != 0x184d2a50 {
			return nil //nolint:nilerr // what is too short for a frame is for the reader to tell
		}
		if _, err := io.CopyN(io.Discard, b, 8+int64(binary.LittleEndian.Uint32(head[4:]))); err != nil {
			return fmt.Errorf("skip a frame: %w", err)
		}
	}
}
