package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mgmtd/mgmtd/internal/service"
)

// confirm asks a question on the terminal. Only "yes" is consent.
func (p *program) confirm(ctx context.Context, question string) error {
	fmt.Fprintf(p.stderr, "%s Only \"yes\" goes on: ", question)
	type reply struct {
		line string
		err  error
	}
	replies := make(chan reply, 1)
	// An interrupt leaves this goroutine behind: a read from a terminal cannot be cancelled.
	go func() {
		line, err := bufio.NewReader(p.stdin).ReadString('\n')
		replies <- reply{line, err}
	}()
	select {
	case <-ctx.Done():
		p.say("")
		return context.Cause(ctx)
	case r := <-replies:
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return fmt.Errorf("read answer: %w", r.err)
		}
		if strings.TrimSpace(r.line) == "yes" {
			return nil
		}
		return &service.Error{Reason: service.ReasonUsage, Message: "not confirmed, nothing was changed"}
	}
}
