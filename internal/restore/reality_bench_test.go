package restore

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
	"github.com/mgmtd/mgmtd/internal/workload/workloadtest"
)

// BenchmarkPlanAsksWorkloadClusters plans a restore of 3,000 workload clusters that answer, and
// whose etcd answers as well, or that accept connections and never answer: the slowest way to be
// silent.
func BenchmarkPlanAsksWorkloadClusters(b *testing.B) {
	const clusters = 3000
	for _, how := range []string{"silent", "answering", "etcd"} {
		b.Run(how, func(b *testing.B) {
			s, etcdCA := workloadtest.New(b, workloadtest.NewCA(b)), workloadtest.NewCA(b)
			s.Set("w", []workload.Node{realNode("cp", true)}, "cp")
			text := string(s.Kubeconfig(b, time.Now().Add(time.Hour)))
			code := object.CodeMachinesCompared
			if how == "silent" {
				text = strings.Replace(text, s.URL, "https://"+silence(b), 1)
				code = object.CodeRealityUnknown
			}
			etcd := s.ServeEtcd(b, etcdCA, workload.EtcdMember{Name: "cp"})
			objects := []string{needsNamespace}
			for i := range clusters {
				name := fmt.Sprint("w", i)
				objects = append(objects, realCluster(name), realSecret(name, "kubeconfig", "value",
					[]byte(text)))
				if how == "etcd" {
					objects = append(objects, realMachine(name, "cp", true, ""), realEtcdCA(name, etcdCA),
						strings.ReplaceAll(realControlPlane, `"w"`, fmt.Sprintf("%q", name)))
				}
			}
			x := newTrial(b, newMemory(b, "source", objects...), newMemory(b, "target"))
			for b.Loop() {
				if list := found(x.makePlan(b), code); len(list) != 1 ||
					!strings.Contains(list[0].Message, fmt.Sprint(clusters)) {
					b.Fatalf("findings %v", list)
				}
			}
			b.ReportMetric(float64(etcd.Asked())/float64(b.N), "etcds/op")
		})
	}
}

// silence returns the address of a server that accepts connections and never answers.
func silence(b *testing.B) string {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	return l.Addr().String()
}
