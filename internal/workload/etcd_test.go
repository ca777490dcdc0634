package workload_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// etcdTrial is a workload cluster with an API server, an etcd and their CAs.
type etcdTrial struct {
	*workloadtest.Server
	etcd *workloadtest.Etcd
	ca   *workload.EtcdCA // of the snapshot
}

// newEtcdTrial serves an etcd with members behind the Pods of nodes.
func newEtcdTrial(t *testing.T, nodes []string, members ...workload.EtcdMember) *etcdTrial {
	t.Helper()
	x := &etcdTrial{Server: workloadtest.New(t, workloadtest.NewCA(t))}
	ca := workloadtest.NewCA(t)
	x.etcd, x.ca = x.ServeEtcd(t, ca, members...), etcdCA(t, ca)
	x.Set("uid", nil, nodes...)
	return x
}

func etcdCA(t *testing.T, ca *workloadtest.CA) *workload.EtcdCA {
	t.Helper()
	parsed, err := workload.ParseEtcdCA(ca.Cert, ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// ask reads the Pods, and then asks etcd.
func (x *etcdTrial) ask(t *testing.T) *workload.State {
	t.Helper()
	k := parse(t, x.Kubeconfig(t, time.Now().Add(time.Hour)))
	ca := workload.Certificates(x.CA.Cert)
	s, err := k.Ask(t.Context(), ca, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.AskEtcd(t.Context(), ca, x.ca, s)
	return s
}

var podOfA = []workload.EtcdMember{{Name: "a", Pod: "etcd-a"}}

func TestEtcdNamesItsMembersThroughAPod(t *testing.T) {
	want := []workload.EtcdMember{{Name: "a"}, {Name: "b"}, {Name: "c", Learner: true}}
	// The last one has not started, and has no name yet.
	x := newEtcdTrial(t, []string{"a"}, append(slices.Clone(want), workload.EtcdMember{})...)
	s := x.ask(t)
	if diff := cmp.Diff(want, s.EtcdMembers); diff != "" || s.EtcdNotAsked != "" {
		t.Errorf("%s %s", s.EtcdNotAsked, diff)
	}
}

// TestPodsCountWhereEtcdIsNotAsked: the reason is noted, and no reason ends the comparison.
func TestPodsCountWhereEtcdIsNotAsked(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*etcdTrial)
		says    string
	}{
		"no CA in the snapshot": {func(x *etcdTrial) { x.ca = nil }, "no CA of its etcd"},
		"an etcd of another CA": {func(x *etcdTrial) {
			x.ServeEtcd(t, workloadtest.NewCA(t), workload.EtcdMember{Name: "b"})
		}, "another CA"},
		"swapped CA in the snapshot": {func(x *etcdTrial) { x.ca = etcdCA(t, workloadtest.NewCA(t)) },
			"another CA"},
		"an empty answer": {func(x *etcdTrial) { x.etcd.Set() }, "does not name its members"},
		"too many members": {func(x *etcdTrial) {
			x.etcd.Set(slices.Repeat([]workload.EtcdMember{{Name: "b"}}, 65)...)
		}, "does not name its members"},
		"a huge answer": {func(x *etcdTrial) {
			x.etcd.Set(workload.EtcdMember{Name: strings.Repeat("b", 64<<10)})
		}, "ResourceExhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newEtcdTrial(t, []string{"a"}, workload.EtcdMember{Name: "b"})
			tt.prepare(x)
			s := x.ask(t)
			if diff := cmp.Diff(podOfA, s.EtcdMembers); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(s.EtcdNotAsked, tt.says) {
				t.Errorf("%q does not say %q", s.EtcdNotAsked, tt.says)
			}
		})
	}
}

// TestPodsCountWhereForwardingIsRefused: by the rights of the kubeconfig, by another server, or by
// one that upgrades to nonsense. No words of the server come out.
func TestPodsCountWhereForwardingIsRefused(t *testing.T) {
	const words = "WORDS-OF-THE-SERVER"
	upgrade := func(w http.ResponseWriter, what string, then func(write func(string))) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", what)
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		then(func(s string) { _, _ = conn.Write([]byte(s)) })
	}
	for name, handler := range map[string]http.HandlerFunc{
		"no right": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, words, http.StatusForbidden)
		},
		"no upgrade": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(words)) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/"+words, http.StatusTemporaryRedirect)
		},
		"another protocol": func(w http.ResponseWriter, _ *http.Request) {
			upgrade(w, words, func(func(string)) {})
		},
		"the end": func(w http.ResponseWriter, _ *http.Request) {
			upgrade(w, "SPDY/3.1", func(func(string)) {})
		},
		"nonsense": func(w http.ResponseWriter, _ *http.Request) {
			upgrade(w, "SPDY/3.1", func(write func(string)) { write(strings.Repeat(words, 100)) })
		},
		"resets of streams": func(w http.ResponseWriter, _ *http.Request) {
			upgrade(w, "SPDY/3.1", func(write func(string)) {
				for id := range 4 {
					write("\x80\x03\x00\x03\x00\x00\x00\x08\x00\x00\x00" + string(rune(id)) +
						"\x00\x00\x00\x05")
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newEtcdTrial(t, []string{"a"})
			k := parse(t, x.Kubeconfig(t, time.Now().Add(time.Hour)))
			x.Answer = handler
			s := &workload.State{EtcdMembers: podOfA}
			k.AskEtcd(t.Context(), nil, x.ca, s)
			if diff := cmp.Diff(podOfA, s.EtcdMembers); diff != "" || s.EtcdNotAsked == "" ||
				strings.Contains(s.EtcdNotAsked, words) {
				t.Errorf("%q %s", s.EtcdNotAsked, diff)
			}
		})
	}
}

// TestASilentEtcdLeavesTimeForAnother: one that accepts a connection and never answers.
func TestASilentEtcdLeavesTimeForAnother(t *testing.T) {
	t.Parallel()
	x := newEtcdTrial(t, []string{"a", "b"}, workload.EtcdMember{Name: "a"})
	x.etcd.Silence("etcd-a")
	if s := x.ask(t); s.EtcdNotAsked != "" || len(s.EtcdMembers) != 1 {
		t.Errorf("%q %v", s.EtcdNotAsked, s.EtcdMembers)
	}
}

func TestSilentEtcdsAreLeftAfterAWhile(t *testing.T) {
	t.Parallel()
	x := newEtcdTrial(t, []string{"a", "b"}, workload.EtcdMember{Name: "a"})
	x.etcd.Silence("etcd-a", "etcd-b")
	ctx, cancel := context.WithTimeout(t.Context(), 10*workload.AnswerWithin)
	defer cancel()
	s := &workload.State{EtcdMembers: podOfA}
	parse(t, x.Kubeconfig(t, time.Now().Add(time.Hour))).AskEtcd(ctx, nil, x.ca, s)
	if ctx.Err() != nil || !strings.Contains(s.EtcdNotAsked, "no answer of its etcd") {
		t.Errorf("%q %v", s.EtcdNotAsked, ctx.Err())
	}
}

// TestNamesOfPodsLeadToNoOtherPath: the names are of an answer of the workload cluster.
func TestNamesOfPodsLeadToNoOtherPath(t *testing.T) {
	x := newEtcdTrial(t, nil)
	k := parse(t, x.Kubeconfig(t, time.Now().Add(time.Hour)))
	s := &workload.State{}
	for _, name := range []string{"", "..", "../../../namespaces", "a/b", "a?b", "a%2fb", "A"} {
		s.EtcdMembers = append(s.EtcdMembers, workload.EtcdMember{Pod: name})
	}
	k.AskEtcd(t.Context(), nil, x.ca, s)
	if len(x.Requests()) > 0 || s.EtcdNotAsked != "it has no Pod of etcd" {
		t.Errorf("%q: %d requests", s.EtcdNotAsked, len(x.Requests()))
	}
}

// TestEtcdIsAskedThroughTheServerOfItsCAOnly: another server sees neither the credentials of the
// kubeconfig nor the client certificate for etcd.
func TestEtcdIsAskedThroughTheServerOfItsCAOnly(t *testing.T) {
	x := newEtcdTrial(t, []string{"a"}, workload.EtcdMember{Name: "b"})
	k := parse(t, x.Kubeconfig(t, time.Now().Add(time.Hour)))
	s := &workload.State{EtcdMembers: podOfA}
	k.AskEtcd(t.Context(), workload.Certificates(workloadtest.NewCA(t).Cert), x.ca, s)
	if len(x.Requests()) > 0 || x.etcd.Asked() > 0 || s.EtcdNotAsked == "" {
		t.Errorf("%q: %d requests", s.EtcdNotAsked, len(x.Requests()))
	}
}

func TestACAOfEtcdWithoutItsKeyIsNotUsed(t *testing.T) {
	ca, other := workloadtest.NewCA(t), workloadtest.NewCA(t)
	for name, pair := range map[string][2][]byte{"no key": {ca.Cert, nil}, "another key": {ca.Cert,
		other.Key}, "nothing": {nil, nil}} {
		if _, err := workload.ParseEtcdCA(pair[0], pair[1]); err == nil {
			t.Errorf("%s: it is used", name)
		}
	}
}

func TestAnEtcdMemberSaysWhatWasSeenOfIt(t *testing.T) {
	for want, m := range map[string]workload.EtcdMember{
		`etcd member "a"`:            {Name: "a"},
		`etcd member "a", a learner`: {Name: "a", Learner: true},
		`etcd Pod "etcd-a"`:          {Name: "a", Pod: "etcd-a"},
	} {
		if got := fmt.Sprint(m); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
