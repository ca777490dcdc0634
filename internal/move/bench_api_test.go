//go:build api

package move_test

import (
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/catalog"
)

// BenchmarkMoveBesideMany measures the move of one namespace with three workload clusters, each
// batch of which asks for the state of the source several times, beside 200 workload clusters of 8
// Machines that stay there.
func BenchmarkMoveBesideMany(b *testing.B) {
	servers.Clear(b)
	fx := newFixture(b, "bench")
	servers.Fleet(b, 0, "--namespace-prefix", "stays-", "--workloads", "200", "--machines", "8", "--fast")
	move := func() {
		fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
		st, err := fx.state()
		must(b, err)
		fx.report(fx.ended(false, st))
	}
	var listed, most float64
	b.ResetTimer()
	for range b.N {
		before := listBytes(b, 0)
		peak := watchHeap()
		fx.carryOut(fx.order(doMove), catalog.Succeeded, nil)
		b.StopTimer()
		most = max(most, peak())
		listed += listBytes(b, 0) - before
		st, err := fx.state()
		must(b, err)
		fx.report(fx.ended(false, st))
		move() // back
		b.StartTimer()
	}
	b.ReportMetric(listed/float64(b.N)/1e6, "MB-listed/op")
	b.ReportMetric(most/1e6, "MB-heap")
}

var sizeLine = regexp.MustCompile(
	`(?m)^apiserver_response_sizes_sum\{.*verb="(?:LIST|GET)".*\} (\S+)$`)

// listBytes returns how many bytes a server has sent in answers to reads.
func listBytes(tb testing.TB, i int) (sum float64) {
	tb.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", servers.Options(i).KubeconfigFile)
	must(tb, err)
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	must(tb, err)
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(tb.Context())
	must(tb, err)
	for _, m := range sizeLine.FindAllSubmatch(text, -1) {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		must(tb, err)
		sum += v
	}
	return sum
}

// watchHeap returns a function that returns the most memory that was in use since.
func watchHeap() (peak func() float64) {
	runtime.GC()
	done, most := make(chan struct{}), make(chan float64)
	go func() {
		var highest uint64
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			highest = max(highest, m.HeapAlloc)
			select {
			case <-done:
				most <- float64(highest)
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() float64 { close(done); return <-most }
}
