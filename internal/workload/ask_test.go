package workload_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

func parse(t *testing.T, text []byte) *workload.Kubeconfig {
	t.Helper()
	k, err := workload.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAWorkloadClusterIsReadThroughItsKubeconfig(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	// A provider ID of Azure is longer than 128 characters; a name of a Node has up to 253.
	azure := "azure:///subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/production/" +
		"providers/Microsoft.Compute/virtualMachines/production-control-plane-abcde"
	nodes := []workload.Node{{Name: strings.Repeat("a", 253), ProviderID: azure, ControlPlane: true},
		{Name: "b"}}
	s.Set("uid", nodes, "a")
	k := parse(t, s.Kubeconfig(t, time.Now().Add(time.Hour)))
	state, err := k.Ask(t.Context(), workload.Certificates(s.CA.Cert), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := &workload.State{UID: "uid", Nodes: nodes, EtcdMembers: podOfA}
	if diff := cmp.Diff(want, state); diff != "" {
		t.Error(diff)
	}
	if err := k.Reach(t.Context()); err != nil {
		t.Errorf("a server that answers 404 is reached: %v", err)
	}
}

// TestACredentialGoesOnlyToTheServerOfItsCA: a server of another CA sees no credential, whether the
// kubeconfig or the CA of the snapshot does not fit it.
func TestACredentialGoesOnlyToTheServerOfItsCA(t *testing.T) {
	ca, other := workloadtest.NewCA(t), workloadtest.NewCA(t)
	live, imposter := workloadtest.New(t, ca), workloadtest.New(t, other)
	text := live.Kubeconfig(t, time.Now().Add(time.Hour))
	aimed := []byte(strings.Replace(string(text), live.URL, imposter.URL, 1))
	for name, tt := range map[string]struct{ kubeconfig, ca []byte }{
		"another server": {aimed, ca.Cert}, "swapped CA": {text, other.Cert},
	} {
		_, err := parse(t, tt.kubeconfig).Ask(t.Context(), workload.Certificates(tt.ca), nil)
		if _, ok := errors.AsType[*workload.CAError](err); !ok {
			t.Errorf("%s: %v, want a CAError", name, err)
		}
	}
	if n := len(live.Requests()) + len(imposter.Requests()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// TestAnswersAreUntrusted: redirects are not followed, answers are bounded, and no words of a
// server come out.
func TestAnswersAreUntrusted(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	defer elsewhere.Close()
	k := parse(t, s.Kubeconfig(t, time.Now().Add(time.Hour)))
	const words = "WORDS-OF-THE-SERVER"
	for name, handler := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/"+words, http.StatusTemporaryRedirect)
		},
		"an endless answer": func(w http.ResponseWriter, _ *http.Request) {
			for range 6 << 10 {
				_, _ = w.Write(make([]byte, 1<<10))
			}
		},
		"an endless list": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"kind":"NodeList","metadata":{"uid":"u","continue":%q},"items":[]}`,
				words)
		},
		"another JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) },
		"an empty list of nothing": func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, `{"kind":"Namespace","metadata":{"uid":"u"}}`)
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(words)) },
		"a refusal": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, words, http.StatusForbidden)
		},
	} {
		s.Answer = handler
		_, err := k.Ask(t.Context(), nil, nil)
		if _, ok := errors.AsType[*workload.UnknownError](err); !ok ||
			strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.Answer = nil
	s.Set("\x1b[31m"+strings.Repeat("x", 5000), nil)
	if state, err := k.Ask(t.Context(), nil, nil); err != nil || len(state.UID) > 1024 ||
		strings.Contains(state.UID, "\x1b") {
		t.Errorf("%v %v", state, err)
	}
}

// TestServicesOfTheLinkAreNeverAsked: the kubeconfig of a snapshot must not lead to the metadata of
// the cloud of this host.
func TestServicesOfTheLinkAreNeverAsked(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	text := string(s.Kubeconfig(t, time.Now().Add(time.Hour)))
	server := regexp.MustCompile(`https://[0-9.:]+`)
	for _, address := range []string{"169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]"} {
		k := parse(t, []byte(server.ReplaceAllString(text, "https://"+address+":443")))
		if err := k.Reach(t.Context()); err == nil || !strings.Contains(err.Error(), "link of this host") {
			t.Errorf("%s: %v, want it refused", address, err)
		}
	}
}

func TestASilentServerIsLeftAfterAWhile(t *testing.T) {
	s := workloadtest.New(t, workloadtest.NewCA(t))
	done := make(chan struct{})
	s.Answer = func(http.ResponseWriter, *http.Request) { <-done }
	defer close(done)
	_, err := parse(t, s.Kubeconfig(t, time.Now().Add(time.Hour))).Ask(t.Context(), nil, nil)
	if _, ok := errors.AsType[*workload.UnknownError](err); !ok ||
		!strings.Contains(err.Error(), "no answer within") {
		t.Error(err)
	}
}

func TestAKubeconfigSaysWhenItExpiresAndWhoseItIs(t *testing.T) {
	ca, other := workloadtest.NewCA(t), workloadtest.NewCA(t)
	s := workloadtest.New(t, ca)
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	k := parse(t, s.Kubeconfig(t, at))
	if !k.Expires().Equal(at) || k.Server() != s.URL {
		t.Errorf("%s expires %s", k.Server(), k.Expires())
	}
	if !k.FitsCA(workload.Certificates(ca.Cert)) || k.FitsCA(workload.Certificates(other.Cert)) {
		t.Error("the CA is mistaken")
	}
	if _, err := k.Ask(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("an expired credential is accepted: %v", err)
	}
}

// TestAKubeconfigWithoutCertificatesFitsEveryCA: it trusts the CAs of the system, and says nothing
// of that of the workload cluster.
func TestAKubeconfigWithoutCertificatesFitsEveryCA(t *testing.T) {
	k, err := workload.Parse([]byte(`{apiVersion: v1, kind: Config, current-context: c,
		contexts: [{name: c, context: {cluster: k, user: u}}],
		clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"}}],
		users: [{name: u, user: {token: t}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if !k.FitsCA(workload.Certificates(workloadtest.NewCA(t).Cert)) {
		t.Error("it does not fit")
	}
}
