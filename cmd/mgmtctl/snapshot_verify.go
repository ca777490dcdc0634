package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// verifyLevel is how much a verification checks.
type verifyLevel string

const (
	levelStructure verifyLevel = "structure"
	levelSample    verifyLevel = "sample"
	levelFull      verifyLevel = "full"
)

var verifyLevels = map[verifyLevel]mgmtv1.VerifyLevel{
	levelStructure: mgmtv1.VerifyLevel_VERIFY_LEVEL_STRUCTURE,
	levelSample:    mgmtv1.VerifyLevel_VERIFY_LEVEL_SAMPLE,
	levelFull:      mgmtv1.VerifyLevel_VERIFY_LEVEL_FULL,
}

// request returns the level of the API.
func (l verifyLevel) request() mgmtv1.VerifyLevel { return verifyLevels[l] }

func newSnapshotVerify(p *program) *cobra.Command {
	req := &mgmtv1.VerifySnapshotRequest{}
	level := levelStructure
	cmd := &cobra.Command{
		Use:   "verify ID|latest [flags]",
		Short: "Check that a snapshot is whole",
		Long: `Verify that a snapshot in the store is whole. Levels:

  structure   every key that the snapshot names is there, and its bytes match their hash; needs
              no identity
  sample      every index opens, and in some packs all objects are what the index says; needs
              --identity. --percent chooses the packs at random, --subset N/T by their hash: T runs
              with N from 1 to T read all of them
  full        structure, and every object is what its index says: bytes, owners and edges; needs
              --identity

Every level also checks the signature of the envelope against --trusted-key, and whether other
snapshots of the source are missing: the parent, which may have been deleted (info, see operation
watch), and later ones that the catalog has (a warning).

Where the storage retains the snapshot (Object Lock), the result has until when it retains
everything that the snapshot needs; less than was asked for is a warning.

Changes: writes the signed result to the store, where "snapshot list" shows it; --no-record leaves
it out. The same result is recorded once a day.
Does not change: the snapshot.

Standalone it needs --store, and --identity for the levels that say so (not for a plain store).
Without --signing-key (or --plain) the result is not recorded. A store that refuses the record is a
warning.

Exit codes: 0 whole; 1 other error, such as no such snapshot; 2 usage; 3 not whole: the findings say
what is missing or damaged; 10 store; 11 catalog locked; 12 signature, trusted key or identity;
130 interrupted.`,
		Example: `  mgmtctl snapshot verify latest --standalone --store /backup/mgmt \
      --trusted-key signing.pub
  mgmtctl snapshot verify latest --standalone --store /backup/mgmt --signing-key signing.key
  mgmtctl snapshot verify 1a2b3c4d5e6f --level full --identity identity.txt
  mgmtctl snapshot verify latest --level sample --subset 3/7 --identity identity.txt`,
		Args:              oneArg(snapshotArg),
		ValidArgsFunction: completeLatest,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Id, req.Level = args[0], level.request()
			needs := []need{needStore}
			if level != levelStructure {
				needs = append(needs, needIdentity)
			}
			return p.withServer(cmd, needs, func(ctx context.Context, c *connection) error {
				return runSnapshotVerify(ctx, p, c, req)
			})
		},
	}
	addSource(cmd, &req.Source)
	addScope(cmd, &req.Scope)
	addLocation(cmd, &req.Location)
	cmd.Flags().Var(newEnum(&level, levelStructure, levelSample, levelFull), "level",
		"how deep to verify: structure, sample or full")
	cmd.Flags().Int32Var(&req.Percent, "percent", 0, "how much of the packs a sample reads, `N` "+
		"percent (default 10)")
	cmd.Flags().Var((*subsetFlag)(req), "subset", "read the part `N/T` of the packs in a sample, such "+
		"as 3/7, instead of a percentage")
	cmd.Flags().BoolVar(&req.NoRecord, "no-record", false, "do not record the result in the store")
	_ = cmd.RegisterFlagCompletionFunc("subset", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("level", cobra.FixedCompletions([]string{string(levelStructure),
		string(levelSample), string(levelFull)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// subsetFlag is the flag --subset of a request.
type subsetFlag mgmtv1.VerifySnapshotRequest

// Set implements pflag.Value.
func (f *subsetFlag) Set(text string) error {
	s, err := store.ParseSubset(text)
	f.Subset, f.Subsets = int32(s.Part), int32(s.Of)
	return err
}

// String implements pflag.Value.
func (f *subsetFlag) String() string {
	return store.Subset{Part: int(f.Subset), Of: int(f.Subsets)}.String()
}

// Type implements pflag.Value.
func (f *subsetFlag) Type() string { return "N/T" }

func runSnapshotVerify(ctx context.Context, p *program, c *connection,
	req *mgmtv1.VerifySnapshotRequest) error {
	var err error
	if req.Identity, err = p.readIdentity(ctx); err != nil {
		return err
	}
	return p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
		resp, err := c.snapshots.VerifySnapshot(ctx, req)
		return resp.GetOperation(), err
	})
}
