package main

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// defaultSnapshots is how many snapshots are listed without --limit.
const defaultSnapshots = 100

// snapshotListFlags are the flags of snapshot list besides those of the request.
type snapshotListFlags struct {
	limit int
	all   bool
	since since
}

func newSnapshotList(p *program) *cobra.Command {
	req := &mgmtv1.ListSnapshotsRequest{}
	f := &snapshotListFlags{}
	cmd := &cobra.Command{
		Use:   "list [flags]",
		Short: "List the snapshots in the store",
		Long: `List the snapshots in the store, newest first: 100 of them, or as many as --limit says, or
--all, or those --since a time. TRUST is the state of their signatures: trusted, unknown-signer
(signed by a key that is not trusted), limited (signed by a trusted key, outside of its limits),
unsigned, unchecked (no --trusted-key was given) or damaged. VERIFIED is the level and the age of
the last verification, or that it found damage; it is untrusted when no trusted key signed that
result.

Changes: nothing. It needs no identity.

Standalone it needs --store.

Exit codes: 0 listed, also when there is none; 1 other error; 2 usage; 10 store; 12 a trusted key
that is not one.`,
		Example: `  mgmtctl snapshot list --standalone --store /backup/mgmt --trusted-key signing.pub
  mgmtctl snapshot list --since 36h -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.all && cmd.Flags().Changed("limit") {
				return usageError(cmd, "--all and --limit exclude each other")
			}
			if f.limit < 1 {
				return usageError(cmd, "--limit %d lists nothing", f.limit)
			}
			if at := f.since.before(p.now()); !at.IsZero() {
				req.Since = timestamppb.New(at)
				f.all = f.all || !cmd.Flags().Changed("limit")
			}
			return p.withServer(cmd, []need{needStore}, func(ctx context.Context, c *connection) error {
				return runSnapshotList(ctx, p, c, req, *f)
			})
		},
	}
	cmd.Flags().StringVar(&req.Source, "source", "", "list only snapshots of this source, by its "+
		"`NAME` or UID")
	cmd.Flags().StringVar(&req.Scope, "scope", "", "list only this `SCOPE`: whole, the name of a "+
		"schedule, an operation, or at least 8 digits of an ID in the list")
	cmd.Flags().IntVar(&f.limit, "limit", defaultSnapshots, "list at most `N` snapshots")
	cmd.Flags().BoolVar(&f.all, "all", false, "list all snapshots")
	cmd.Flags().Var(&f.since, "since", "list all snapshots that are not older: a time, such as "+
		"2026-03-01T14:30:00Z, or an age, such as 36h")
	addLocation(cmd, &req.Location)
	return cmd
}

func runSnapshotList(ctx context.Context, p *program, c *connection,
	req *mgmtv1.ListSnapshotsRequest, f snapshotListFlags) error {
	resp, err := listSnapshots(ctx, c, req, f)
	if err != nil {
		return err
	}
	switch n := len(resp.GetSnapshots()); {
	case n == 0:
		p.say("no snapshots")
	case resp.GetNextPageToken() != "":
		p.say("these are the newest %d; --all lists the older ones, too", n)
	}
	return p.print(resp, func(w io.Writer) { p.writeSnapshots(w, resp.GetSnapshots()) })
}

// listSnapshots reads pages until there are as many snapshots as are wanted. The token of the
// result is that of the last page: there are more snapshots unless it is empty.
func listSnapshots(ctx context.Context, c *connection, req *mgmtv1.ListSnapshotsRequest,
	f snapshotListFlags) (*mgmtv1.ListSnapshotsResponse, error) {
	all := &mgmtv1.ListSnapshotsResponse{}
	for {
		if !f.all {
			req.PageSize = int32(f.limit - len(all.GetSnapshots()))
		}
		page, err := c.snapshots.ListSnapshots(ctx, req)
		if err != nil {
			return nil, err
		}
		all.Snapshots = append(all.Snapshots, page.GetSnapshots()...)
		all.NextPageToken = page.GetNextPageToken()
		if n := len(all.GetSnapshots()); !f.all && n > f.limit { // the server is older
			all.NextPageToken = all.GetSnapshots()[f.limit-1].GetKey()
			all.Snapshots = all.Snapshots[:f.limit]
		}
		req.PageToken = all.GetNextPageToken()
		if req.GetPageToken() == "" || !f.all && len(all.GetSnapshots()) == f.limit {
			return all, nil
		}
	}
}

func (p *program) writeSnapshots(w io.Writer, snapshots []*mgmtv1.Snapshot) {
	t := newTable("ID", "SOURCE", "AGE", "WORKLOAD CLUSTERS", "OBJECTS", "MISSING", "STORED", "TRUST",
		"VERIFIED", "NOTES")
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
	untrusted := s.GetTrust() == mgmtv1.Trust_TRUST_DAMAGED ||
		s.GetTrust() == mgmtv1.Trust_TRUST_LIMITED
	if untrusted && s.GetTrustDetail() != "" {
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
	case s.GetOperation() != "":
		return "partial (of " + s.GetOperation() + ")"
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
