package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// mgmtctl prints a command as an operator would type it, runs it in the demo's folder, and prints
// its output, indented.
func (d *demo) mgmtctl(ctx context.Context, args ...string) error {
	d.printf("      $ mgmtctl %s\n", wrap(args, 108))
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
	cmd.Env = os.Environ()
	if d.daemon != nil {
		cmd.Env = append(cmd.Env, "MGMTCTL_ADDRESS="+d.daemon.Address())
	}
	cmd.Stdout, cmd.Stderr = write, write
	// Ctrl-C is for the demo, which then stops mgmtctl in its own way.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 15 * time.Second
	err := cmd.Run()
	write.Close()
	<-shown
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil {
		return fmt.Errorf("run mgmtctl %s: it exited with code %d", strings.Join(args[:min(3, len(args))],
			" "), exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("run mgmtctl: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
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
