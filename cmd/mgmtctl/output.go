package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// format is how results are printed.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

// print prints a result to stdout: machine as JSON or YAML, or what table writes.
func (p *program) print(machine any, table func(io.Writer)) error {
	var out bytes.Buffer
	switch p.format {
	case formatTable:
		table(&out)
	default:
		doc, err := toJSON(machine)
		if err != nil {
			return err
		}
		if p.format == formatYAML {
			if doc, err = yaml.JSONToYAML(doc); err != nil {
				return fmt.Errorf("write YAML: %w", err)
			}
		}
		out.Write(doc)
	}
	if _, err := p.stdout.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// toJSON returns indented JSON of a message, or of a struct that has messages as json.RawMessage.
func toJSON(v any) ([]byte, error) {
	var raw []byte
	var err error
	if m, ok := v.(proto.Message); ok {
		raw, err = rawJSON(m)
	} else {
		raw, err = json.Marshal(v)
	}
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	var out bytes.Buffer
	// protojson varies its spaces from build to build, so that nobody relies on them. It is indented
	// again here, so that equal results have equal bytes.
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// rawJSON returns a message in the JSON that users see: lowerCamelCase, with fields at their
// default.
func rawJSON(m proto.Message) (json.RawMessage, error) {
	return protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
}

// rawList returns messages as JSON; no message is an empty list, not null.
func rawList[M proto.Message](messages []M) ([]json.RawMessage, error) {
	list := make([]json.RawMessage, 0, len(messages))
	for _, m := range messages {
		raw, err := rawJSON(m)
		if err != nil {
			return nil, err
		}
		list = append(list, raw)
	}
	return list, nil
}

// table aligns rows of cells. An empty cell is a dash, so that columns can be counted.
type table struct {
	rows [][]string
}

func newTable(head ...string) *table { return &table{rows: [][]string{head}} }

func (t *table) add(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	_ = tw.Flush() // writes to a buffer
}

// pairs is a table of names and values, without a head; empty values are left out.
type pairs struct{ t table }

func (l *pairs) add(name, value string) {
	if value != "" {
		l.t.rows = append(l.t.rows, []string{name + ":", value})
	}
}

// addRow adds a row as it is; a row without a name continues the one before.
func (l *pairs) addRow(name, value string) {
	if name != "" {
		name += ":"
	}
	l.t.rows = append(l.t.rows, []string{name, value})
}

func (l *pairs) write(w io.Writer) { l.t.write(w) }

// age returns how long ago something was.
func (p *program) age(t *timestamppb.Timestamp) string {
	if !t.IsValid() || t.AsTime().Unix() == 0 {
		return ""
	}
	return duration.HumanDuration(max(0, p.now().Sub(t.AsTime())))
}

// when returns when something was and how long ago that is.
func (p *program) when(t *timestamppb.Timestamp) string {
	if age := p.age(t); age != "" {
		return fmt.Sprintf("%s (%s ago)", t.AsTime().UTC().Format(time.RFC3339), age)
	}
	return ""
}

// size returns bytes in a unit for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 3; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGT"[i])
}

// word returns a value of an enum as its lower-case word: OPERATION_STATE_ROLLED_BACK is
// rolled-back.
func word(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(value.String(), prefix), "_", "-"))
}

func stateWord(s mgmtv1.OperationState) string { return word(s, "OPERATION_STATE_") }

func refText(r *mgmtv1.Ref) string {
	if r == nil {
		return ""
	}
	return strings.Join(slices.DeleteFunc([]string{kindText(r), r.GetNamespace(), r.GetName()},
		func(s string) bool { return s == "" }), "/")
}

func kindText(r *mgmtv1.Ref) string {
	if r.GetGroup() == "" {
		return r.GetKind()
	}
	return r.GetKind() + "." + r.GetGroup()
}

// count returns a number with its noun: "1 workload cluster", "2 workload clusters".
func count[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// counts returns how often each word occurs, the most frequent first: "12 released, 1 blocked".
func counts(words map[string]int) string {
	keys := make([]string, 0, len(words))
	for k := range words {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		if words[a] != words[b] {
			return words[b] - words[a]
		}
		return strings.Compare(a, b)
	})
	for i, k := range keys {
		keys[i] = fmt.Sprintf("%d %s", words[k], k)
	}
	return strings.Join(keys, ", ")
}
