package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// plan is the whole plan of a restore or a move, collected from its stream.
type plan struct {
	header   header
	units    []*mgmtv1.PlanUnit
	objects  []*mgmtv1.PlanObject
	findings []*mgmtv1.Finding
	summary  *mgmtv1.PlanSummary
}

// planDocument is a plan as JSON or YAML: "restore plan" and "move plan" print it, "run --plan" of
// the same noun reads it.
type planDocument struct {
	Kind     string            `json:"kind"`
	Header   json.RawMessage   `json:"header"`
	Units    []json.RawMessage `json:"units"`
	Objects  []json.RawMessage `json:"objects"`
	Findings []json.RawMessage `json:"findings"`
	Summary  json.RawMessage   `json:"summary"`
}

// piece is one message of the stream of a plan. All methods return nil for a header.
type piece interface {
	GetUnit() *mgmtv1.PlanUnit
	GetObject() *mgmtv1.PlanObject
	GetFinding() *mgmtv1.Finding
	GetSummary() *mgmtv1.PlanSummary
}

// receiveAll reads a stream to its end.
func receiveAll[M any](stream grpc.ServerStreamingClient[M]) ([]*M, error) {
	var all []*M
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
}

// receivePlan reads the stream of a plan to its end. headerOf returns the header of a piece that is
// one.
func receivePlan[P any, M interface {
	*P
	piece
}](stream grpc.ServerStreamingClient[P], headerOf func(M) (header, bool)) (*plan, error) {
	pl := &plan{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		item := M(resp)
		if h, ok := headerOf(item); ok {
			pl.header = h
		}
		if u := item.GetUnit(); u != nil {
			pl.units = append(pl.units, u)
		}
		if o := item.GetObject(); o != nil {
			pl.objects = append(pl.objects, o)
		}
		if f := item.GetFinding(); f != nil {
			pl.findings = append(pl.findings, f)
		}
		if s := item.GetSummary(); s != nil {
			pl.summary = s
		}
	}
	if pl.header == nil || pl.summary == nil {
		return nil, errors.New("receive plan: it ends too early")
	}
	return pl, nil
}

// document returns the plan as JSON and YAML print it.
func (pl *plan) document() (*planDocument, error) {
	d := &planDocument{Kind: pl.header.kind()}
	var errs [5]error
	d.Header, errs[0] = rawJSON(pl.header.message())
	d.Units, errs[1] = rawList(pl.units)
	d.Objects, errs[2] = rawList(pl.objects)
	d.Findings, errs[3] = rawList(pl.findings)
	d.Summary, errs[4] = rawJSON(pl.summary)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("write plan: %w", err)
	}
	return d, nil
}

// readPlan reads the output of "plan -o json" or "-o yaml" of this kind. Any other file is a usage
// error.
func readPlan(kind, file string) (*plan, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, planFileError(kind, err)
	}
	pl, err := parsePlan(kind, text)
	if err != nil {
		return nil, planFileError(kind, fmt.Errorf("%s: %w", file, err))
	}
	return pl, nil
}

func parsePlan(kind string, text []byte) (*plan, error) {
	var d planDocument
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	if d.Kind != "" && d.Kind != kind {
		return nil, fmt.Errorf("it is the plan of a %s", d.Kind)
	}
	pl := &plan{header: newHeader(kind), summary: &mgmtv1.PlanSummary{}}
	err := errors.Join(parseRaw(d.Header, pl.header.message()), parseRaw(d.Summary, pl.summary))
	for _, raw := range d.Units {
		unit := &mgmtv1.PlanUnit{}
		err = errors.Join(err, parseRaw(raw, unit))
		pl.units = append(pl.units, unit)
	}
	for _, raw := range d.Findings {
		finding := &mgmtv1.Finding{}
		err = errors.Join(err, parseRaw(raw, finding))
		pl.findings = append(pl.findings, finding)
	}
	if err != nil {
		return nil, err
	}
	if err := pl.header.check(); err != nil {
		return nil, err
	}
	if pl.summary.GetDigest() == "" {
		// Without a digest the server would accept any plan. The operator asked for this one.
		return nil, errors.New("no summary.digest in it")
	}
	return pl, nil
}

func planFileError(kind string, err error) error {
	return &service.Error{Reason: service.ReasonUsage, Message: fmt.Sprintf("read --plan: %v", err),
		Hint: fmt.Sprintf("give a file that \"mgmtctl %s plan -o json\" has printed", kind)}
}

func parseRaw(raw json.RawMessage, m proto.Message) error {
	if len(raw) == 0 {
		return nil
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, m)
}

// blocked reports whether findings block some of the plan, or all of it.
func (pl *plan) blocked() bool {
	return pl.summary.GetBlocked() ||
		pl.summary.GetBlockedUnits() > 0
}

// write writes the plan for people. Objects are counted by kind: there may be tens of thousands.
// JSON lists each.
func (pl *plan) write(w io.Writer, p *program) {
	pl.writeHeader(w, p)
	if len(pl.units) > 0 {
		t := newTable("WORKLOAD CLUSTER", "OBJECTS", "MACHINES", "PLAN")
		for _, u := range pl.units {
			t.add(unitText(u.GetName()), number(u.GetObjects()), number(u.GetMachines()), pl.unitPlan(u))
		}
		fmt.Fprintln(w)
		t.write(w)
	}
	if len(pl.objects) > 0 {
		fmt.Fprintln(w)
		writeKinds(w, pl.objects)
	}
	if len(pl.findings) > 0 {
		fmt.Fprintln(w)
		writeFindings(w, pl.findings)
	}
	fmt.Fprintf(w, "\n%s\n", pl.summaryText())
}

// writeSummary writes what an operator must know before confirming.
func (pl *plan) writeSummary(w io.Writer, p *program) {
	pl.writeHeader(w, p)
	var worth []*mgmtv1.Finding
	for _, f := range pl.findings {
		if f.GetSeverity() >= mgmtv1.Severity_SEVERITY_WARNING {
			worth = append(worth, f)
		}
	}
	if len(worth) > 0 {
		fmt.Fprintln(w)
		writeFindings(w, worth)
	}
	fmt.Fprintf(w, "\n%s\n", pl.summaryText())
}

func (pl *plan) writeHeader(w io.Writer, p *program) {
	var l pairs
	pl.header.facts(&l, p)
	l.write(w)
}

func (pl *plan) unitPlan(u *mgmtv1.PlanUnit) string {
	if u.GetBlocked() {
		return "blocked"
	}
	return pl.header.does(u)
}

func (pl *plan) summaryText() string {
	s := pl.summary
	text := fmt.Sprintf("%d to create, %d to adopt, %d left out", s.GetCreate(), s.GetAdopt(),
		s.GetSkip())
	switch {
	case s.GetBlocked():
		text += "; findings block all of it"
	case s.GetBlockedUnits() > 0:
		text += fmt.Sprintf("; findings block %s", count(s.GetBlockedUnits(), "workload cluster"))
	}
	return text
}

// writeKinds counts objects by kind, and those left out by reason.
func writeKinds(w io.Writer, objects []*mgmtv1.PlanObject) {
	type tally struct{ create, adopt, skip int64 }
	kinds, reasons := map[string]*tally{}, map[string]int64{}
	for _, o := range objects {
		kind := kindText(o.GetRef())
		if kinds[kind] == nil {
			kinds[kind] = &tally{}
		}
		switch o.GetAction() {
		case mgmtv1.PlanAction_PLAN_ACTION_ADOPT:
			kinds[kind].adopt++
		case mgmtv1.PlanAction_PLAN_ACTION_SKIP:
			kinds[kind].skip++
			reasons[o.GetReason()]++
		default:
			kinds[kind].create++
		}
	}
	t := newTable("KIND", "CREATE", "ADOPT", "LEFT OUT")
	for _, kind := range sortedKeys(kinds) {
		n := kinds[kind]
		t.add(kind, number(n.create), number(n.adopt), number(n.skip))
	}
	t.write(w)
	if len(reasons) == 0 {
		return
	}
	t = newTable("LEFT OUT", "REASON")
	for _, reason := range sortedKeys(reasons) {
		t.add(number(reasons[reason]), reason)
	}
	fmt.Fprintln(w)
	t.write(w)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
