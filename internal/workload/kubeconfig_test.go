package workload_test

import (
	"strings"
	"testing"

	"github.com/mgmtd/mgmtd/internal/workload"
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
