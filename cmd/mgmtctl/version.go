package main

import (
	"cmp"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/service"
)

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the format of the store that it reads and writes",
		Long: `Print the version of mgmtctl, the commit and the Go release that it was built from,
and the format of the store that it reads and writes.

Changes: nothing. It asks no server.

Exit codes: 0 printed; 2 usage.`,
		Example: `  mgmtctl version -o json`,
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return runVersion(p) },
	}
}

// release is the version that the linker sets (-X main.release); without it the version is that of
// the module.
var release string

// build describes this binary.
type build struct {
	Version     string `json:"version"`
	Commit      string `json:"commit"`
	Modified    bool   `json:"modified"`
	Go          string `json:"go"`
	StoreFormat int    `json:"storeFormat"`
}

func readBuild() build {
	b := build{Go: runtime.Version(), StoreFormat: service.StoreFormat}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = info.Main.Version
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(release, b.Version, "(devel)")
	return b
}

func runVersion(p *program) error {
	b := readBuild()
	return p.print(b, func(w io.Writer) {
		commit := cmp.Or(b.Commit, "unknown")
		if b.Modified {
			commit += " (modified)"
		}
		var l pairs
		l.add("mgmtctl", b.Version)
		l.add("commit", commit)
		l.add("go", b.Go)
		l.add("store format", strconv.Itoa(b.StoreFormat))
		l.write(w)
	})
}
