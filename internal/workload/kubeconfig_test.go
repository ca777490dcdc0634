package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// TestParseRefusesWhatRunsOrLeadsElsewhere: kubeconfigs from a snapshot are reduced to server, CA
// and inline credentials (invariant I8).
func TestParseRefusesWhatRunsOrLeadsElsewhere(t *testing.T) {
	config := func(cluster, user string) []byte {
		return []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c",
			"context":{"cluster":"k","user":"u"}}],
			"clusters":[{"name":"k","cluster":{` + cluster + `}}],"users":[{"name":"u",
				"user":{` + user + `}}]}`)
	}
	if k, err := workload.Parse(config(`"server":"https://a:1"`, `"token":"t"`)); err != nil ||
		k.Server() != "https://a:1" {
		t.Errorf("a plain one: %v", err)
	}
	for name, text := range map[string][]byte{
		"exec": config(`"server":"https://a"`,
			`"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"rm",
				"interactiveMode":"Never"}`),
		"file":     config(`"server":"https://a"`, `"client-certificate":"/etc/passwd"`),
		"token":    config(`"server":"https://a"`, `"tokenFile":"/etc/passwd"`),
		"ca file":  config(`"server":"https://a","certificate-authority":"/etc/passwd"`, ``),
		"proxy":    config(`"server":"https://a","proxy-url":"http://b"`, ``),
		"insecure": config(`"server":"https://a","insecure-skip-tls-verify":true`, ``),
		"no TLS":   config(`"server":"http://a"`, `"token":"t"`),
		"junk":     []byte(`junk`),
	} {
		if k, err := workload.Parse(text); err == nil {
			t.Errorf("%s is used: %v", name, k.Server())
		}
	}
}

// TestAnExpiredKubeconfigIsRenewedFromItsCA: the new one reaches the workload cluster.
func TestAnExpiredKubeconfigIsRenewedFromItsCA(t *testing.T) {
	ca, other := workloadtest.NewCA(t), workloadtest.NewCA(t)
	s := workloadtest.New(t, ca)
	old := parse(t, s.Kubeconfig(t, time.Now().Add(-time.Minute)))
	for _, algorithm := range []string{"", "ECDSA-P256"} {
		text, err := old.Renew("w", ca.Cert, ca.Key, algorithm)
		if err != nil {
			t.Fatal(err)
		}
		k := parse(t, text)
		if _, err := k.Ask(t.Context(), workload.Certificates(ca.Cert), nil); err != nil {
			t.Errorf("%q: %v", algorithm, err)
		}
		if !k.Renews(old, time.Now()) || old.Renews(k, time.Now()) || k.Renews(k, time.Now()) {
			t.Errorf("%q: it is not told apart", algorithm)
		}
		foreign := parse(t, workloadtest.New(t, other).Kubeconfig(t, time.Now().Add(time.Hour)))
		if foreign.Renews(old, time.Now()) {
			t.Error("one of another workload cluster renews it")
		}
	}
	for name, tt := range map[string]struct {
		ca, key   []byte
		algorithm string
	}{
		"another CA": {other.Cert, other.Key, ""}, "another key": {ca.Cert, other.Key, ""},
		"no key": {ca.Cert, nil, ""}, "no CA": {nil, ca.Key, ""}, "junk": {ca.Cert, []byte("junk"), ""},
		"an unknown algorithm": {ca.Cert, ca.Key, "ROT-13"},
	} {
		if _, err := old.Renew("w", tt.ca, tt.key, tt.algorithm); err == nil {
			t.Errorf("%s: it is renewed", name)
		}
	}
}

// FuzzKubeconfig: whatever a kubeconfig of a snapshot says, using it reaches one server over TLS,
// runs nothing and opens no file (invariant I8).
func FuzzKubeconfig(f *testing.F) {
	good := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c,
  context: {cluster: k, user: u}}], clusters: [{name: k,
  cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Y2E=}}], ` +
		`users: [{name: u, user: {client-certificate-data: Y3J0, client-key-data: a2V5}}]}`
	f.Add([]byte(good))
	for _, with := range []string{
		"exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}", "auth-provider: {name: gcp}",
		"tokenFile: /etc/passwd", "client-key: /k", "client-certificate: /c", "username: a, password: b",
		"as: root", "token: t",
	} {
		f.Add([]byte(strings.Replace(good, "client-key-data: a2V5", with, 1)))
	}
	for _, with := range []string{"certificate-authority: /ca", "proxy-url: http://x",
		"insecure-skip-tls-verify: true", "tls-server-name: x"} {
		f.Add([]byte(strings.Replace(good, "certificate-authority-data: Y2E=", with, 1)))
	}
	f.Add([]byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c,
  context: {cluster: k, user: u}}], clusters: [{name: k,
  cluster: {server: "https://a@10.0.0.1:6443/x?y#z"}}], users: [{name: u, user: {token: t}}]}`))
	f.Add([]byte(strings.Replace(good, "https:", "http:", 1)))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := workload.Parse(text)
		if err != nil {
			if len(text) > 60 && strings.Contains(err.Error(), string(text)) {
				t.Errorf("the error %q holds the kubeconfig", err)
			}
			return
		}
		if !strings.HasPrefix(k.Server(), "https://") {
			t.Errorf("%q leads to %s", text, k.Server())
		}
		_, _ = k.Expires(), k.CA()
	})
}
