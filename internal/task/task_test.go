package task

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// secret stands for what a program read.
const secret = "s3cr3t"

type quoting struct{ text string }

func (q quoting) Error() string { return "cannot read " + q.text }

// TestPanicIsAnErrorWithoutContents: the error says what the runtime says, and where; of a value
// of the program it names the type only.
func TestPanicIsAnErrorWithoutContents(t *testing.T) {
	index := 3
	none := map[bool]map[string]string{}[true]
	for name, tt := range map[string]struct {
		panics func() error
		want   string
	}{
		"runtime": {func() error { _ = []string{secret}[index]; return nil },
			"index out of range [3] with length 1"},
		"nil map":   {func() error { none[secret] = secret; return nil }, "nil map"},
		"text":      {func() error { panic("cannot read " + secret) }, "a value of type string"},
		"error":     {func() error { panic(quoting{secret}) }, "a value of type task.quoting"},
		"type":      {func() error { var v any = secret; _ = v.(int); return nil }, "is string, not int"},
		"called in": {func() error { _ = strings.Repeat(secret, -index); return nil }, "a value of type"},
	} {
		err := Call(tt.panics)
		p, ok := errors.AsType[*PanicError](err)
		if !ok {
			t.Errorf("%s: error %v", name, err)
			continue
		}
		if !strings.Contains(p.Text, tt.want) || !strings.HasPrefix(p.Place, "internal/task/task_test.go:") {
			t.Errorf("%s: %q at %s, want %q here", name, p.Text, p.Place, tt.want)
		}
		if !strings.Contains(p.Stack, "task_test.go") ||
			strings.Contains(p.Error()+p.Hint()+p.Stack, secret) {
			t.Errorf("%s: %v\n%s", name, p, p.Stack)
		}
	}
	failed := errors.New("failed")
	if err := Call(func() error { return failed }); err != failed {
		t.Errorf("error %v", err)
	}
}

// TestPanicInAGroupIsItsError: the others end by their context, and Wait returns.
func TestPanicInAGroupIsItsError(t *testing.T) {
	withContext, ctx := WithContext(t.Context())
	for name, g := range map[string]*Group{"context": withContext, "zero": {}} {
		g.SetLimit(2)
		g.Go(func() error { panic(secret) })
		g.Go(func() error {
			if name == "context" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		})
		if _, ok := errors.AsType[*PanicError](g.Wait()); !ok {
			t.Errorf("%s: %v", name, g.Wait())
		}
	}
}
