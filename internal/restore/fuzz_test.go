package restore

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// FuzzKubeconfig: whatever a kubeconfig of a snapshot says, using it reaches one server over TLS,
// runs nothing and opens no file (invariant I8).
func FuzzKubeconfig(f *testing.F) {
	good := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443", certificate-authority-data: Y2E=}}], ` +
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
	f.Add([]byte(strings.Replace(good, "https:", "http:", 1)))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := reduce(text)
		if err != nil {
			if len(text) > 60 && strings.Contains(err.Error(), string(text)) {
				t.Errorf("the error %q holds the kubeconfig", err)
			}
			return
		}
		if !strings.HasPrefix(c.Host, "https://") || c.Insecure || c.CAFile != "" || c.CertFile != "" ||
			c.KeyFile != "" || c.BearerTokenFile != "" || c.ExecProvider != nil || c.AuthProvider != nil ||
			c.Proxy != nil || c.Username != "" || c.Impersonate.UserName != "" || c.Dial != nil {
			t.Errorf("took %q", text)
		}
		// What is used after is no more than what is here.
		if host, _, err := rest.DefaultServerUrlFor(c); err == nil && host.Scheme != "https" {
			t.Errorf("%q leads to %s", text, host)
		}
	})
}

// FuzzCertificates reads certificate Secrets, and says of none what is in it.
func FuzzCertificates(f *testing.F) {
	secret := func(crt, key string) []byte {
		encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
		return []byte(`{"data":{"tls.crt":"` + encode(crt) + `","tls.key":"` + encode(key) + `"}}`)
	}
	for _, purpose := range []string{"ca", "sa"} {
		f.Add(secret("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
			"-----BEGIN EC PRIVATE KEY-----\nMA==\n-----END EC PRIVATE KEY-----\n"), purpose)
		f.Add(secret("-----BEGIN PUBLIC KEY-----\nMA==\n-----END PUBLIC KEY-----\n", ""), purpose)
		f.Add([]byte(`{"data":{"tls.crt":7,"tls.key":"="}}`), purpose)
		f.Add([]byte(`{"data":[]}`), purpose)
	}
	f.Fuzz(func(t *testing.T, raw []byte, purpose string) {
		switch got := certificateProblem(raw, purpose); got {
		case "", "tls.crt or tls.key is missing", "tls.crt and tls.key do not belong together",
			"tls.crt and tls.key do not belong together, or one is damaged":
		default:
			t.Errorf("says %q", got)
		}
	})
}

// FuzzPlan: a plan that is read back from the catalog is the plan that was written, by its digest
// too.
func FuzzPlan(f *testing.F) {
	seed, err := json.Marshal(Plan{Units: []Unit{{Name: "team-a/web", WorkloadID: "u", Blocked: true,
		Objects: []Object{{}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"units":null,"findings":[{"severity":"error"}]}`))
	f.Add([]byte(`{"spec":{"force":true}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p, again Plan
		if json.Unmarshal(text, &p) != nil {
			return
		}
		stored, err := json.Marshal(p)
		if err != nil {
			return
		}
		if err := json.Unmarshal(stored, &again); err != nil || again.Digest() != p.Digest() {
			t.Errorf("%s became %s, %v", text, stored, err)
		}
		create, adopt, skip, blocked := p.Counts()
		c, a, s, b := again.Counts()
		if create != c || adopt != a || skip != s || blocked != b {
			t.Errorf("counts of %s changed", text)
		}
		_ = p.CheckCanary("team-a/web")
	})
}
