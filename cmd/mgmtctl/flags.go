package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mgmtd/mgmtd/internal/object"
)

// enum is a flag that accepts one of a few words.
type enum[T ~string] struct {
	value *T
	words []T
}

// newEnum makes an enum flag; the current value is the default.
func newEnum[T ~string](value *T, words ...T) *enum[T] {
	return &enum[T]{value: value,
		words: words}
}

// String is the present word.
func (e *enum[T]) String() string {
	if e.value == nil {
		return ""
	}
	return string(*e.value)
}

// Set accepts one of the words; cobra puts the name of the flag before the error.
func (e *enum[T]) Set(s string) error {
	if !slices.Contains(e.words, T(s)) {
		return fmt.Errorf("want %s", e.choices())
	}
	*e.value = T(s)
	return nil
}

// Type is what the help shows as the value.
func (e *enum[T]) Type() string {
	var words []string
	for _, w := range e.words {
		words = append(words, string(w))
	}
	return strings.Join(words, "|")
}

func (e *enum[T]) choices() string { return strings.ReplaceAll(e.Type(), "|", " or ") }

// checked is a repeatable flag that validates each value when it is parsed, so that the error
// names the flag.
type checked struct {
	values *[]string
	check  func(string) error
	what   string
}

// String is the present list.
func (c *checked) String() string {
	if c.values == nil {
		return ""
	}
	return strings.Join(*c.values, ",")
}

// Set adds a value.
func (c *checked) Set(s string) error {
	if err := c.check(s); err != nil {
		return err
	}
	*c.values = append(*c.values, s)
	return nil
}

// Type is what the help shows as the value.
func (c *checked) Type() string { return c.what }

// checkedOne is a flag that validates its one value when it is parsed.
type checkedOne struct {
	value *string
	check func(string) error
	what  string
}

// String is the present value.
func (c *checkedOne) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// Set takes a value.
func (c *checkedOne) Set(s string) error {
	if err := c.check(s); err != nil {
		return err
	}
	*c.value = s
	return nil
}

// Type is what the help shows as the value.
func (c *checkedOne) Type() string { return c.what }

// forceFlag is a repeatable flag that takes the codes of findings, several of them with commas.
type forceFlag struct {
	checked
	works []object.Work
}

// Set adds codes. The error lists those that the command takes.
func (f *forceFlag) Set(s string) error {
	for text := range strings.SplitSeq(s, ",") {
		var refused error
		for _, work := range f.works {
			_, err := object.ParseForced(work, append(slices.Clone(*f.values), text))
			if err == nil {
				refused = nil
				break
			}
			refused = errors.Join(refused, err)
		}
		if refused != nil {
			return refused
		}
		*f.values = append(*f.values, text)
	}
	return nil
}

const forceFlagName = "force"

// addForce adds --force to a command that does one of some works, each with codes of its own.
func addForce(cmd *cobra.Command, codes *[]string, works ...object.Work) {
	var words []string
	for _, work := range works {
		words = append(words, object.Forceable(work)...)
	}
	slices.Sort(words)
	words = slices.Compact(words)
	set := cmd.Flags()
	set.Var(&forceFlag{checked{values: codes, what: "CODE[,CODE]"}, works}, forceFlagName, "override "+
		"the findings with these codes, and no others (repeatable): "+strings.Join(words, ", "))
}

func checkWorkload(s string) error {
	_, err := object.ParseKey(s)
	return err
}

func checkRef(s string) error {
	_, err := object.ParseRef(s)
	return err
}

func checkDifference(s string) error {
	_, err := object.ParseAcceptedDifference(s)
	return err
}

func checkName(s string) error {
	if s == "" || strings.ContainsAny(s, "/, ") {
		return fmt.Errorf("%q is no name", s)
	}
	return nil
}

func checkSelector(s string) error {
	_, err := labels.Parse(s)
	return err
}

// moment is a flag that accepts a point in time.
type moment struct{ time.Time }

// String is the present time.
func (m *moment) String() string {
	if m.IsZero() {
		return ""
	}
	return m.Format(time.RFC3339)
}

// Set accepts RFC 3339. A time without a zone is refused: in an outage nobody should have to think
// about which zone was meant.
func (m *moment) Set(s string) error {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return fmt.Errorf("want a time with its zone, such as 2026-03-01T14:30:00Z")
	}
	m.Time = t
	return nil
}

// Type is what the help shows as the value.
func (m *moment) Type() string { return "TIME" }

// since is a flag that takes a point in time, or how long ago it was.
type since struct {
	at  moment
	ago time.Duration
}

// String is the present value.
func (s *since) String() string {
	if s.ago > 0 {
		return s.ago.String()
	}
	return s.at.String()
}

// Set accepts RFC 3339 or a duration.
func (s *since) Set(text string) error {
	ago, err := time.ParseDuration(text)
	if err == nil && ago > 0 {
		*s = since{ago: ago}
		return nil
	}
	*s = since{}
	if s.at.Set(text) != nil {
		return fmt.Errorf("want a time with its zone, such as 2026-03-01T14:30:00Z, or an age, such " +
			"as 36h")
	}
	return nil
}

// Type is what the help shows as the value.
func (s *since) Type() string { return "TIME|AGE" }

// before returns the point in time; zero when none was given.
func (s *since) before(now time.Time) time.Time {
	if s.ago > 0 {
		return now.Add(-s.ago)
	}
	return s.at.Time
}

// addSource adds --source to a command that reads one source of several.
func addSource(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "source", "", "`NAME` or UID of the source management cluster; "+
		"needed only when there are several")
}

// addScope adds --scope to a command that takes the newest snapshot.
func addScope(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "scope", "", "the newest snapshot of this `SCOPE`, not the newest "+
		"whole one: the name of a schedule, at least 8 digits of an ID of snapshot list "+
		"--output json, or any")
}

// addLocation adds --location to a command that works with a store.
func addLocation(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "location", "", "`NAME` of a storage location of the daemon's "+
		"config; needed only when there are several and none is the default")
}

func addNamespaces(cmd *cobra.Command, values *[]string, what string) {
	cmd.Flags().Var(&checked{values, checkName, "NS"}, "namespace", what+" (repeatable)")
}
