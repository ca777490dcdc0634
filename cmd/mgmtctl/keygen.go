package main

import (
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newKeygen(p *program) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "keygen --out DIR",
		Short: "Make the keys that encrypt and sign snapshots",
		Long: `Make the keys that encrypt and sign snapshots, as four files in a folder:

  identity.txt   opens snapshots; keep it offline, and a copy of it elsewhere: without it no snapshot can be read
  recipient.txt  the public half of it, to write snapshots to (--recipient)
  signing.key    signs snapshots (--signing-key); belongs to the host that takes them
  signing.pub    the public half of it, to trust them (--trusted-key)

Changes: makes the folder and the files, readable by you alone.
Does not change: files that are there are never overwritten. Nothing is sent anywhere.

Exit codes: 0 made; 1 other error, such as no space; 2 usage, or a file that is there already.`,
		Example: `  mgmtctl keygen --out keys`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError(cmd, "--out is missing: the folder for the keys")
			}
			return runKeygen(p, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "out", "", "folder `DIR` for the four files")
	_ = cmd.MarkFlagDirname("out")
	return cmd
}

// keyFiles are the files that keygen makes.
type keyFiles struct {
	Identity   string `json:"identity"`
	Recipient  string `json:"recipient"`
	SigningKey string `json:"signingKey"`
	TrustedKey string `json:"trustedKey"`
}

func runKeygen(p *program, dir string) error {
	if err := makeKeys(dir); err != nil {
		return err
	}
	files := keyFiles{
		Identity:   filepath.Join(dir, "identity.txt"),
		Recipient:  filepath.Join(dir, "recipient.txt"),
		SigningKey: filepath.Join(dir, "signing.key"),
		TrustedKey: filepath.Join(dir, "signing.pub"),
	}
	p.say("keep %s offline and a copy of it elsewhere: without it no snapshot can be read", files.Identity)
	return p.print(files, func(w io.Writer) {
		var l pairs
		l.add("identity", files.Identity)
		l.add("recipient", files.Recipient)
		l.add("signing key", files.SigningKey)
		l.add("trusted key", files.TrustedKey)
		l.write(w)
	})
}
