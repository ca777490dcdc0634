package restore

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/graph"
	"github.com/mgmtd/mgmtd/internal/object"
)

func TestAQuotaWithoutRoomBlocksTheUnitsOfItsNamespace(t *testing.T) {
	secret := func(unit, name string) *graph.Node {
		return &graph.Node{Unit: unit, Ref: object.Ref{Kind: "Secret", Namespace: "n", Name: name}}
	}
	planned := map[string][]*graph.Node{"count/secrets": {secret("n/a", "a"), secret("n/a", "b"),
		secret("n/b", "c")}}
	for hard, blocked := range map[string]int{
		`{"count/secrets":"4"}`: 2, `{"secrets":"4"}`: 2, `{"count/secrets":"5"}`: 0,
		`{"count/configmaps":"1"}`: 0, `{"requests.cpu":"1"}`: 0,
	} {
		var q quota
		if err := json.Unmarshal([]byte(`{"metadata":{"name":"q","namespace":"n"},"spec":{"hard":`+hard+
			`},"status":{"used":{"count/secrets":"2","secrets":"2"}}}`), &q); err != nil {
			t.Fatal(err)
		}
		p := &planner{}
		p.checkQuota(q, planned)
		units := map[string]bool{}
		for _, f := range p.findings {
			units[f.Unit] = true
			if f.Code != object.CodeQuota || !strings.Contains(f.Message, "creates 3") {
				t.Errorf("%s: finding %v", hard, f)
			}
		}
		if len(units) != blocked || len(p.findings) != blocked {
			t.Errorf("%s: findings %v, want %d units blocked", hard, p.findings, blocked)
		}
	}
}
