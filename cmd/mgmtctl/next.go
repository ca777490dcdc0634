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

// commandTemplate matches a command in the texts of hints.go. ID, KIND, KEY, NAME, SOURCE, TARGET
// and NAMESPACE/NAME in it are placeholders; NAME is that of a management cluster.
var commandTemplate = regexp.MustCompile(
	`mgmtctl (?:[a-z]+|KIND) [a-z]+(?: (?:ID|KEY|NAME|SOURCE|TARGET)\b)?(?: NAMESPACE/NAME)?` +
		`(?: --force [a-z-]+| (?:--[a-z-]+|-o)(?: (?:[A-Z]\S*|json))?)*`)

// idPatterns match an id in a message or a hint of the service, by the noun of its command.
var idPatterns = map[string]*regexp.Regexp{
	"operation": regexp.MustCompile(`\boperation "?([0-9a-f]{12})\b`),
	"snapshot":  regexp.MustCompile(`\bsnapshot "?([0-9a-f]{12,})\b`),
}

// notRepeated are flags that no next command has because this one has them: a consent, and a plan
// that is out of date.
var notRepeated = []string{"yes", "plan", "help"}

// expand completes the commands in a text of hints.go. The ids are those of the texts, which are
// messages and hints of the service.
func (p *program) expand(template string, texts ...string) string {
	return p.expandFor("", template, texts...)
}

// expandFor is expand for a text about a unit; empty means that it names none.
func (p *program) expandFor(unit, template string, texts ...string) string {
	return commandTemplate.ReplaceAllStringFunc(template, func(command string) string {
		return p.next(strings.Fields(command)[1:], unit, texts)
	})
}

// next returns a command with its placeholders filled in as far as their values are known.
func (p *program) next(words []string, unit string, texts []string) string {
	words = slices.Clone(words)
	if i := slices.Index(words, "--identity"); i >= 0 && slices.Contains(words, "--without-source") &&
		(p.given("identity") || p.configHas("identity") || p.standalone.plain) {
		words = slices.Delete(words, i, i+2) // it is repeated, known, or nothing is encrypted
	}
	side := ""
	for i, w := range words {
		switch w {
		case "KIND":
			return p.planOfKind()
		case "SOURCE", "TARGET":
			side = strings.ToLower(w)
			words[i] = p.nameOf(side)
		case "NAME":
			path := p.path()
			if slices.Equal(path, words[:i]) {
				return p.again()
			}
			words[i] = "" // not needed where flags, or a configuration of one, say which it is
			if len(path) > 0 && path[0] == words[0] && len(p.args) > 0 {
				words[i] = p.args[0]
			}
		case "ID":
			words[i] = p.idOf(words[0], texts)
		case "NAMESPACE/NAME":
			words[i] = cmp.Or(unit, p.onlyReleased(words[i-1]), w)
		}
	}
	if side != "" {
		return p.onSide(side, unit, words)
	}
	return p.commandLine(slices.DeleteFunc(words, func(w string) bool { return w == "" })...)
}

// nameOf returns the name of the source or the target of this command or of the operation that it
// follows. It is empty where kubeconfigs say which it is, and "NAME" when it is not known.
func (p *program) nameOf(side string) string {
	if p.standalone.enabled && !p.given("config") {
		return ""
	}
	name := p.operation.GetSource()
	if side == "target" {
		name = p.operation.GetTarget()
	}
	if p.current != nil {
		if f := p.current.Flags().Lookup(side); f != nil {
			name = cmp.Or(f.Value.String(), name)
		}
	}
	return cmp.Or(name, "NAME")
}

// onSide returns a command about one side of this one, which has the kubeconfig of that side alone.
// It selects the unit that it is about, else what this command selects.
func (p *program) onSide(side, unit string, words []string) string {
	selection := []string{"namespace", "workload", "selector"}
	other := map[string]string{"source": "target-", "target": "source-"}[side]
	flags := slices.DeleteFunc(p.repeated(words, false), func(f *pflag.Flag) bool {
		return strings.HasPrefix(f.Name, other) || unit != "" && slices.Contains(selection, f.Name)
	})
	selected := slices.ContainsFunc(flags,
		func(f *pflag.Flag) bool { return slices.Contains(selection, f.Name) })
	all := unit == "" && !selected && p.selectsAll()
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" || !all && w == "--all" })
	switch {
	case unit != "":
		words = append(words, "--workload", unit)
	case !selected && !all:
		words = append(words, p.selectionOfPlan()...)
	}
	if flag := side + "-kubeconfig"; p.nameOf(side) == "" && !p.given(flag) {
		words = append(words, "--"+flag, "FILE")
	}
	return lineOf(words, flags)
}

// selectsAll reports whether this command, which has no flags of a selection, is about everything
// in its source. It may be about less when it has a plan, or names a snapshot.
func (p *program) selectsAll() bool {
	path := p.path()
	if len(path) != 2 || !slices.Contains([]string{kindRestore, kindMove}, path[0]) ||
		!slices.Contains([]string{"plan", "run"}, path[1]) || p.planFile != "" {
		return false
	}
	return !slices.ContainsFunc([]string{"snapshot", "at", "scope"}, func(name string) bool {
		f := p.current.Flags().Lookup(name)
		return f != nil && f.Changed
	})
}

// selectionOfPlan returns the flags of the selection of the plan of this command, and a placeholder
// when that is not known.
func (p *program) selectionOfPlan() (words []string) {
	for i, w := range p.planFlags {
		if slices.Contains([]string{"--namespace", "--workload", "--selector"}, w) {
			words = append(words, w, p.planFlags[i+1])
		}
	}
	if len(words) == 0 {
		words = []string{"--workload", "NAMESPACE/NAME"}
	}
	return words
}

// onlyReleased returns the only unit that an operator can accept in the operation of this id; empty
// when there are several, or what this command knows of the operation is not how it ended.
func (p *program) onlyReleased(id string) string {
	if p.operation.GetId() != id || !isEnd(p.operation.GetState()) {
		return ""
	}
	units := releasedUnits(p.operation)
	if len(units) != 1 {
		return ""
	}
	return units[0]
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
	if id := p.operation.GetId(); noun == nounOperation && id != "" {
		return id
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

// planOfKind returns the command that plans again what this command is about: the operation that it
// follows or shows, else what it was typed for.
func (p *program) planOfKind() string {
	if slices.Contains(changing, p.operation.GetKind()) {
		return p.planAgain(p.operation)
	}
	if path := p.path(); len(path) > 0 && path[0] == kindMove {
		return p.planCommand(kindMove)
	}
	return p.planCommand(kindRestore)
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
	return p.line(append(words, flags...), true)
}

// commandLine returns a command that uses the same server as this one, ready to be pasted into the
// shell that this one was typed in. It has the flags that were typed and that it repeats, and not
// those of environment variables.
func (p *program) commandLine(words ...string) string { return p.line(words, false) }

// line is commandLine; again says that the command is this one.
func (p *program) line(words []string, again bool) string {
	return lineOf(words, p.repeated(words, again))
}

// lineOf returns the command of these words, with those of the flags that it has not.
func lineOf(words []string, flags []*pflag.Flag) string {
	has := map[string]bool{}
	for _, w := range words {
		has[strings.TrimPrefix(w, "--")] = strings.HasPrefix(w, "--")
	}
	line := append([]string{"mgmtctl"}, words...)
	for _, f := range flags {
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

// repeated returns the flags that the command of these words has because this one has them: those
// of the command itself, and those that name the server, the store, the keys and the kubeconfigs.
func (p *program) repeated(words []string, again bool) []*pflag.Flag {
	var flags []*pflag.Flag
	if p.current != nil {
		next, _, err := p.current.Root().Find(words)
		p.current.Flags().Visit(func(f *pflag.Flag) {
			if p.flags.lookup(f.Name) == f || err != nil {
				return
			}
			if again && !slices.Contains(notRepeated, f.Name) || !again && repeats(p.current, next, f) {
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

// repeats reports whether another command has a flag because the one that was typed has it. It must
// know the flag, and the flag must mean there what it means here:
//   - A command about operations repeats none that says what the typed one was about: the operation
//     knows its sides and its workload clusters, and what can be overridden in it is another thing.
//     Only the file of resource modifiers is stored nowhere.
//   - Other commands repeat what says what the typed one was about. An override is repeated only
//     between the verbs of one noun, which override the same.
func repeats(typed, next *cobra.Command, f *pflag.Flag) bool {
	known := next.Flags().Lookup(f.Name)
	if known == nil || known.Value.Type() != f.Value.Type() || slices.Contains(notRepeated, f.Name) {
		return false
	}
	switch {
	case next.Parent().Name() == nounOperation:
		return f.Name == modifiersFlagName
	case f.Name == forceFlagName:
		return typed.Parent() == next.Parent()
	}
	return true
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
