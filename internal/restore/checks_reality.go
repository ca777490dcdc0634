package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/task"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// realityAtOnce is how many workload clusters are asked at once, and readAtOnce of how many the
// lists are read at once. One that does not answer takes workload.AnswerWithin and little else, one
// that answers takes processor time and memory. Plans of 3,000 silent ones took 15 s with 512, 11 s
// with 1,024 and 50 s with 128. With 1,024 the plans of 3,000 that answer took twice as long as
// with 512 (BenchmarkPlanAsksWorkloadClusters on two busy cores). Those whose etcd answers as well
// took 17 s instead of 5 s, with the servers in the same process, and the etcd of each was asked.
const realityAtOnce, readAtOnce = 512, 64

// asked is what a workload cluster answered.
type asked struct {
	*recorded
	state *workload.State
	err   error
}

// checkReality compares the Machines of the snapshot with the Nodes and the etcd members of the
// workload clusters that answer. A snapshot is older than what it describes: a released control
// plane removes the etcd members of Machines that it does not know, and Machines whose Node is gone
// are replaced. That a workload cluster does not answer from here is never an error. In a move the
// source is at work, and its Machines are as of its last snapshot.
func checkReality(ctx context.Context, p *planner) error {
	if p.Spec.SourceAtWork {
		return nil
	}
	clusters, err := p.recordedClusters()
	if err != nil {
		return err
	}
	p.clustersByCA = map[string]int{}
	for _, r := range clusters {
		p.clustersByCA[caKey(r.authority())]++
	}
	answers := make([]asked, len(clusters))
	g := task.Group{}
	g.SetLimit(realityAtOnce)
	reading := make(chan struct{}, readAtOnce)
	for i, r := range clusters {
		answers[i].recorded = r
		ask, err := p.checkKubeconfig(ctx, r)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		if ask {
			g.Go(func() error {
				answers[i].state, answers[i].err = r.ask(ctx, reading)
				return nil
			})
		}
	}
	if err := errors.Join(g.Wait(), ctx.Err()); err != nil {
		return err
	}
	p.reportReality(answers)
	return nil
}

// recordedClusters returns what the snapshot has of each workload cluster of the plan but for those
// that are at work on the target: its controllers have changed their Machines since.
func (p *planner) recordedClusters() ([]*recorded, error) {
	refs := map[string][]object.Ref{}
	var units []string
	for n := range p.active {
		if n.Unit != "" {
			refs[n.Unit] = append(refs[n.Unit], n.Ref)
		}
		if n.GroupKind() == capi.Cluster && !p.atWork[n.Unit] {
			units = append(units, n.Unit)
		}
	}
	var list []*recorded
	for _, unit := range units {
		r, err := readRecorded(p.rows(), p.Contents, unit, refs[unit])
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// checkKubeconfig checks what needs no answer of a workload cluster. ask reports whether it can be
// asked.
func (p *planner) checkKubeconfig(ctx context.Context, r *recorded) (ask bool, err error) {
	ref := r.kubeconfigRef()
	switch {
	case p.isOwn(r):
		p.hold(r)
		return false, nil
	case r.missing:
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeKubeconfigMissing,
			Unit: r.unit, Ref: r.cluster, Message: "Secret " + ref.String() + " is not in the snapshot",
			Hint: "without it no controller reaches the workload cluster, unless the provider of its " +
				"control plane makes it again"})
		return false, nil
	case r.kubeconfig == nil:
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeKubeconfigInvalid,
			Unit: r.unit, Ref: ref, Message: r.problem,
			Hint: "the workload cluster cannot be compared with the snapshot; compare it by hand"})
		return false, nil
	case r.otherCA():
		p.addCA(r, "its Secret "+r.cluster.Name+"-ca has another CA than its kubeconfig")
		return false, nil
	case r.kubeconfig.IsExpired(p.Now()):
		return true, p.checkExpired(ctx, r)
	}
	return true, nil
}

// checkExpired reports an expired kubeconfig, unless the target has a renewed one, and replaces it
// by one with which the workload cluster can be asked. One that is made for that is not stored.
func (p *planner) checkExpired(ctx context.Context, r *recorded) error {
	ref := r.kubeconfigRef()
	if p.existing[ref] != "" {
		live, err := liveKubeconfig(ctx, p.Reader, ref)
		if err != nil {
			return err
		}
		if live != nil && live.Renews(r.kubeconfig, p.Now()) {
			r.kubeconfig = live
			return nil
		}
	}
	f := object.Finding{Severity: object.Warning, Code: object.CodeKubeconfigExpired, Unit: r.unit,
		Ref: ref, Message: "its client certificate expired on " +
			r.kubeconfig.Expires().UTC().Format(time.DateOnly),
		Hint: "a kubeadm control plane renews it after the release; another provider may not"}
	text, problem := r.renewal.renew(r.cluster.Name, r.kubeconfig, quickAlgorithm)
	switch {
	case problem != "":
		f.Message += ", and it cannot be renewed here: " + problem + "; renew it by hand, unless the " +
			"provider of its control plane does"
		f.Hint = ""
	case !p.Spec.RenewKubeconfigs:
		f.Hint += ". Until then the workload cluster cannot be compared with the snapshot"
	default:
		f.Severity, f.Hint = object.Info, ""
		f.Message += ", and it is renewed from the CA of the snapshot before the release"
		if k, err := workload.Parse(text); err == nil {
			r.kubeconfig = k
		}
	}
	p.addAll(f)
	return nil
}

// quickAlgorithm is that of the key of a certificate for the questions of a plan. Thousands of RSA
// keys take minutes.
const quickAlgorithm = "ECDSA-P256"

// isOwn reports whether a workload cluster is the source management cluster itself, by the address
// of its API server and the CA that the snapshot recorded. A CA alone is proof when no other
// workload cluster has it: several that are reached through one proxy share its CA.
func (p *planner) isOwn(r *recorded) bool {
	api := p.Snapshot.About.API
	if api == nil || p.Source.Source.UID == p.Target.UID {
		return false
	}
	sameCA := len(api.CA) > 0 && slices.Equal(api.CA, r.authority())
	sameServer := r.kubeconfig != nil && r.kubeconfig.Server() == api.Server
	return sameCA && (sameServer || p.clustersByCA[caKey(api.CA)] == 1)
}

// authority identifies the CA of a workload cluster: that of its kubeconfig, else that of its
// Secret.
func (r *recorded) authority() []string {
	if r.kubeconfig != nil {
		return r.kubeconfig.CA()
	}
	return workload.KeyIDs(r.ca)
}

func caKey(ca []string) string { return strings.Join(ca, " ") }

// hold has a unit restored and never released.
func (p *planner) hold(r *recorded) {
	p.held[r.unit] = true
	p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeOwnCluster, Unit: r.unit,
		Ref: r.cluster, Message: "it is the Cluster of the source management cluster itself; it is " +
			"restored and stays paused",
		Hint: "its Machines are dead, and controllers would replace them: leave it paused until it is " +
			"decided what becomes of the old management cluster"})
}

func (p *planner) addCA(r *recorded, message string) {
	f := object.Finding{Severity: object.Error, Code: object.CodeCAMismatch, Unit: r.unit,
		Ref: r.cluster, Message: message,
		Hint: "the workload cluster was made again since, or the Secrets were swapped: use a snapshot " +
			"of the workload cluster that there is, or leave it out"}
	if p.Spec.Force.Has(object.CodeCAMismatch) {
		f.Severity = object.Warning
	}
	p.addAll(f)
}

// reportReality reports what the answers say.
func (p *planner) reportReality(answers []asked) {
	compared, silent := comparison{}, 0
	var clusters, unknownNodes, withoutEtcd, byPods int
	var first, firstByPods string
	for _, a := range answers {
		if _, other := errors.AsType[*workload.CAError](a.err); other {
			p.addCA(a.recorded, a.err.Error())
			continue
		}
		if a.err != nil {
			if silent++; first == "" {
				first = a.unit + ": " + a.err.Error()
			}
			continue
		}
		if a.state == nil {
			continue
		}
		if a.state.UID == p.Source.Source.UID && p.Source.Source.UID != p.Target.UID {
			p.hold(a.recorded)
			continue
		}
		c := a.compare(a.state)
		p.compared[a.unit] = true
		clusters++
		compared.matched += c.matched
		compared.gone = append(compared.gone, c.gone...)
		unknownNodes += len(c.control) + len(c.workers)
		switch {
		case a.state.EtcdUnknown != "" && a.etcd:
			withoutEtcd++
		case a.state.EtcdNotAsked != "":
			if byPods++; firstByPods == "" {
				firstByPods = a.unit + ": " + a.state.EtcdNotAsked
			}
		}
		p.reportComparison(a.recorded, c)
	}
	if clusters > 0 {
		message := fmt.Sprintf("compared with the Nodes of %d workload clusters: %d Machines matched, "+
			"%d gone, %d Nodes or etcd members unknown", clusters, compared.matched, len(compared.gone),
			unknownNodes)
		if withoutEtcd > 0 {
			message += fmt.Sprintf("; the etcd members of %d are not known", withoutEtcd)
		}
		if byPods > 0 {
			message += fmt.Sprintf("; the etcd of %d could not be asked, so that its Pods counted, the "+
				"first is %s", byPods, firstByPods)
		}
		p.addAll(object.Finding{Severity: object.Info, Code: object.CodeMachinesCompared,
			Message: message})
	}
	if silent > 0 {
		p.addAll(object.Finding{Severity: object.Warning, Code: object.CodeRealityUnknown,
			Message: fmt.Sprintf("%d of %d workload clusters could not be compared with the snapshot, the "+
				"first is %s", silent, len(answers), first),
			Hint: "plan from a host that reaches their API servers, or compare their Machines with " +
				"the infrastructure"})
	}
}

// reportComparison reports how a workload cluster differs from the snapshot. Nothing blocks a unit
// that stays paused.
func (p *planner) reportComparison(r *recorded, c comparison) {
	unknown, gone := object.Error, object.Error
	if p.Spec.NoRelease {
		unknown, gone = object.Warning, object.Warning
	}
	if p.Spec.Force.Has(object.CodeMachinesGone) {
		gone = object.Warning
	}
	p.addAll(r.unknownFindings(c, unknown, p.newerWith(r.cluster.Namespace))...)
	p.addAll(r.goneFindings(c, gone)...)
	for _, m := range c.gone {
		p.gone[r.unit] = append(p.gone[r.unit], m.ref)
	}
}

// newerWith returns a function that names the newest snapshot that has the Machine of a Node.
func (p *planner) newerWith(namespace string) func(node string) string {
	return func(node string) string {
		if p.NewerWith == nil {
			return ""
		}
		return p.NewerWith(object.Ref{Group: capi.Machine.Group, Kind: capi.Machine.Kind,
			Namespace: namespace, Name: node})
	}
}
