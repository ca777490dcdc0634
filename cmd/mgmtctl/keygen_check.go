package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newKeygenCheck(p *program) *cobra.Command {
	req := &mgmtv1.CheckKeysRequest{}
	cmd := &cobra.Command{
		Use:   "check [ID|latest] [flags]",
		Short: "Check that an identity opens the newest snapshots",
		Long: `Check before an outage that the keys which a restore needs are the right ones. It takes the
newest snapshot of each source and scope, or the one that is named:

- It decrypts the beginning of one part with the identity.
- It checks that a trusted key signed the snapshot.
- Where recipients are known (--recipient, or the configuration), it checks that the identity
  belongs to one of them, so that it will open the next snapshots, too.

Identities and recipients are shown as fingerprints: the first 16 hex digits of the SHA-256 of the
recipient (age1...). A snapshot lists those that it is encrypted to.

Changes: nothing. The identity is in memory for this call only. It does not read the rest of a
snapshot; "mgmtctl snapshot verify --level full" does.

Standalone it needs --store and --identity (not for a plain store).

Exit codes: 0 the keys open all of them; 1 other error, such as no snapshot; 2 usage; 3 a finding of
severity error: the next snapshots are encrypted to others, or a snapshot is damaged; 10 store; 12
an identity that is missing or does not open a snapshot, or a signature that is not trusted.`,
		Example: `  mgmtctl keygen check --identity keys/identity.txt
  mgmtctl keygen check --standalone --store /backup/mgmt --identity identity.txt \
      --trusted-key signing.pub --recipient "$(cat recipient.txt)"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(cmd, "takes one snapshot, got also %q", args[1])
			}
			return nil
		},
		ValidArgsFunction: p.completeSnapshot,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				req.Id = args[0]
			}
			if req.GetScope() != "" && req.GetId() == "" {
				return usageError(cmd, "--scope is given without a snapshot: is it \"latest\"?")
			}
			return p.withServer(cmd, []need{needStore, needIdentity}, func(ctx context.Context,
				c *connection) error {
				return runKeygenCheck(ctx, p, c, req)
			})
		},
	}
	cmd.Annotations = map[string]string{reachesServer: "yes"}
	cmd.Flags().StringVar(&req.Source, "source", "", "only snapshots of this source, by its `NAME` "+
		"or UID (default all)")
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	return cmd
}

func runKeygenCheck(ctx context.Context, p *program, c *connection,
	req *mgmtv1.CheckKeysRequest) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	resp, err := c.stores.CheckKeys(ctx, req)
	if err != nil {
		return err
	}
	code := service.ExitDone
	for _, f := range resp.GetFindings() {
		p.completeHint(f)
		if f.GetSeverity() < mgmtv1.Severity_SEVERITY_ERROR {
			continue
		}
		switch object.Code(f.GetCode()) {
		case object.CodeIdentityWrong, object.CodeSignature:
			code = service.ExitKeys
		default:
			code = max(code, service.ExitFindings)
		}
	}
	if err := p.print(resp, func(w io.Writer) { p.writeKeyCheck(w, resp) }); err != nil {
		return err
	}
	if code != service.ExitDone {
		return exit(code)
	}
	return nil
}

func (p *program) writeKeyCheck(w io.Writer, resp *mgmtv1.CheckKeysResponse) {
	var l pairs
	l.add("encrypted", yesNo(resp.GetEncrypted()))
	l.add("identity", strings.Join(resp.GetIdentities(), ", "))
	if resp.GetEncrypted() {
		l.add("next recipients", cmp.Or(strings.Join(resp.GetRecipients(), ", "), "not known here"))
	}
	l.write(w)
	t := newTable("ID", "SOURCE", "SCOPE", "AGE", "OPENS", "TRUST", "RECIPIENTS")
	for _, c := range resp.GetSnapshots() {
		s := c.GetSnapshot()
		t.add(s.GetId(), sourceText(s), scopeText(&mgmtv1.StoreScope{Scope: s.GetScope(),
			Schedule: s.GetSchedule()}), p.age(s.GetTime()), yesNo(c.GetOpens()), trustWord(s.GetTrust()),
			strings.Join(s.GetRecipients(), ", "))
	}
	if len(t.rows) > 1 {
		fmt.Fprintln(w)
		t.write(w)
	}
	if len(resp.GetFindings()) > 0 {
		fmt.Fprintln(w)
		writeFindings(w, resp.GetFindings())
	}
}
