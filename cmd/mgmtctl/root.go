package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mgmtd/mgmtd/internal/service"
)

const rootLong = `mgmtctl takes snapshots of Cluster API management clusters, restores them, and
moves workload clusters between them.

The help of every command says what it changes, what it does not change, and its exit codes. Results
go to stdout, everything else to stderr.

It talks to a daemon: the one at --address, else the one at $XDG_RUNTIME_DIR/mgmtd.sock,
/run/mgmtd.sock or /run/mgmtd/mgmtd.sock. Management clusters and storage locations are then those
of the daemon's config, by name. With --standalone it needs no daemon: the service runs inside
mgmtctl until the command ends. Flags then name the store, the keys and the kubeconfigs, or --config
names the configuration file of the daemon, which has them all; other flags override it.

The flags that show a variable such as [$MGMTCTL_STORE] can be set in the environment. A flag that
is typed wins over its variable, and a variable wins over the file of --config. Several values of
one variable are separated as in $PATH. $KUBECONFIG is never read.

The first Ctrl-C (or SIGTERM) stops between two steps, the second at once; in both cases the
operation can be resumed. Through a daemon, Ctrl-C only ends the display: the operation goes on
there, and the command that watches it is printed.

Exit codes:
    0  all done
    1  any other error, such as a server that cannot be reached or no space
    2  usage, unreadable kubeconfig or config, confirmation missing
    3  findings of severity error, and nothing was changed
    4  something was changed and work is left; the command that goes on is printed
   10  store missing, denied or unreachable
   11  fenced, owned or locked by another
   12  identity missing or wrong, signature missing or not trusted
  130  interrupted before any change, or by a second Ctrl-C`

// flagGroups are the flags of every command, in the groups of the help.
type flagGroups struct {
	server, standalone, global *pflag.FlagSet
}

// lookup returns a flag of every command by name, nil when there is none.
func (g flagGroups) lookup(name string) *pflag.Flag {
	return cmp.Or(g.server.Lookup(name), g.standalone.Lookup(name), g.global.Lookup(name))
}

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:           "mgmtctl",
		Short:         "Snapshots, restores and moves of Cluster API management clusters",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		// Suggest commands for up to two wrong letters.
		SuggestionsMinimumDistance: 2,
	}
	p.format = formatTable
	p.flags = flagGroups{
		server:     pflag.NewFlagSet("server", pflag.ContinueOnError),
		standalone: pflag.NewFlagSet("standalone", pflag.ContinueOnError),
		global:     pflag.NewFlagSet("global", pflag.ContinueOnError),
	}
	p.fromEnvironment = map[string]bool{}
	p.flags.global.Var(newEnum(&p.format, formatTable, formatJSON, formatYAML), "output",
		"how to print the result: table, json or yaml")
	p.flags.global.Lookup("output").Shorthand = "o"
	p.flags.global.DurationVar(&p.timeout, "timeout", 0, "stop after this `duration` as an "+
		"interrupt would; 0 means never")
	p.daemon.register(p.flags.server)
	p.flags.server.BoolVar(&p.standalone.enabled, "standalone", false,
		"run the service inside mgmtctl, without a daemon")
	p.identity.register(p.flags.server, p.flags.global)
	p.standalone.register(p.flags.standalone)
	p.flags.addVariables()
	root.PersistentFlags().AddFlagSet(p.flags.server)
	root.PersistentFlags().AddFlagSet(p.flags.global)
	root.PersistentFlags().AddFlagSet(p.flags.standalone)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetIn(p.stdin)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(cmd, "%s",
			err)
	})
	root.SetUsageFunc(p.usage)
	root.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		p.remember(cmd, args)
		return p.begin(cmd)
	}
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json",
		"yaml"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(
		newSnapshot(p),
		newRestore(p),
		newMove(p),
		newOperation(p),
		newSchedule(p),
		newPrune(p),
		newStore(p),
		newMgmt(p),
		newCatalog(p),
		newKeygen(p),
		newVersion(p),
	)
	p.completeFlags(root)
	root.Args = noArgs
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return root
}

// begin runs before every command, after its flags are parsed.
func (p *program) begin(cmd *cobra.Command) error {
	if isCompletion(cmd) {
		return nil // the flags of the command that is completed are not parsed yet
	}
	p.warnOfVariables()
	if err := p.readEnvironment(); err != nil {
		return usageError(cmd, "read the environment: %v", err)
	}
	if p.timeout < 0 {
		return usageError(cmd, "--timeout is negative")
	}
	if p.timeout > 0 {
		ctx, cancel := context.WithTimeoutCause(cmd.Context(), p.timeout, errTimeout)
		p.endTimeout = cancel
		cmd.SetContext(ctx)
	}
	return nil
}

// isCompletion reports whether cmd is what a shell calls for a completion.
func isCompletion(cmd *cobra.Command) bool {
	return cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd
}

// reachesServer annotates commands that use the flags of --standalone.
const reachesServer = "reaches-server"

// newGroup makes a command that only has subcommands, such as "snapshot". Without a subcommand it
// is a usage error: a script that forgot the verb must fail.
func newGroup(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	var names []string
	for _, verb := range verbs {
		cmd.AddCommand(verb)
		names = append(names, verb.Name())
	}
	cmd.Annotations = map[string]string{reachesServer: "yes"}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError(cmd, "no command %q, there are: %s", args[0], strings.Join(names, ", "))
		}
		return usageError(cmd, "command missing: one of %s", strings.Join(names, ", "))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return cmd.Help() }
	return cmd
}

// isGroup reports whether a command only has subcommands.
func isGroup(cmd *cobra.Command) bool {
	return cmd.HasSubCommands() && (!cmd.HasParent() || cmd.Annotations[reachesServer] != "")
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasAvailableSubCommands() {
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return usageError(cmd, "no command %q, did you mean %q?", args[0], near[0])
		}
		return usageError(cmd, "no command %q", args[0])
	}
	return usageError(cmd, "takes no argument, got %q", args[0])
}

// oneArg requires exactly one argument; what names it in the error.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || args[0] == "":
			return usageError(cmd, "argument missing: %s", what)
		case len(args) > 1:
			return usageError(cmd, "takes one argument, got also %q", args[1])
		}
		return nil
	}
}

// twoArgs requires exactly two arguments; the texts name them in errors.
func twoArgs(first, second string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 || args[0] == "":
			return usageError(cmd, "argument missing: %s", first)
		case len(args) == 1 || args[1] == "":
			return usageError(cmd, "argument missing: %s", second)
		case len(args) > 2:
			return usageError(cmd, "takes two arguments, got also %q", args[2])
		}
		return nil
	}
}

// usageError reports what is wrong with a command line, and names the help.
func usageError(cmd *cobra.Command, format string, args ...any) error {
	name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "mgmtctl"), " ")
	text := fmt.Sprintf(format, args...)
	if name != "" {
		text = name + ": " + text
	}
	return &service.Error{Reason: service.ReasonUsage, Message: text, Hint: fmt.Sprintf("see %q",
		cmd.CommandPath()+" --help")}
}

// usage prints what follows the long text of a help. Cobra's own usage puts the flags of all groups
// into one list.
func (p *program) usage(cmd *cobra.Command) error {
	const width = 100
	var b strings.Builder
	line := cmd.UseLine()
	if cmd.HasAvailableSubCommands() {
		sub := cmd.CommandPath() + " COMMAND [flags]"
		if !isGroup(cmd) { // it runs by itself, too
			sub = line + "\n  " + sub
		}
		line = sub
	}
	fmt.Fprintf(&b, "Usage:\n  %s\n", line)
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&b, "  %-12s %s\n", c.Name(), c.Short)
			}
		}
	}
	if own := p.ownFlags(cmd); own.HasAvailableFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", own.FlagUsagesWrapped(width))
	}
	if !cmd.HasParent() || cmd.Annotations[reachesServer] != "" ||
		cmd.Parent().Annotations[reachesServer] != "" {
		fmt.Fprintf(&b, "\nServer flags (before or after the command):\n%s",
			p.flags.server.FlagUsagesWrapped(width))
		fmt.Fprintf(&b, "\nFlags of --standalone (before or after the command):\n%s",
			p.flags.standalone.FlagUsagesWrapped(width))
	}
	global := pflag.NewFlagSet("global", pflag.ContinueOnError)
	p.flags.global.VisitAll(func(f *pflag.Flag) {
		if cmd.Flags().Lookup(f.Name) == f {
			global.AddFlag(f)
		}
	})
	fmt.Fprintf(&b, "\nGlobal flags (before or after the command):\n%s",
		global.FlagUsagesWrapped(width))
	_, err := cmd.OutOrStdout().Write([]byte(b.String()))
	return err
}

// ownFlags are the flags that only cmd has, and those that replace a global one, in the order of
// the code.
func (p *program) ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	own.SortFlags, cmd.Flags().SortFlags = false, false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if p.flags.lookup(f.Name) != f {
			own.AddFlag(f)
		}
	})
	return own
}
