package capi

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/providers.md")

const providersDocument = "../../docs/providers.md"

const providersIntro = `# Providers

<!-- Generated from internal/capi by "make docs". Do not edit. -->

What mgmtd and mgmtctl know about each provider: which kinds travel with a workload cluster, how a
copy of them is paused, and what is left to do by hand. Kinds of other providers go by the contracts
of Cluster API: what is of the groups of infrastructure, bootstrap and control planes is paused with
its Cluster, and anything else that has the labels of clusterctl is created after the release
(` + "`pause-unknown`" + `). Add such a kind in ` + "`spec.kinds`" + ` ([config.md](config.md#kinds)).

Objects of any other custom kind are captured when they own a captured object, are owned by one, or
have the label of a workload cluster. They are not restored or moved (` + "`captured-only`" + `) until
their kind is in ` + "`spec.kinds`" + `.

A kind that is marked as captured by a dot (•) is in every snapshot, whatever the labels of its CRD
say. All others are captured where the CRD has the labels of clusterctl or of a contract, as
clusterctl and the Cluster API operator install it.

| tried | meaning |
|---|---|
| with controllers | the tests of this project run the provider's own controllers |
| API server | objects of the real CRD were written to an API server, with these fields |
| not run | the source was read, and nothing was run |

| paused by | meaning |
|---|---|
| ` + "`spec`" + ` | spec.paused of the Cluster, which pauses the whole workload cluster |
| ` + "`annotation`" + ` | the annotation cluster.x-k8s.io/paused of the object itself |
| ` + "`own-spec`, `own-spec-last`" + ` | spec.paused of the object itself, given back after that of its Cluster |
| ` + "`reconcile-policy`" + ` | the annotations of the Azure Service Operator, as CAPZ sets them |
| ` + "`host-annotation`" + ` | the annotation baremetalhost.metal3.io/paused, with the status in a second one; released only when its status is that of the source |
| ` + "`with-cluster`" + ` | spec.paused of its Cluster |
| ` + "`none`" + ` | nothing works on it in a way that could do harm |
| ` + "`never`" + ` | it must be at work on both sides |
| ` + "`unknown`" + ` | no pause is known: it is created after the release, and a move is refused (` + "`--force pause-unknown`" + `) |
| ignored | its controllers do not honour a pause: plans are blocked until an operator has stopped them (` +
	"`--force pause-ignored`" + `) |
| ` + "`unsupported`" + ` | there is no pause, or none that is safe to set: its workload cluster is blocked |
`

var provenances = map[Provenance]string{OnlyRead: "not run", OnAPIServer: "API server",
	WithControllers: "with controllers"}

// providersText returns docs/providers.md.
func providersText() string {
	var b strings.Builder
	b.WriteString(providersIntro)
	for _, p := range Projects() {
		fmt.Fprintf(&b, "\n## %s\n\nVersions read: %s.\n", p.Name, p.Versions)
		if p.ByHand != "" {
			fmt.Fprintf(&b, "\n%s\n", p.ByHand)
		}
		if len(p.Rows) == 0 {
			b.WriteString("\nIt has no kinds of its own.\n")
			continue
		}
		b.WriteString("\n| kind | names | paused by | tried | by hand |\n|---|---|---|---|---|\n")
		rows := slices.SortedFunc(slices.Values(p.Rows), func(a, b Row) int {
			return compareKinds(a.GroupKind, b.GroupKind)
		})
		for _, row := range rows {
			writeRow(&b, row)
		}
	}
	return b.String()
}

func writeRow(b *strings.Builder, row Row) {
	var table *Table
	captured := ""
	if row.GroupKind.Group != "" && table.Known(row.GroupKind) {
		captured = "• "
	}
	pause := "`" + row.Pause.String() + "`"
	if row.PauseNeeds != "" {
		pause += " with `" + row.PauseNeeds + "`, else `unsupported`"
	}
	if row.IgnoresPause {
		pause = "ignored"
	}
	byHand := row.ByHand
	if row.HostedEtcd {
		byHand = strings.TrimPrefix(byHand+"; its etcd is not captured", "; ")
	}
	fmt.Fprintf(b, "| %s%s | %s | %s | %s | %s |\n", captured, row.GroupKind, namedBy(row.Refs), pause,
		provenances[row.Provenance], byHand)
}

// namedBy returns the kinds that references name, each once.
func namedBy(refs []Reference) string {
	var names []string
	for _, ref := range refs {
		name := ""
		for _, kind := range ref.kinds() {
			name = kind.Kind
			switch {
			case ref.Controller != "":
				name += " in " + ref.Controller
			case ref.Suffix != "":
				name += " `<name>" + ref.Suffix + "`"
			}
			names = append(names, name)
		}
		if name == "" {
			name = "the kinds that its fields say"
			if ref.Back {
				name = "its consumer, which needs it"
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

func TestProvidersDocumentIsUpToDate(t *testing.T) {
	if *update {
		if err := os.WriteFile(providersDocument, []byte(providersText()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(providersDocument)
	if err != nil || string(is) != providersText() {
		t.Errorf(`%s is not what the rows say (%v): run "make docs"`, providersDocument, err)
	}
}

// TestEveryProviderIsNamedOnce: by its users, with the versions that were read.
func TestEveryProviderIsNamedOnce(t *testing.T) {
	names := map[string]bool{}
	for _, p := range Projects() {
		if p.Name == "" || p.Versions == "" || names[p.Name] || len(p.Rows) == 0 && p.ByHand == "" {
			t.Errorf("provider %q: name, versions, rows or advice are missing", p.Name)
		}
		names[p.Name] = true
	}
	if len(names) < 20 {
		t.Errorf("only %d providers", len(names))
	}
}
