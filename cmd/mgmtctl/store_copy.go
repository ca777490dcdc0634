package main

import (
	"context"

	"github.com/spf13/cobra"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// kindCopy is the kind of the operation.
const kindCopy = "copy"

// needsOfCopy has the signing key, because a copy has signed records of its own, and needs no
// recipient: nothing is encrypted.
var needsOfCopy = []need{needStore, needSigningKey}

func newStoreCopy(p *program) *cobra.Command {
	req := &mgmtv1.CopyStoreRequest{}
	to := &p.standalone.copyTo
	cmd := &cobra.Command{
		Use:   "copy [--to URL | --to-location NAME] [flags]",
		Short: "Copy the snapshots of a store to another place",
		Long: `Copy the snapshots that a copy of a store lacks, byte for byte, with their pins and the results
of verifies. The first run makes the copy, in an empty place. Only what a trusted key signed is
copied, and all bytes are compared with their names on the way. The keys that read the store read
the copy: nothing is decrypted, so that no identity is needed.

A run may be interrupted: the next one continues. A snapshot that a prune removed from the copy is
not copied again; a copy is pruned by rules of its own. With --last only the newest snapshots of
each source and scope are copied, and later runs do not copy those that are left out.

Through a daemon the places are storage locations of its config. Without --to-location it is the one
that copyTo of the location names; the daemon copies to that one by itself, too.

Changes: writes to the copy; at the end a run removes its own record there.
Does not change: the store that is copied. No snapshot can be taken into a copy. A restore from
one is refused unless ownership-from-copy is overridden, since who owns a workload cluster is
recorded in the store that was copied: docs/copy.md.

Standalone it needs --store, --to and --signing-key (or --plain). The signing key is trusted; name
others that signed snapshots with --trusted-key.

Exit codes: 0 copied, or nothing to copy; 1 other error; 2 usage, such as a place that is no copy of
this store; 3 a snapshot could not be copied, or is another one in the copy, and nothing was copied;
4 something was copied and a snapshot could not be, or it was interrupted; 10 store; 11 catalog
locked, or a copy to this place is running; 12 a key; 130 interrupted before any change.`,
		Example: `  mgmtctl store copy --standalone --store /backup/mgmt --to /mnt/copy --signing-key signing.key
  mgmtctl store copy --location main --to-location copy`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case req.GetLast() < 0:
				return usageError(cmd, "--last is negative")
			case *to != "" && req.GetToLocation() != "":
				return usageError(cmd, "--to and --to-location exclude each other")
			case *to != "" && !p.standalone.enabled:
				return usageError(cmd, "--to needs --standalone: name a storage location of the config "+
					"with --to-location")
			case *to == "" && p.standalone.enabled && !p.given("config"):
				return usageError(cmd, "standalone, --to says where the copy is; --to-location names a "+
					"storage location of a daemon's config")
			case *to != "":
				req.ToLocation = *to // serviceConfig makes a location of this name
			}
			return p.withServer(cmd, needsOfCopy, func(ctx context.Context, c *connection) error {
				return p.carryOut(ctx, c, "", func(ctx context.Context) (*mgmtv1.Operation, error) {
					resp, err := c.stores.CopyStore(ctx, req)
					return resp.GetOperation(), err
				})
			})
		},
	}
	addLocation(cmd, &req.Location)
	cmd.Flags().StringVar(to, "to", "", "`URL` of the copy, as --store has it")
	cmd.Flags().StringVar(&req.ToLocation, "to-location", "", "`NAME` of the storage location of the "+
		"copy, in the daemon's config")
	cmd.Flags().Int32Var(&req.Last, "last", 0, "copy only the newest `N` snapshots of each source "+
		"and scope (default all)")
	return cmd
}

// copyAgain is the command that continues a copy. It is the one of this process, or names the
// locations of the operation.
func (p *program) copyAgain(op *mgmtv1.Operation) string {
	words := []string{"store", "copy"}
	if to := p.standalone.copyTo; to != "" {
		return p.commandLine(append(words, "--to", to)...)
	}
	for _, f := range []struct{ name, value string }{{"location", op.GetLocation()},
		{"to-location", op.GetCopy().GetLocation()}} {
		if f.value != "" {
			words = append(words, "--"+f.name, f.value)
		}
	}
	return p.commandLine(words...)
}

// addCopy adds what a copy did.
func (l *pairs) addCopy(c *mgmtv1.StoreCopy) {
	if c == nil {
		return
	}
	l.add("copy", c.GetLocation())
	if c.GetBehind() < 0 {
		return // it did not come to anything
	}
	l.add("copied", count(c.GetCopied(), "snapshot"))
	l.add("written", storeAmountText(&mgmtv1.StoreAmount{Keys: c.GetWrittenKeys(),
		Bytes: c.GetWrittenBytes()}))
	l.add("there before", number(c.GetPresent()))
	for _, part := range []struct {
		name  string
		count int64
	}{{"removed by a prune", c.GetRemoved()}, {"left out", c.GetLeftOut()},
		{"not trusted", c.GetUntrusted()}, {"not copied", c.GetBehind()}} {
		if part.count > 0 {
			l.add(part.name, number(part.count))
		}
	}
}
