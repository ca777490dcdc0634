package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openPTY gives both ends of a terminal: what a person sees and types, and what a program has.
func openPTY(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

func echoes(t *testing.T, terminal *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// TestPassphraseIsNotShown types a passphrase once it is asked for, and interrupts instead.
func TestPassphraseIsNotShown(t *testing.T) {
	for _, interrupted := range []bool{false, true} {
		person, program := openPTY(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		type answer struct {
			line []byte
			err  error
		}
		answers := make(chan answer, 1)
		go func() {
			line, err := askHidden(ctx, program, "passphrase")
			answers <- answer{line, err}
		}()
		for echoes(t, program) {
			time.Sleep(time.Millisecond)
		}
		if interrupted {
			cancel(errInterrupted)
		} else if _, err := person.WriteString("correct horse\n"); err != nil {
			t.Fatal(err)
		}
		got := <-answers
		if interrupted && !errors.Is(got.err, errInterrupted) || !interrupted &&
			(got.err != nil || string(got.line) != "correct horse") {
			t.Errorf("interrupted %v: got %q, %v", interrupted, got.line, got.err)
		}
		if !echoes(t, program) {
			t.Errorf("interrupted %v: the terminal does not show what is typed any more", interrupted)
		}
		seen := make([]byte, 1000)
		n, err := person.Read(seen)
		if err != nil || !strings.HasPrefix(string(seen[:n]), "passphrase: ") ||
			strings.Contains(string(seen[:n]), "horse") {
			t.Errorf("interrupted %v: the terminal shows %q, %v", interrupted, seen[:n], err)
		}
	}
}
