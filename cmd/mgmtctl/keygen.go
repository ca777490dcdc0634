package main

import (
	"context"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newKeygen(p *program) *cobra.Command {
	var dir string
	var protect bool
	cmd := &cobra.Command{
		Use:   "keygen --out DIR",
		Short: "Make the keys that encrypt and sign snapshots",
		Long: `Make the keys that encrypt and sign snapshots, as four files in a folder:

  identity.txt   opens snapshots; store it offline, with a copy elsewhere: without it no
                 snapshot can be read; with --passphrase the file alone is of no use, and
                 without the passphrase no snapshot can be read either
  recipient.txt  its public half, to write snapshots to (--recipient)
  signing.key    signs snapshots (--signing-key); belongs to the host that takes them
  signing.pub    its public half, to trust them (--trusted-key)

"mgmtctl keygen check" checks later that the keys still open the newest snapshots.

Changes: makes the folder and the files, readable by you alone.
Does not change: existing files are never overwritten. Nothing is sent anywhere.

Exit codes: 0 made; 1 other error, such as no space; 2 usage, or a file exists already; 12 no
passphrase.`,
		Example: `  mgmtctl keygen --out keys
  mgmtctl keygen --out keys --passphrase`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError(cmd, "--out is missing: the folder for the keys")
			}
			if p.identity.passphraseFile != "" && !protect {
				return usageError(cmd, "--passphrase-file is given without --passphrase: is the new "+
					"identity to be protected?")
			}
			return runKeygen(cmd.Context(), p, dir, protect)
		},
	}
	cmd.Flags().StringVar(&dir, "out", "", "folder `DIR` for the four files")
	_ = cmd.MarkFlagDirname("out")
	cmd.Flags().BoolVar(&protect, "passphrase", false, "protect identity.txt with a passphrase, "+
		"from the terminal or --passphrase-file")
	cmd.AddCommand(newKeygenCheck(p))
	return cmd
}

// keyFiles are the files that keygen makes.
type keyFiles struct {
	Identity   string `json:"identity"`
	Recipient  string `json:"recipient"`
	SigningKey string `json:"signingKey"`
	TrustedKey string `json:"trustedKey"`
}

func runKeygen(ctx context.Context, p *program, dir string, protect bool) error {
	var passphrase []byte
	var err error
	if protect {
		if passphrase, err = p.newPassphrase(ctx); err != nil {
			return err
		}
	}
	if err := makeKeys(dir, passphrase); err != nil {
		return err
	}
	files := keyFiles{
		Identity:   filepath.Join(dir, "identity.txt"),
		Recipient:  filepath.Join(dir, "recipient.txt"),
		SigningKey: filepath.Join(dir, "signing.key"),
		TrustedKey: filepath.Join(dir, "signing.pub"),
	}
	p.say("store %s offline, with a copy elsewhere: without it no snapshot can be read",
		files.Identity)
	return p.print(files, func(w io.Writer) {
		var l pairs
		l.add("identity", files.Identity)
		l.add("recipient", files.Recipient)
		l.add("signing key", files.SigningKey)
		l.add("trusted key", files.TrustedKey)
		l.write(w)
	})
}
