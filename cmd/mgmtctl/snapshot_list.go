package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func newSnapshotList(p *program) *cobra.Command {
	req := &mgmtv1.ListSnapshotsRequest{}
	cmd := &cobra.Command{
		Use:   "list [flags]",
		Short: "List the snapshots in the store",
		Long: `List the snapshots in the store, newest first, and the state of their signatures:
trusted, unknown-signer (signed by a key that is not trusted), unsigned, unchecked (no --trusted-key
was given) or damaged. VERIFIED is the level and the age of the last verification, or that it found
damage; it is untrusted when no trusted key signed that result.

Changes: nothing. It needs no identity.

Standalone it needs --store.

Exit codes: 0 listed, also when there is none; 1 other error; 2 usage; 10 store; 12 a trusted key
that is not one.`,
		Example: `  mgmtctl snapshot list --standalone --store /backup/mgmt --trusted-key signing.pub
  mgmtctl snapshot list -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runSnapshotList(ctx, p, c, req)
			})
		},
	}
	cmd.Flags().StringVar(&req.Source, "source", "", "list only snapshots of this source, by its "+
		"`NAME` or UID")
	cmd.Flags().StringVar(&req.Scope, "scope", "", "list only this `SCOPE`: whole, the name of a "+
		"schedule, or at least 8 digits of an ID in the list")
	addLocation(cmd, &req.Location)
	return cmd
}

func runSnapshotList(ctx context.Context, p *program, c *connection,
	req *mgmtv1.ListSnapshotsRequest) error {
	resp, err := c.snapshots.ListSnapshots(ctx, req)
	if err != nil {
		return err
	}
	if len(resp.GetSnapshots()) == 0 {
		p.say("no snapshots")
	}
	return p.print(resp, func(w io.Writer) { p.writeSnapshots(w, resp.GetSnapshots()) })
}

func (p *program) writeSnapshots(w io.Writer, snapshots []*mgmtv1.Snapshot) {
	t := newTable("ID", "SOURCE", "AGE", "UNITS", "OBJECTS", "MISSING", "STORED", "TRUST", "VERIFIED",
		"NOTES")
	for _, s := range snapshots {
		t.add(s.GetId(), sourceText(s), p.age(s.GetTime()), number(s.GetUnits()), number(s.GetObjects()),
			number(s.GetMissing()), size(s.GetStoredBytes()),
			trustWord(s.GetTrust()), p.verified(s.GetVerified()), snapshotNotes(s))
	}
	t.write(w)
}

// verified returns in short what verifications found of a snapshot; empty when there was none.
func (p *program) verified(v *mgmtv1.Verification) string {
	switch v.GetResult() {
	case mgmtv1.VerifyResult_VERIFY_RESULT_UNSPECIFIED:
		return ""
	case mgmtv1.VerifyResult_VERIFY_RESULT_OK:
		return word(v.GetLevel(), "VERIFY_LEVEL_") + " " + p.age(v.GetTime()) + " ago"
	default:
		return word(v.GetResult(), "VERIFY_RESULT_")
	}
}

// snapshotNotes returns in what respect a snapshot is incomplete.
func snapshotNotes(s *mgmtv1.Snapshot) string {
	var notes []string
	if s.GetPartial() {
		notes = append(notes, scopeNote(s))
	}
	if s.GetPinned() {
		notes = append(notes, "pinned")
	}
	if s.GetExpireTime().IsValid() {
		notes = append(notes, "retained until "+s.GetExpireTime().AsTime().Format(time.RFC3339))
	}
	if n := len(s.GetNotInCut()); n > 0 {
		notes = append(notes, count(n, "kind")+" not in the cut")
	}
	if s.GetTrust() == mgmtv1.Trust_TRUST_DAMAGED && s.GetTrustDetail() != "" {
		notes = append(notes, s.GetTrustDetail())
	}
	return strings.Join(notes, ", ")
}

// scopeNote names the scope of a partial snapshot as --scope takes it.
func scopeNote(s *mgmtv1.Snapshot) string {
	scope := s.GetScope()
	switch {
	case scope == "":
		return "partial"
	case s.GetSchedule() != "":
		return "partial (scope " + s.GetSchedule() + ")"
	default:
		return "partial (scope " + scope[:min(len(scope), 8)] + ")"
	}
}

// sourceText names the source of a snapshot. A damaged envelope has no name; its key has the UID.
func sourceText(s *mgmtv1.Snapshot) string {
	if s.GetSource() == "" {
		return s.GetSourceUid()
	}
	return s.GetSource()
}

// trustWord returns the state of a signature. TRUST_STRANGER is the older name of an unknown
// signer, which stays in the API for its clients.
func trustWord(t mgmtv1.Trust) string {
	if t == mgmtv1.Trust_TRUST_STRANGER {
		return "unknown-signer"
	}
	return word(t, "TRUST_")
}

func number(n int64) string { return strconv.FormatInt(n, 10) }
