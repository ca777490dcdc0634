package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newOperationWatch(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "watch ID|latest",
		Short: "Print the history of an operation, and follow it while it runs",
		Long: `Print the history of an operation from its beginning, and follow it until its run
ends. When it has ended already, only its history is printed. With -o json or yaml the result is
printed at the end: the operation and all its events.

Changes: nothing. Interrupting this command does not interrupt the operation.

Exit codes: those of the operation when it has ended: 0 all done, 3 findings and nothing changed,
4 work is left, and so on; 1 other error, such as no such operation; 2 usage; 11 catalog locked;
130 interrupted.`,
		Example: `  mgmtctl operation watch latest
  mgmtctl operation watch 1a2b --standalone -o json`,
		Args:              oneArg(operationArg),
		ValidArgsFunction: p.completeOperations,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withServer(cmd, nil, func(ctx context.Context, c *connection) error {
				return runOperationWatch(ctx, p, c, args[0])
			})
		},
	}
}

// operationDocument is the result for machines.
type operationDocument struct {
	Operation json.RawMessage   `json:"operation"`
	Events    []json.RawMessage `json:"events"`
}

func runOperationWatch(ctx context.Context, p *program, c *connection, id string) error {
	// The whole id is used: "latest" may name another operation by the end.
	resp, err := c.operations.GetOperation(ctx, &mgmtv1.GetOperationRequest{Id: id})
	if err != nil {
		return err
	}
	p.operation = resp.GetOperation()
	var events []*mgmtv1.Event
	progress, silence := p.newProgress(), p.listen(ctx, c, p.operation.GetId())
	o, err := p.follow(ctx, c, p.operation.GetId(), func(e *mgmtv1.Event) {
		silence.note(e)
		if e.GetType() == mgmtv1.EventType_EVENT_TYPE_PROGRESS {
			progress.show(e)
			return
		}
		if p.format != formatTable {
			events = append(events, e)
			return
		}
		fmt.Fprintf(p.stdout, "%s  %s\n", e.GetTime().AsTime().UTC().Format(time.RFC3339), eventText(e))
	})
	silence.stop()
	progress.end()
	if err != nil {
		return err
	}
	if p.format != formatTable {
		document := operationDocument{}
		if document.Operation, err = rawJSON(o.operation); err != nil {
			return fmt.Errorf("write operation: %w", err)
		}
		if document.Events, err = rawList(events); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		if err := p.print(document, func(io.Writer) {}); err != nil {
			return err
		}
	}
	return p.conclude(o)
}
