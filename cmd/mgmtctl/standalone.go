package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/mgmtd/mgmtd/internal/service"
)

// server is the service inside this process.
type server interface {
	Register(grpc.ServiceRegistrar)
	// Stop makes running operations end between two steps. It returns at once and may be called
	// twice.
	Stop()
	// Close waits for operations and closes the catalog.
	Close() error
}

var _ server = (*service.Server)(nil)

// standaloneFlags configure the service when it runs inside mgmtctl.
type standaloneFlags struct {
	enabled          bool
	config           string
	store            string
	plain            bool
	recipients       []string
	signingKey       string
	trustedKeys      []string
	catalog          string
	sourceKubeconfig string
	sourceContext    string
	targetKubeconfig string
	targetContext    string

	// sourceName and targetName are the command's --source and --target. Without the config of a
	// daemon, they name the management clusters of the kubeconfigs.
	sourceName string
	targetName string
	// copyTo is the place of --to of "store copy", a second location.
	copyTo string
	// location: --location names a storage location of the file of --config, which goes before a
	// store that an environment variable names.
	location bool
}

func (f *standaloneFlags) register(set *pflag.FlagSet) {
	set.SortFlags = false
	set.StringVar(&f.config, "config", "", "configuration `FILE` of the daemon: its management "+
		"clusters, storage locations, keys and kinds; the other flags override it")
	set.StringVar(&f.store, "store", "", "`URL` of the store: file:///dir or the path of a "+
		"directory, or "+
		"s3://bucket/prefix?endpoint=https://host:port&region=NAME (docs/config.md has all options)")
	set.StringVar(&f.catalog, "catalog", "", "catalog `FILE` (default "+
		"$XDG_STATE_HOME/mgmtd/catalog.db or ~/.local/state/mgmtd/catalog.db)")
	set.StringArrayVar(&f.recipients, "recipient", nil, "`age1...` key to encrypt snapshots to "+
		"(repeatable)")
	set.StringVar(&f.signingKey, "signing-key", "", "`FILE` with the key that signs snapshots")
	set.BoolVar(&f.plain, "plain", false, "the store is not encrypted: everyone who can read it "+
		"can read the Secrets")
	set.StringArrayVar(&f.trustedKeys, "trusted-key", nil, "`FILE` with a public key whose "+
		"signatures are trusted (repeatable)")
	set.StringVar(&f.sourceKubeconfig, "source-kubeconfig", "", "kubeconfig `FILE` of the source "+
		"management cluster")
	set.StringVar(&f.sourceContext, "source-context", "", "`CONTEXT` in that kubeconfig; empty "+
		"means its current one")
	set.StringVar(&f.targetKubeconfig, "target-kubeconfig", "", "kubeconfig `FILE` of the target "+
		"management cluster")
	set.StringVar(&f.targetContext, "target-context", "", "`CONTEXT` in that kubeconfig; empty "+
		"means its current one")
}

// need is a flag that a standalone command requires.
type need struct {
	flag        string
	unlessPlain bool
	// reason of the error for a missing flag; empty means a usage error.
	reason service.Reason
}

// The needs of commands, in the order of the error message.
var (
	needStore      = need{flag: "store"}
	needRecipient  = need{flag: "recipient", unlessPlain: true}
	needSigningKey = need{flag: "signing-key", unlessPlain: true}
	needIdentity   = need{flag: "identity", unlessPlain: true, reason: service.ReasonIdentity}
	needTrustedKey = need{flag: "trusted-key", unlessPlain: true, reason: service.ReasonSignature}
	needSource     = need{flag: "source-kubeconfig"}
	needTarget     = need{flag: "target-kubeconfig"}

	needsOfSnapshot = []need{needStore, needRecipient, needSigningKey, needSource}
	needsOfMove     = []need{needStore, needRecipient, needSigningKey, needSource, needTarget}
	needsOfRestore  = []need{needStore, needIdentity, needTrustedKey, needTarget}
)

// check returns an error when flags are missing or contradict each other, before anything is
// opened.
func (p *program) check(cmd *cobra.Command, needs []need) error {
	f := &p.standalone
	if !f.enabled {
		return p.checkDaemon(cmd)
	}
	if err := p.readConfig(); err != nil {
		return err
	}
	f.location = cmd.Flags().Changed("location")
	if err := p.checkTogether(cmd); err != nil {
		return err
	}
	var missing []string
	var reason service.Reason
	for _, n := range needs {
		if p.given(n.flag) || p.configHas(n.flag) || (n.unlessPlain && f.plain) {
			continue
		}
		text := "--" + n.flag
		if n.unlessPlain {
			text += " (or --plain)"
		}
		if len(missing) == 0 {
			reason = n.reason
		} else if n.reason == "" {
			reason = ""
		}
		missing = append(missing, text)
	}
	if len(missing) == 0 {
		return nil
	}
	err := usageError(cmd, "standalone, this needs %s", strings.Join(missing, ", "))
	if e, ok := errors.AsType[*service.Error](err); ok && reason != "" {
		e.Reason = reason
	}
	return err
}

// checkTogether returns an error when flags contradict each other.
func (p *program) checkTogether(cmd *cobra.Command) error {
	f := &p.standalone
	switch {
	case p.typed("address"):
		return usageError(cmd, "--address and --standalone exclude each other")
	case f.location && p.config == nil:
		return usageError(cmd, "--location names a storage location of a daemon's config; standalone, "+
			"--store says where the store is")
	case f.location && p.typed("store"):
		return usageError(cmd, "--location and --store exclude each other")
	case f.plain && p.typed("recipient"):
		return usageError(cmd, "--plain and --recipient exclude each other")
	}
	for _, side := range []string{"source", "target"} {
		if p.given(side+"-context") && !p.given(side+"-kubeconfig") {
			return usageError(cmd, "--%s-context needs --%s-kubeconfig", side, side)
		}
	}
	return nil
}

// oneSide says that a command is about one management cluster, of this name if it has one, and
// returns an error when standalone flags name none or two.
func (p *program) oneSide(cmd *cobra.Command, name string) error {
	p.standalone.sourceName, p.standalone.targetName = name, name
	if p.standalone.enabled && !p.given("config") &&
		p.given("source-kubeconfig") == p.given("target-kubeconfig") {
		return usageError(cmd, "standalone, this needs --source-kubeconfig or --target-kubeconfig, "+
			"one of them, or --config")
	}
	return nil
}

// catalogFile returns the path of the catalog: the flag, else a file in the user's state folder.
func (p *program) catalogFile() (string, error) {
	if p.standalone.catalog != "" {
		return p.standalone.catalog, nil
	}
	// The XDG specification says to ignore a relative folder.
	state := p.getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home := p.getenv("HOME")
		if home == "" {
			return "", &service.Error{Reason: service.ReasonUsage, Message: "find the catalog: neither " +
				"HOME nor XDG_STATE_HOME is set", Hint: "name the file with --catalog"}
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "mgmtd", "catalog.db"), nil
}

// serveStandalone makes the service from the flags. It opens nothing: the first call does.
func serveStandalone(f standaloneFlags, p *program) (server, error) {
	cfg, err := p.serviceConfig(f)
	if err != nil {
		return nil, err
	}
	return service.New(cfg), nil
}

// makeKeys makes keys on the host of the operator, without a server. It is in this file because
// only this one uses the service as more than its API.
func makeKeys(dir string, passphrase []byte) error {
	if err := service.Keygen(dir, passphrase); err != nil {
		return fmt.Errorf("make keys: %w", err)
	}
	return nil
}
