package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The next command to type is complete: it repeats the flags that were typed, and it has the id
// of the operation or the snapshot that a refusal is about, so that nobody has to put it together
// in an outage.

// commandTemplate matches a command in the texts of hints.go. ID, KIND, KEY and NAMESPACE/NAME in
// it are placeholders.
var commandTemplate = regexp.MustCompile(
	`mgmtctl (?:[a-z]+|KIND) [a-z]+(?: (?:ID|KEY)\b)?(?: NAMESPACE/NAME)?` +
		`(?: (?:--[a-z-]+|-o)(?: (?:[A-Z]\S*|json))?)*`)

// idPatterns match an id in a message or a hint of the service, by the noun of its command.
var idPatterns = map[string]*regexp.Regexp{
	"operation": regexp.MustCompile(`\boperation "?([0-9a-f]{12})\b`),
	"snapshot":  regexp.MustCompile(`\bsnapshot "?([0-9a-f]{12,})\b`),
}

// notRepeated are flags that a next command does not have because this one has them: a consent, a
// plan that is out of date, how the result is printed, and a side that answers by
// then.
var notRepeated = []string{"yes", "plan", "help", "without-target", "without-source"}

// expand completes the commands in a text of hints.go. The ids are those of the texts, which are
// messages and hints of the service.
func (p *program) expand(template string, texts ...string) string {
	return commandTemplate.ReplaceAllStringFunc(template, func(command string) string {
		return p.next(strings.Fields(command)[1:], texts...)
	})
}

// next returns a command with its placeholders filled in as far as their values are known.
func (p *program) next(words []string, texts ...string) string {
	words = slices.Clone(words)
	for i, w := range words {
		switch w {
		case "KIND":
			return p.planCommand(p.plannedKind())
		case "ID":
			words[i] = p.idOf(words[0], texts)
		}
	}
	return p.commandLine(words...)
}

// idOf returns the id that the texts name, else that of the operation that this command follows or
// of its argument, else "ID".
func (p *program) idOf(noun string, texts []string) string {
	if pattern := idPatterns[noun]; pattern != nil {
		for _, text := range texts {
			if m := pattern.FindStringSubmatch(text); m != nil {
				return m[1]
			}
		}
	}
	if noun == "operation" && p.operation != "" {
		return p.operation
	}
	if path := p.path(); len(path) > 1 && path[0] == noun && len(p.args) > 0 {
		return p.args[0]
	}
	if noun == "snapshot" && p.current != nil {
		if f := p.current.Flags().Lookup("snapshot"); f != nil {
			return cmp.Or(f.Value.String(), "latest") // as the command has it
		}
	}
	return "ID"
}

// planCommand returns the command that plans again what this one is about, into the same file.
func (p *program) planCommand(kind string) string {
	if slices.Equal(p.path(), []string{kindRestore, "release"}) {
		return p.again() // it has no plan of its own
	}
	line := p.commandLine(append([]string{kind, "plan"}, p.planFlags...)...)
	if p.planFile != "" {
		line += " -o json > " + quote(p.planFile)
	}
	return line
}

// plannedKind returns which kind of plan this command is about.
func (p *program) plannedKind() string {
	if path := p.path(); len(path) > 0 && path[0] == kindMove {
		return kindMove
	}
	return kindRestore
}

// path returns the words of this command, without mgmtctl.
func (p *program) path() []string {
	if p.current == nil {
		return nil
	}
	return strings.Fields(p.current.CommandPath())[1:]
}

// again returns this command with more flags, each of which replaces the one that was typed.
func (p *program) again(flags ...string) string {
	words := append(p.path(), p.args...)
	return p.commandLine(append(words, flags...)...)
}

// commandLine returns a command that uses the same server as this one, ready to be pasted into the
// shell that this one was typed in. It has the flags that were typed and that it knows, and not
// those of environment variables.
func (p *program) commandLine(words ...string) string {
	has := map[string]bool{}
	for _, w := range words {
		has[strings.TrimPrefix(w, "--")] = strings.HasPrefix(w, "--")
	}
	line := append([]string{"mgmtctl"}, words...)
	for _, f := range p.repeated(words) {
		if has[f.Name] {
			continue
		}
		switch v := f.Value.(type) {
		case pflag.SliceValue:
			for _, s := range v.GetSlice() {
				line = append(line, "--"+f.Name, s)
			}
		case *checked:
			for _, s := range *v.values {
				line = append(line, "--"+f.Name, s)
			}
		default:
			if line = append(line, "--"+f.Name); v.Type() != "bool" {
				line = append(line, v.String())
			}
		}
	}
	for i, w := range line {
		line[i] = quote(w)
	}
	return strings.Join(line, " ")
}

// repeated returns the flags that the command of these words repeats: those of this command that it
// has, too, and those that name the server.
func (p *program) repeated(words []string) []*pflag.Flag {
	var flags []*pflag.Flag
	if p.current != nil {
		other, _, err := p.current.Root().Find(words)
		p.current.Flags().Visit(func(f *pflag.Flag) {
			if p.flags.lookup(f.Name) == f || slices.Contains(notRepeated, f.Name) || err != nil {
				return
			}
			if o := other.Flags().Lookup(f.Name); o != nil && o.Value.Type() == f.Value.Type() {
				flags = append(flags, f)
			}
		})
	}
	groups := []*pflag.FlagSet{p.flags.server}
	if p.standalone.enabled {
		groups = append(groups, p.flags.standalone)
	}
	for _, group := range groups {
		group.VisitAll(func(f *pflag.Flag) {
			if p.typed(f.Name) {
				flags = append(flags, f)
			}
		})
	}
	if p.typed("passphrase-file") {
		flags = append(flags, p.flags.lookup("passphrase-file"))
	}
	return flags
}

// quote quotes s as one word of a POSIX shell.
func quote(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// remember stores the command that runs, for the commands that it prints.
func (p *program) remember(cmd *cobra.Command, args []string) { p.current, p.args = cmd, args }
