package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestNamesOfACertificate(t *testing.T) {
	spiffe, err := url.Parse("spiffe://example.com/ops")
	if err != nil {
		t.Fatal(err)
	}
	got := CertificateNames(&x509.Certificate{
		Subject:  pkix.Name{CommonName: "Ops", Organization: []string{"org"}},
		DNSNames: []string{"A.example.com", "b"}, URIs: []*url.URL{spiffe},
		EmailAddresses: []string{"ops@example.com"}, IPAddresses: []net.IP{net.IPv4zero}})
	want := []string{"cn:Ops", "dns:a.example.com", "dns:b", "uri:spiffe://example.com/ops"}
	if !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	if got := CertificateNames(&x509.Certificate{}); len(got) != 0 {
		t.Errorf("names %q of none", got)
	}
}

func TestNamesOfAConfiguration(t *testing.T) {
	for text, want := range map[string]string{
		"cn:Ops": "cn:Ops", "dns:A.example.com": "dns:a.example.com",
		"uri:spiffe://Example.com/a": "uri:spiffe://Example.com/a",
		"ops":                        "", "cn:": "", "": "", "CN:ops": "", "email:a@b": "",
	} {
		if got, err := ParseName(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestTheHighestRoleOfACallerCounts(t *testing.T) {
	rules := &Rules{UID: 990,
		Clients: []Client{{"cn:ops", View}, {"dns:ops.example.com", Restore},
			{"uri:spiffe://x/ops", Operate}},
		Groups: []Group{{"adm", 4, View}, {"sre", 20, Restore}, {"www", 33, Operate}}}
	user := func(uid uint32, groups ...uint32) Caller {
		return Caller{User: &User{UID: uid, Groups: groups}}
	}
	for _, test := range []struct {
		name string
		c    Caller
		role Role
		by   string
	}{
		{"one name", Caller{Names: []string{"cn:ops"}}, View, "cn:ops"},
		{"several names", Caller{Names: []string{"cn:ops", "dns:ops.example.com", "uri:spiffe://x/ops"}},
			Restore, "dns:ops.example.com"},
		{"a name of another kind", Caller{Names: []string{"dns:ops", "cn:ops.example.com"}}, None, ""},
		{"another case", Caller{Names: []string{"cn:OPS"}}, None, ""},
		{"no name", Caller{}, None, ""},
		{"root", user(0), Admin, "user uid 0"},
		{"the daemon's own user", user(990, 4), Admin, "user uid 990"},
		{"several groups", user(1000, 1000, 4, 20, 33), Restore, "group sre"},
		{"no group with a role", user(1000, 1000), None, ""},
	} {
		if role, by := rules.Role(test.c); role != test.role || by != test.by {
			t.Errorf("%s: role %s by %q", test.name, role, by)
		}
	}
}

// TestNamesInLogsAreShort: a caller without any right chooses the names in its certificate.
func TestNamesInLogsAreShort(t *testing.T) {
	c := Caller{Names: slices.Repeat([]string{"cn:" + strings.Repeat("é", 5000) + "\n"}, 1000)}
	if text := c.String(); len(text) > 2000 || strings.Contains(text, "\n") ||
		!strings.HasSuffix(text, "and 992 more") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func TestRolesHaveNames(t *testing.T) {
	for _, name := range RoleNames() {
		if r, err := ParseRole(name); err != nil || r.String() != name {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	for _, name := range []string{"none", "", "root", "Admin"} {
		if r, err := ParseRole(name); err == nil {
			t.Errorf("%q is the role %s", name, r)
		}
	}
}
