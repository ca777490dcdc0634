package fence

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
	"github.com/mgmtd/mgmtd/internal/restore"
)

func cluster(namespace, name, id, epoch string, labels ...string) Cluster {
	c := Cluster{Ref: object.Ref{Group: capi.Cluster.Group, Kind: capi.Cluster.Kind,
		Namespace: namespace, Name: name}, ID: id, Labels: map[string]string{},
		annotations: map[string]string{capi.AnnotationEpoch: epoch}}
	for _, l := range labels {
		c.Labels[l] = "yes"
	}
	return c
}

// TestI1OnlyATrustedRecordOfAHigherEpochTakesAWorkloadCluster: everybody with write access must
// not be able to stop the controllers of a management cluster.
func TestI1OnlyATrustedRecordOfAHigherEpochTakesAWorkloadCluster(t *testing.T) {
	by := func(uid string, epoch, seen int64, trusted bool) ownership.Record {
		return ownership.Record{By: object.Side{Name: uid, UID: uid}, Epoch: epoch, Seen: seen,
			Trusted: trusted}
	}
	for _, tt := range []struct {
		name   string
		record ownership.Record
		mark   string // the epoch that the Cluster carries
		lost   bool
		code   object.Code
	}{
		{"none", ownership.Record{}, "", false, ""},
		{"its own", by("here", 2, 2, true), "s1/2", false, ""},
		{"of another", by("there", 1, 1, true), "", true, ""},
		{"of another, newer than the Cluster's", by("there", 3, 3, true), "s1/2", true, ""},
		{"of another, older than the Cluster's", by("there", 1, 1, true), "s1/2", false,
			object.CodeEpochWentBack},
		{"of another, released here without a record since", by("there", 2, 2, true), "s1/2", false,
			object.CodeOwnedElsewhere},
		{"of another, marked in another store", by("there", 1, 1, true), "s2/9", true, ""},
		{"of another, older than one seen before", by("there", 1, 2, true), "", false,
			object.CodeEpochWentBack},
		{"of another, by an unknown signer", by("there", 9, 0, false), "", false,
			object.CodeOwnerUntrusted},
		{"damaged", ownership.Record{Damaged: errors.New("no JSON")}, "", false,
			object.CodeOwnerDamaged},
	} {
		o := Owners{StoreID: "s1", UID: "here", Records: map[string]ownership.Record{"w-1": tt.record}}
		if tt.name == "none" {
			o.Records = nil
		}
		lost, findings := o.Lost([]Cluster{cluster("ns", "w", "w-1", tt.mark)})
		var code object.Code
		if len(findings) > 0 {
			code = findings[0].Code
		}
		if len(lost) == 1 != tt.lost || code != tt.code {
			t.Errorf("%s: lost %v, findings %v", tt.name, lost, findings)
		}
	}
}

func TestSelectFindsClustersByEachWay(t *testing.T) {
	all := []Cluster{cluster("a", "1", "", ""), cluster("a", "2", "", "", "gold"),
		cluster("b", "1", "", "", "gold"), cluster("c", "1", "", "")}
	for _, tt := range []struct {
		selection restore.Selection
		want      string // "" for an error
	}{
		{restore.Selection{}, "a/1 a/2 b/1 c/1"},
		{restore.Selection{Namespaces: []string{"a"}}, "a/1 a/2"},
		{restore.Selection{Selector: "gold"}, "a/2 b/1"},
		{restore.Selection{Workloads: []object.Key{{Namespace: "c", Name: "1"}}, Selector: "gold"},
			"a/2 b/1 c/1"},
		{restore.Selection{Workloads: []object.Key{{Namespace: "d", Name: "1"}}}, ""},
		{restore.Selection{Selector: "silver"}, ""},
		{restore.Selection{Selector: "=="}, ""},
	} {
		got, err := Select(all, tt.selection)
		names := make([]string, len(got))
		for i, c := range got {
			names[i] = c.Unit()
		}
		var selection *restore.SelectionError
		if strings.Join(names, " ") != tt.want || (tt.want == "") != errors.As(err, &selection) {
			t.Errorf("%s: %v, %v", fmt.Sprint(tt.selection), names, err)
		}
	}
}
