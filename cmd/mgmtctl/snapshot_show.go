package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotShow(p *program) *cobra.Command {
	req := &mgmtv1.GetSnapshotRequest{}
	cmd := &cobra.Command{
		Use:   "show ID|latest [flags]",
		Short: "Show a snapshot and, with an identity, what is in it",
		Long: `Show one snapshot. With --identity, or from a plain store, also its workload clusters
and what they need that was not captured, and of a partial snapshot what it was asked to hold. When
a --trusted-key is given, that part is read only from a snapshot that it signed. Recipients are
those whose identities open it, as fingerprints ("mgmtctl keygen check").

Changes: nothing.

Standalone it needs --store.

Exit codes: 0 shown; 1 other error, such as no such snapshot; 2 usage, such as an ID that fits
several; 10 store; 12 identity or signature.`,
		Example: `  mgmtctl snapshot show latest --standalone --store /backup/mgmt \
      --identity identity.txt
  mgmtctl snapshot show 1a2b -o yaml`,
		Args:              oneArg(snapshotArg),
		ValidArgsFunction: completeLatest,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id = args[0]
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runSnapshotShow(ctx, p, c, req)
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	return cmd
}

func runSnapshotShow(ctx context.Context, p *program, c *connection,
	req *mgmtv1.GetSnapshotRequest) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	resp, err := c.snapshots.GetSnapshot(ctx, req)
	if err != nil {
		return err
	}
	return p.print(resp, func(w io.Writer) {
		p.writeSnapshot(w, resp.GetSnapshot(), resp.GetSelection())
		writeUnits(w, resp.GetUnits())
	})
}

// writeSnapshot writes a snapshot, and what it was asked to hold, where that is known.
func (p *program) writeSnapshot(w io.Writer, s *mgmtv1.Snapshot, asked *mgmtv1.Selection) {
	trust := trustWord(s.GetTrust())
	if s.GetTrustDetail() != "" {
		trust += " (" + s.GetTrustDetail() + ")"
	}
	var l pairs
	l.add("id", s.GetId())
	l.add("source", s.GetSource())
	l.add("source uid", s.GetSourceUid())
	l.add("time", p.when(s.GetTime()))
	l.add("resource version", s.GetResourceVersion())
	l.add("sequence", number(s.GetSequence()))
	l.add("workload clusters", number(s.GetUnits()))
	l.add("objects", number(s.GetObjects()))
	l.add("missing", number(s.GetMissing()))
	l.add("stored", size(s.GetStoredBytes()))
	l.add("trust", trust)
	l.add("verified", p.verifiedWhen(s.GetVerified()))
	l.add("not in the cut", strings.Join(s.GetNotInCut(), ", "))
	if s.GetPartial() {
		l.add("partial", "only a selection was captured")
	}
	l.add("namespaces", strings.Join(asked.GetNamespaces(), ", "))
	l.add("selector", asked.GetSelector())
	l.add("scope", s.GetScope())
	l.add("schedule", s.GetSchedule())
	l.add("operation", s.GetOperation())
	l.add("recipients", strings.Join(s.GetRecipients(), ", "))
	if s.GetPinned() {
		l.add("pinned", yesNo(true))
	}
	if s.GetExpireTime().IsValid() {
		l.add("retained until", s.GetExpireTime().AsTime().Format(time.RFC3339))
	}
	l.add("key", s.GetKey())
	l.add("sha256", s.GetSha256())
	l.write(w)
}

// verifiedWhen returns in full what verifications found of a snapshot.
func (p *program) verifiedWhen(v *mgmtv1.Verification) string {
	switch v.GetResult() {
	case mgmtv1.VerifyResult_VERIFY_RESULT_UNSPECIFIED:
		return ""
	case mgmtv1.VerifyResult_VERIFY_RESULT_UNTRUSTED:
		return "untrusted (no trusted key signed the results in the store)"
	default:
		return word(v.GetResult(), "VERIFY_RESULT_") + " at level " +
			word(v.GetLevel(), "VERIFY_LEVEL_") + ", " + p.when(v.GetTime())
	}
}

func writeUnits(w io.Writer, units []*mgmtv1.UnitSummary) {
	if len(units) == 0 {
		return
	}
	t := newTable("WORKLOAD CLUSTER", "OBJECTS", "MACHINES", "PAUSED", "MISSING", "WORKLOAD ID")
	missing := newTable("WORKLOAD CLUSTER", "MISSING")
	for _, u := range units {
		t.add(summaryText(u), number(u.GetObjects()), number(u.GetMachines()), yesNo(u.GetPaused()),
			number(int64(len(u.GetMissing()))), u.GetWorkloadId())
		for _, ref := range u.GetMissing() {
			missing.add(summaryText(u), refText(ref))
		}
	}
	fmt.Fprintln(w)
	t.write(w)
	if len(missing.rows) > 1 {
		fmt.Fprintln(w)
		missing.write(w)
	}
}

// summaryText names a unit, or the shared objects of a namespace.
func summaryText(u *mgmtv1.UnitSummary) string {
	switch {
	case u.GetName() != "":
		return u.GetName()
	case u.GetSharedNamespace() != "":
		return "(shared in " + u.GetSharedNamespace() + ")"
	default:
		return "(cluster-scoped)"
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
