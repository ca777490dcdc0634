package capi

import (
	"testing"

	"github.com/mgmtd/mgmtd/internal/object"
)

// TestEveryRowSaysWhereItIsFrom validates the built-in rows and the default rows: each has a
// source and a pause, and its paths can be read.
func TestEveryRowSaysWhereItIsFrom(t *testing.T) {
	var rows *Table
	if n := len(rows.Kinds()); n < 30 {
		t.Errorf("only %d rows", n)
	}
	for _, gk := range rows.Kinds() {
		if err := rows.Row(gk).Validate(); err != nil {
			t.Error(err)
		}
	}
	for i := range defaults {
		row := defaults[i].row
		row.GroupKind.Kind = "a default"
		if err := row.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestNewRefusesRowsThatCannotBe(t *testing.T) {
	thing := object.GroupKind{Group: "example.org", Kind: "Thing"}
	role := object.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}
	good := Row{GroupKind: thing, Source: "a test", Pause: PauseByAnnotation,
		Refs: []Reference{{Path: "spec.files.#.secretName", To: Secret},
			{Path: "spec.roleName", To: role}}}
	rows, err := New([]Row{good})
	if err != nil {
		t.Fatal(err)
	}
	if !rows.Has(thing) || !rows.Known(thing) || rows.Row(thing).Pause != PauseByAnnotation ||
		!rows.Has(Cluster) || rows.Tag() == "" {
		t.Error("the row is not in the table")
	}
	if rows.Known(role) || !rows.Known(Secret) || !rows.Known(Machine) {
		t.Error("what a row of the configuration refers to is captured, or built-in kinds are not")
	}
	var builtIn *Table
	if builtIn.Has(thing) || builtIn.Tag() != "" || rows.Fingerprint() == builtIn.Fingerprint() {
		t.Error("the built-in table has the row, too")
	}
	for name, more := range map[string][]Row{
		"twice":        {good, good},
		"built in":     {{GroupKind: Machine, Source: "a test", Pause: PauseNone}},
		"without kind": {{Source: "a test", Pause: PauseNone}},
		"no pause":     {{GroupKind: thing, Source: "a test"}},
		"no source":    {{GroupKind: thing, Pause: PauseNone}},
		"neither in spec nor in status": {{GroupKind: thing, Source: "a test", Pause: PauseNone,
			Refs: []Reference{{Path: "metadata.labels.secretName"}}}},
		"a query": {{GroupKind: thing, Source: "a test", Pause: PauseNone,
			Refs: []Reference{{Path: `spec.files.#(name=="a").secretName`}}}},
		"a list at the end": {{GroupKind: thing, Source: "a test", Pause: PauseNone,
			Refs: []Reference{{Path: "spec.names.#"}}}},
	} {
		if _, err := New(more); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestSecretBelongsToTheClusterOfItsName(t *testing.T) {
	var rows *Table
	for name, want := range map[string]string{"a-ca": "a", "a-b-kubeconfig": "a-b",
		"a-apiserver-etcd-client": "a", "a-etcd": "a", "ca": "", "other": ""} {
		if got := rows.ClusterOfSecret(name); got != want {
			t.Errorf("%s belongs to %q, want %q", name, got, want)
		}
	}
}

func TestLockBelongsToTheClusterOfItsName(t *testing.T) {
	var rows *Table
	lock := object.Ref{Kind: "ConfigMap", Namespace: "ns", Name: "a-lock"}
	cluster, ok := rows.ClusterOfLock(lock)
	if want := (object.Ref{Group: Cluster.Group, Kind: Cluster.Kind, Namespace: "ns",
		Name: "a"}); !ok || cluster != want {
		t.Errorf("%s is the lock of %s, %v", lock, cluster, ok)
	}
	for _, none := range []object.Ref{{Kind: "ConfigMap", Namespace: "ns", Name: "a"},
		{Kind: "Secret", Namespace: "ns", Name: "a-lock"}, {Kind: "ConfigMap", Namespace: "ns",
			Name: "-lock"}} {
		if _, ok := rows.ClusterOfLock(none); ok {
			t.Errorf("%s is a lock", none)
		}
	}
}

// TestASuffixTakesNoSecretOfACommonName: a Secret whose name ends with such a word may belong to
// anything; it would be left out as a part of a workload cluster that does not exist.
func TestASuffixTakesNoSecretOfACommonName(t *testing.T) {
	var rows *Table
	for _, name := range []string{"addon-token", "registry-credentials", "my-config", "web-tls",
		"db-password", "api-key", "helm-values", "cloud-secret"} {
		if cluster := rows.ClusterOfSecret(name); cluster != "" {
			t.Errorf("Secret %s belongs to workload cluster %s", name, cluster)
		}
	}
}
