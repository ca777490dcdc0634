package main

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/mgmtd/mgmtd/internal/service"
)

// identityFlags name the identities that open snapshots.
type identityFlags struct {
	files          []string
	passphraseFile string
}

func (f *identityFlags) register(server, global *pflag.FlagSet) {
	server.StringArrayVar(&f.files, "identity", nil, "age identity `FILE` that opens snapshots "+
		"(repeatable); it is sent with the request and never stored")
	global.StringVar(&f.passphraseFile, "passphrase-file", "", "`FILE` whose first line is the "+
		"passphrase of a protected identity, for scripts (default: ask on the terminal)")
}

// readIdentity reads the files of --identity as one, else the identity of the file of --config;
// without either it returns nil. The bytes go into requests only. Passphrases are used here and
// sent nowhere.
func (p *program) readIdentity(ctx context.Context) ([]byte, error) {
	files := p.identity.files
	if p.standalone.plain && !p.typed("identity") {
		files = nil // nothing is encrypted
	}
	if len(files) == 0 && p.config != nil && p.config.IdentityFile != "" {
		files = []string{p.config.IdentityFile}
	}
	return service.ReadIdentities(files, func(file string) ([]byte, error) {
		return p.passphrase(ctx, "passphrase of "+file)
	}, p.sayExposed)
}

// sayExposed warns of a key that others can read.
func (p *program) sayExposed(file, who string) {
	p.say("warning: %s: %s: make it readable by its owner alone (chmod 600), and make a new key if "+
		"somebody may have read it", file, who)
}

// newPassphrase reads a passphrase that protects a new identity; on the terminal it has to be typed
// twice.
func (p *program) newPassphrase(ctx context.Context) ([]byte, error) {
	first, err := p.passphrase(ctx, "passphrase for the new identity")
	if err != nil || p.identity.passphraseFile != "" {
		return first, err
	}
	again, err := p.passphrase(ctx, "the same again")
	if err == nil && !bytes.Equal(first, again) {
		err = &service.Error{Reason: service.ReasonUsage, Message: "the two passphrases differ, no " +
			"key was made"}
	}
	return first, err
}

// passphrase reads a passphrase from --passphrase-file, or asks for it on the terminal without
// showing it.
func (p *program) passphrase(ctx context.Context, what string) ([]byte, error) {
	var line []byte
	if file := p.identity.passphraseFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, &service.Error{Reason: service.ReasonIdentity,
				Message: fmt.Sprintf("read --passphrase-file: %v", err)}
		}
		line, _, _ = bytes.Cut(text, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
	} else {
		var terminal *os.File
		if p.terminal != nil {
			terminal = p.terminal()
		}
		if terminal == nil {
			return nil, &service.Error{Reason: service.ReasonIdentity, Message: what +
				": there is no terminal to ask on", Hint: "give a file that holds it with --passphrase-file"}
		}
		var err error
		if line, err = askHidden(ctx, terminal, what); err != nil {
			return nil, err
		}
	}
	if len(line) == 0 {
		return nil, &service.Error{Reason: service.ReasonIdentity, Message: what + ": it is empty"}
	}
	return line, nil
}

// openTerminal opens the controlling terminal, wherever stdin and stderr go; it returns nil when
// there is none.
func openTerminal() *os.File {
	if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		return f
	}
	if isTerminal(os.Stdin) {
		return os.Stdin
	}
	return nil
}

// askHidden asks on a terminal without echo, which an interrupt turns on again.
func askHidden(ctx context.Context, f *os.File, what string) ([]byte, error) {
	fd := int(f.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	fmt.Fprintf(f, "%s: ", what)
	defer fmt.Fprintln(f)
	type reply struct {
		line []byte
		err  error
	}
	replies := make(chan reply, 1)
	// An interrupt leaves this goroutine behind: a read from a terminal cannot be cancelled.
	go func() {
		line, err := term.ReadPassword(fd)
		replies <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		_ = term.Restore(fd, state) // an error cannot be handled here
		return nil, context.Cause(ctx)
	case r := <-replies:
		if r.err != nil {
			return nil, fmt.Errorf("%s: %w", what, r.err)
		}
		return r.line, nil
	}
}
