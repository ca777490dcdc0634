package kube

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestAskingAgainOpensNoOtherConnection: a daemon asks each second, and client-go shares no
// connection through a proxy between clients.
func TestAskingAgainOpensNoOtherConnection(t *testing.T) {
	var opened atomic.Int64
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"uid":%q},"gitVersion":"v1.36.0"}`,
			r.URL.Host)
	}))
	proxy.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	proxy.Start()
	t.Cleanup(proxy.Close)
	o := Options{KubeconfigFile: filepath.Join(t.TempDir(), "kubeconfig")}
	serves := func(host string) {
		t.Helper()
		text := fmt.Sprintf(`{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"a"}}],
			"clusters":[{"name":"a","cluster":{"server":"http://%s","proxy-url":%q}}]}`, host, proxy.URL)
		if err := os.WriteFile(o.KubeconfigFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serves("one.invalid")
	m, err := Connect(t.Context(), o)
	for range 5 {
		if err != nil {
			t.Fatal(err)
		}
		m, err = m.Again(t.Context())
	}
	if err != nil || m.UID() != "one.invalid" || opened.Load() != 1 {
		t.Errorf("%d connections, management cluster %s, %v", opened.Load(), m.UID(), err)
	}
	serves("two.invalid")
	if m, err = m.Again(t.Context()); err != nil || m.UID() != "two.invalid" {
		t.Errorf("with another kubeconfig: %s, %v", m.UID(), err)
	}
	if err := os.Remove(o.KubeconfigFile); err != nil {
		t.Fatal(err)
	}
	if m, err := m.Again(t.Context()); err == nil {
		t.Errorf("without a kubeconfig: %s", m.UID())
	}
	serves("one.invalid")
	proxy.Close()
	if again, err := m.Again(t.Context()); err == nil {
		t.Errorf("of a proxy that is gone: %s", again.UID())
	}
}

// TestAKubeconfigThatLacksSomethingSaysWhat: client-go asks for a variable of the environment.
func TestAKubeconfigThatLacksSomethingSaysWhat(t *testing.T) {
	const clusters = `"clusters":[{"name":"a","cluster":{"server":"http://127.0.0.1:1"}}]`
	for _, tt := range []struct{ text, context, want string }{
		{`{}`, "", "no context"},
		{`{"contexts":[{"name":"a","context":{"cluster":"a"}}],` + clusters + `}`, "",
			"no current context; it has a"},
		{`{"contexts":[{"name":"a","context":{"cluster":"a"}}],` + clusters + `}`, "b",
			`no context "b"; it has a`},
		{`{"contexts":[{"name":"a","context":{"cluster":"z"}}],` + clusters + `}`, "a",
			`names cluster "z"`},
		{`{"contexts":[{"name":"a","context":{"cluster":"a","user":"u"}}],` + clusters + `}`, "a",
			`names user "u"`},
		{`{"contexts":[{"name":"a","context":{"cluster":"a"}}],` + clusters + `}`, "a", "refused"},
	} {
		o := Options{KubeconfigFile: filepath.Join(t.TempDir(), "kubeconfig"), Context: tt.context}
		if err := os.WriteFile(o.KubeconfigFile, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Connect(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, context %q: %v, want %q", tt.text, tt.context, err, tt.want)
		}
	}
}
