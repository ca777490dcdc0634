package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// mgmtctl shows a command as one would type it, runs it in the demo's folder,
// and shows what it prints, indented.
func (d *demo) mgmtctl(ctx context.Context, args ...string) error {
	d.printf("      $ mgmtctl %s\n", wrap(quoted(args), 108))
	for i, arg := range args {
		if file, ok := strings.CutPrefix(arg, "$(cat "); ok {
			data, err := os.ReadFile(filepath.Join(d.dir, strings.TrimSuffix(file, ")")))
			if err != nil {
				return fmt.Errorf("read key: %w", err)
			}
			args[i] = strings.TrimSpace(string(data))
		}
	}
	read, write := io.Pipe()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			d.printf("        | %s\n", lines.Text())
		}
		_, _ = io.Copy(io.Discard, read) // a line too long to show must not block the program
	}()
	cmd := exec.CommandContext(ctx, d.Mgmtctl, args...)
	cmd.Dir = d.dir
	// Its catalog goes into the demo's folder, not where the user has one.
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(d.dir, "state"))
	cmd.Stdout, cmd.Stderr = write, write
	// Ctrl-C is for the demo, which then stops mgmtctl in its own way.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 15 * time.Second
	err := cmd.Run()
	write.Close()
	<-shown
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return fmt.Errorf("run mgmtctl %s: it exited with code %d", strings.Join(args[:min(3, len(args))], " "), exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("run mgmtctl: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
}

func quoted(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		if out[i] = arg; strings.ContainsAny(arg, " $") {
			out[i] = `"` + arg + `"`
		}
	}
	return out
}

// wrap breaks a command into lines, each with a backslash but the last, and
// never between a flag and its value.
func wrap(args []string, width int) string {
	var text strings.Builder
	line := 0
	for i, arg := range args {
		next := len(arg)
		if strings.HasPrefix(arg, "--") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			next += 1 + len(args[i+1])
		}
		value := i > 0 && strings.HasPrefix(args[i-1], "--") && !strings.HasPrefix(arg, "--")
		switch {
		case i == 0:
		case line+1+next > width && !value:
			text.WriteString(" \\\n            ")
			line = 0
		default:
			text.WriteString(" ")
			line++
		}
		text.WriteString(arg)
		line += len(arg)
	}
	return text.String()
}

// sizeOf is the number of bytes in the files of a folder.
func sizeOf(dir string) (int64, error) {
	var size int64
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure store: %w", err)
	}
	return size, nil
}
