package kube

import (
	"fmt"
	"testing"
)

// TestAKindSaysWhereItsControllersAre: credentials of a provider are in that namespace, which an
// operator may have chosen.
func TestAKindSaysWhereItsControllersAre(t *testing.T) {
	crd := func(provider, annotations, conversion string) Kind {
		k, served, err := kindOfCRD(fmt.Appendf(nil, `{"metadata":{"name":"things.example.org",
			"labels":{"cluster.x-k8s.io/provider":%q},"annotations":{%s}},"spec":{"group":"example.org",
			"names":{"kind":"Thing","plural":"things"},"conversion":%s,
			"versions":[{"name":"v1","served":true,"storage":true}]}}`, provider, annotations, conversion))
		if err != nil || !served {
			t.Fatal(served, err)
		}
		return k
	}
	const webhook = `{"strategy":"Webhook","webhook":{"clientConfig":{"service":{"namespace":"a-system"}}}}`
	kinds := []Kind{crd("one", "", webhook), crd("one", "", `{"strategy":"None"}`),
		crd("two", `"cert-manager.io/inject-ca-from":"b-system/cert"`, `{"strategy":"None"}`),
		crd("", "", `{"strategy":"None"}`)}
	shareControllers(kinds)
	for i, want := range []string{"a-system", "a-system", "b-system", ""} {
		if got := kinds[i].Controller; got != want {
			t.Errorf("controllers of %d are in %q, want %q", i, got, want)
		}
	}
}
