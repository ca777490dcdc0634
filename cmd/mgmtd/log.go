package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

// logs are where a daemon writes what happens, and who did what.
type logs struct {
	log   *slog.Logger
	audit *slog.Logger
	file  *auditFile // nil when the audit log is a part of the log
}

// newLogs makes the log as the flags ask for it. The audit log is a part of it, whatever its level
// is, unless openAudit gives it a file.
func newLogs(f flags, w io.Writer) (*logs, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, usage(fmt.Errorf("--log-level %q is none of debug, info, warn and error", f.logLevel))
	}
	o := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch f.logFormat {
	case "text":
		handler = slog.NewTextHandler(w, o)
	case "json":
		handler = slog.NewJSONHandler(w, o)
	default:
		return nil, usage(fmt.Errorf("--log-format %q is neither text nor json", f.logFormat))
	}
	return &logs{log: slog.New(handler), audit: slog.New(everyLevel{handler})}, nil
}

// everyLevel is a handler that takes every line. Its handler must not be one of a logger with
// attributes or groups.
type everyLevel struct{ slog.Handler }

func (everyLevel) Enabled(context.Context, slog.Level) bool { return true }

// openAudit writes the audit log into a file from now on, as JSON. Without a path nothing changes.
func (l *logs) openAudit(path string) error {
	if path == "" {
		return nil
	}
	file := &auditFile{log: l.log}
	if err := file.reopen(path); err != nil {
		return err
	}
	l.file, l.audit = file, slog.New(slog.NewJSONHandler(file, nil))
	return nil
}

// reopenAudit opens the file of the audit log again, at a path that may be another one. openAudit
// has given it a file before.
func (l *logs) reopenAudit(path string) error { return l.file.reopen(path) }

func (l *logs) close() error {
	if l.file == nil {
		return nil
	}
	l.file.mu.Lock()
	defer l.file.mu.Unlock()
	return l.file.file.Close()
}

// auditFile is a file to which lines are appended.
type auditFile struct {
	log *slog.Logger

	mu   sync.Mutex
	file *os.File
}

// reopen opens the file of a path, which is another file after a rotation. After an error the file
// in use stays.
func (a *auditFile) reopen(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open spec.auditLog: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file != nil {
		_ = a.file.Close()
	}
	a.file = f
	return nil
}

// Write appends a line. One that cannot be written goes to the log, so that it is somewhere: a
// request is not refused for it, since a full disk must not end a restore.
func (a *auditFile) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := a.file.Write(line)
	if err != nil {
		a.log.Error("write audit log", "path", a.file.Name(), "error", err, "line", string(line))
	}
	return n, err
}
