package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// variablePrefix begins the name of each environment variable of mgmtctl.
const variablePrefix = "MGMTCTL_"

// variableFlags are the flags that an environment variable replaces: where the daemon, the store
// and the catalog are, and the files with keys. No kubeconfig is among them, and no flag that
// changes what a command may do, such as --yes, --force or --plain: those must be typed for each
// command, because a variable of another day would do it unseen.
var variableFlags = []string{"address", "ca-file", "cert-file", "key-file", "config", "store",
	"catalog", "recipient", "signing-key", "trusted-key", "identity", "passphrase-file"}

// variable returns the name of the environment variable of a flag.
func variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// addVariables adds the variables to the help of their flags.
func (g flagGroups) addVariables() {
	for _, name := range variableFlags {
		g.lookup(name).Usage += " [$" + variable(name) + "]"
	}
}

// readEnvironment sets the flags that were not typed to the values of their variables. A repeatable
// flag has several values, separated as in $PATH. Call it after the flags are parsed.
func (p *program) readEnvironment() error {
	for _, name := range variableFlags {
		f, value := p.flags.lookup(name), p.getenv(variable(name))
		if value == "" || f.Changed {
			continue
		}
		var err error
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err = list.Replace(filepath.SplitList(value))
		} else {
			err = f.Value.Set(value)
		}
		if err != nil {
			return err
		}
		p.fromEnvironment[name] = true
	}
	return nil
}

// warnOfVariables warns of variables that have our prefix and no effect. Such a name is a mistake,
// or a flag that has no variable on purpose.
func (p *program) warnOfVariables() {
	for _, entry := range p.environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || slices.ContainsFunc(variableFlags,
			func(flag string) bool { return variable(flag) == name }) {
			continue
		}
		p.say("warning: the environment variable %s has no effect; the help shows which there are", name)
	}
}

// given reports whether a flag of every command was typed, or set by its variable.
func (p *program) given(name string) bool {
	f := p.flags.lookup(name)
	return (f.Changed || p.fromEnvironment[name]) && !isEmpty(f)
}

// typed reports whether a flag of every command is on the command line.
func (p *program) typed(name string) bool {
	f := p.flags.lookup(name)
	return f.Changed && !isEmpty(f)
}

func isEmpty(f *pflag.Flag) bool {
	return slices.Contains([]string{"", "[]", "[\"\"]", "false"}, f.Value.String())
}
