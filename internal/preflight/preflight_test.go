package preflight

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/ownership"
)

func TestRunCarriesOutAllChecksInOrderUntilAnError(t *testing.T) {
	row := func(name string, err error) Check[*[]string] {
		return Check[*[]string]{Name: name, Run: func(_ context.Context, on *[]string) error {
			*on = append(*on, name)
			return err
		}}
	}
	var ran []string
	broken := errors.New("broken")
	err := Run(t.Context(), []Check[*[]string]{row("a", nil), row("b", broken), row("c", nil)}, &ran)
	if !errors.Is(err, broken) || err.Error() != "check b: broken" ||
		!slices.Equal(ran, []string{"a", "b"}) {
		t.Errorf("%v after %v", err, ran)
	}
}

// mayNot refuses some rights, as text.
type mayNot []string

func (m mayNot) Allowed(_ context.Context, verb string, k kube.Kind, subresource string) (bool,
	error) {
	return !slices.Contains(m, Right{verb, subresource}.On(k)), nil
}

func TestRightsReportsEveryMissingRight(t *testing.T) {
	secret := kube.Kind{GroupKind: object.GroupKind{Kind: "Secret"}, Resource: "secrets"}
	machine := kube.Kind{GroupKind: object.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"},
		Resource: "machines", Status: true}
	need := func(k kube.Kind) []Right {
		rights := []Right{{"get", ""}, {"update", ""}}
		if k.Status {
			rights = append(rights, Right{"update", "status"})
		}
		return rights
	}
	missing, err := Rights(t.Context(), mayNot{"get secrets",
		"update machines.cluster.x-k8s.io/status"},
		[]kube.Kind{secret, machine}, need)
	var texts []string
	for _, m := range missing {
		texts = append(texts, m.Finding("target").Message)
	}
	if err != nil || !slices.Equal(texts, []string{
		"the credentials for the target may not update machines.cluster.x-k8s.io/status",
		"the credentials for the target may not get secrets",
	}) {
		t.Errorf("missing %q, %v", texts, err)
	}
}

func TestCompareProvidersFindsMissingAndOlderOnes(t *testing.T) {
	source := []kube.Provider{{Name: "cluster-api", Version: "v1.14.2"},
		{Name: "a", Version: "v1.0.0"},
		{Name: "b", Version: "main"}}
	for _, tt := range []struct {
		name string
		have []kube.Provider
		want []object.Code
	}{
		{"all, at the same version, or one that does not parse", source, nil},
		{"newer", []kube.Provider{{Name: "cluster-api", Version: "v1.15.0"}, source[1], source[2]},
			nil},
		{"older", []kube.Provider{{Name: "cluster-api", Version: "v1.13.0"}, source[1], source[2]},
			[]object.Code{object.CodeProviderOlder}},
		{"missing", source[1:], []object.Code{object.CodeProviderMissing}},
		{"no inventory: an operator, Helm or GitOps has installed them", nil,
			[]object.Code{object.CodeNoInventory}},
	} {
		var codes []object.Code
		for _, f := range CompareProviders(source, tt.have) {
			codes = append(codes, f.Code)
		}
		if !slices.Equal(codes, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, codes, tt.want)
		}
	}
}

func TestCheckInventoryNamesProvidersWhoseKindsAreNotCaptured(t *testing.T) {
	kinds := []kube.Kind{{Provider: "infrastructure-a", Contract: true}, {Provider: "bootstrap-b"}}
	findings := CheckInventory(kinds, []kube.Provider{{Name: "infrastructure-a"},
		{Name: "bootstrap-b", Version: "v1"}, {Name: "addon-c"}})
	if len(findings) != 1 || findings[0].Code != object.CodeContractMissing {
		t.Errorf("findings %v", findings)
	}
	if findings := CheckInventory(kinds, nil); len(findings) != 1 ||
		findings[0].Code != object.CodeNoInventory {
		t.Errorf("findings without an inventory %v", findings)
	}
}

func TestOwnersReportsRecordsOfOtherManagementClusters(t *testing.T) {
	by := func(uid string, trusted bool) ownership.Record {
		return ownership.Record{By: object.Side{UID: uid, Name: "name-of-" + uid}, Epoch: 1,
			Trusted: trusted, Time: time.Now()}
	}
	replayed := func(uid string) ownership.Record {
		r := by(uid, true)
		r.Seen = 2
		return r
	}
	wentBack := object.Forced{object.CodeEpochWentBack: ""}
	o := Owners{Expected: []string{"a", "b"}, Records: map[string]ownership.Record{
		"source": by("a", true), "target": by("b", true), "other": by("c", true),
		"unsigned": by("c", false),
		"damaged":  {Damaged: errors.New("bad signature")},
		"gone":     {Seen: 2}, "replayed": replayed("a"), "replayed-other": replayed("c")}}
	for _, tt := range []struct {
		id       string
		force    object.Forced
		code     object.Code
		severity object.Severity
	}{
		{"none", nil, "", 0},
		{"source", nil, "", 0},
		{"target", nil, "", 0},
		{"other", nil, object.CodeOwnedElsewhere, object.Error},
		{"other", object.Forced{object.CodeOwnedElsewhere: "name-of-c"}, object.CodeOwnedElsewhere,
			object.Warning},
		{"other", object.Forced{object.CodeOwnedElsewhere: "c"}, object.CodeOwnedElsewhere,
			object.Warning},
		{"other", object.Forced{object.CodeOwnedElsewhere: "d"}, object.CodeOwnedElsewhere,
			object.Error},
		{"other", object.Forced{object.CodeOwnerDamaged: ""}, object.CodeOwnedElsewhere, object.Error},
		{"unsigned", nil, object.CodeOwnerUntrusted, object.Warning},
		{"gone", nil, object.CodeEpochWentBack, object.Error},
		{"replayed", nil, object.CodeEpochWentBack, object.Error},
		{"replayed", wentBack, object.CodeEpochWentBack, object.Warning},
		{"replayed-other", nil, object.CodeEpochWentBack, object.Error},
		{"replayed-other", wentBack, object.CodeOwnedElsewhere, object.Error},
		{"damaged", nil, object.CodeOwnerDamaged, object.Error},
		{"damaged", object.Forced{object.CodeOwnerDamaged: ""}, object.CodeOwnerDamaged, object.Warning},
	} {
		o.Force = tt.force
		f, ok := o.Check(tt.id)
		if ok != (tt.code != "") || f.Code != tt.code || f.Severity != tt.severity {
			t.Errorf("%s, forced %v: %v %v", tt.id, tt.force, f, ok)
		}
	}
}
