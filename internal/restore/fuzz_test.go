package restore

import (
	"encoding/base64"
	"encoding/json"
	"testing"
)

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
