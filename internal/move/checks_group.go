package move

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

// trouble is a kind of trouble that several objects of one unit may have. It is one finding for
// each unit: a rollout concerns all Machines of a fleet.
type trouble struct {
	severity object.Severity
	code     object.Code
	// what is the trouble, and means what it means for the move.
	what, means string
	hint        string
}

// named is how many objects the message of a finding names.
const named = 3

// group collects the objects of each unit that have one kind of trouble.
type group struct {
	trouble
	units []string // in the order in which they were found
	first map[string]object.Ref
	items map[string][]string // by unit
}

func (t trouble) group() *group {
	return &group{trouble: t, first: map[string]object.Ref{}, items: map[string][]string{}}
}

// note notes an object, and in words what is the matter with it; "" notes nothing.
func (g *group) note(n *graph.Node, words string) {
	if words == "" {
		return
	}
	if g.items[n.Unit] == nil {
		g.units = append(g.units, n.Unit)
		g.first[n.Unit] = n.Ref
	}
	g.items[n.Unit] = append(g.items[n.Unit], n.Kind+" "+n.Name+" "+words)
}

// report reports one finding for each unit.
func (g *group) report(c *checker) {
	for _, unit := range g.units {
		c.add(object.Finding{Severity: g.severity, Code: g.code, Unit: unit, Ref: g.first[unit],
			Message: g.what + ": " + firstOf(g.items[unit]) + "; " + g.means, Hint: g.hint})
	}
}

// firstOf names the first items of a list, and says how many more there are.
func firstOf(items []string) string {
	text := strings.Join(items[:min(len(items), named)], ", ")
	if more := len(items) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// each calls fn for every object of the units that is wanted. It reads no other: objects are
// captured compressed.
func (c *checker) each(wanted func(*graph.Node) bool,
	fn func(n *graph.Node, o gjson.Result)) error {
	for _, n := range c.nodes {
		if n.Unit == "" || !wanted(n) {
			continue
		}
		raw, err := c.contents.Bytes(n.Ref)
		if err != nil {
			return err
		}
		fn(n, gjson.ParseBytes(raw))
	}
	return nil
}

// isCluster reports whether an object is a Cluster.
func isCluster(n *graph.Node) bool { return n.GroupKind() == capi.Cluster }

// annotationOf returns an annotation of an object; it does not exist when the object has none.
func annotationOf(o gjson.Result, name string) gjson.Result {
	return o.Get("metadata.annotations." + gjson.Escape(name))
}

// conditionOf returns status and reason of a condition, and "" when an object does not have it.
// Objects of version v1beta1 have those of the newer contract in status.v1beta2 (cluster-api v1.10,
// api/v1beta1/machine_types.go).
func conditionOf(o gjson.Result, name string) (status, reason string) {
	for _, list := range []string{"status.v1beta2.conditions", "status.conditions"} {
		for _, condition := range o.Get(list).Array() {
			if condition.Get("type").String() == name {
				return condition.Get("status").String(), condition.Get("reason").String()
			}
		}
	}
	return "", ""
}
