package restore

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// recorded is what the snapshot has of a workload cluster that can be compared with what there is.
type recorded struct {
	unit    string
	cluster object.Ref
	// kubeconfig is nil when there is none that can be used; problem says why.
	kubeconfig *workload.Kubeconfig
	problem    string
	missing    bool // there is no kubeconfig at all
	renewal    renewal
	ca         []*x509.Certificate
	machines   []recordedMachine
	// pools are the names and provider IDs of the Nodes of machine pools.
	pools map[string]bool
	// controlPlane: its control plane is made of Machines. The snapshot may be of a time before the
	// first one.
	controlPlane bool
	// etcd: its control plane runs etcd, and removes members that are not of its Machines.
	etcd bool
	// etcdCA is nil when the snapshot has none with a key.
	etcdCA *workload.EtcdCA
}

// recordedMachine is what the snapshot has of a Machine.
type recordedMachine struct {
	ref                    object.Ref
	node, providerID       string
	controlPlane, deleting bool
	// etcd is its etcd member, when that is there without its Node; "" when there is none.
	etcd string
}

func (m recordedMachine) String() string {
	s := fmt.Sprintf("provider ID %q, Node %q", m.providerID, m.node)
	if m.etcd != "" {
		s += ", " + m.etcd + " is left"
	}
	if m.deleting {
		s += ", being deleted when the snapshot was taken"
	}
	return s
}

// readRecorded reads what the snapshot has of a workload cluster among the objects of its unit.
func readRecorded(rows *capi.Table, c Contents, unit string, refs []object.Ref) (*recorded, error) {
	key, err := object.ParseKey(unit)
	if err != nil {
		return nil, err
	}
	r := &recorded{unit: unit, pools: map[string]bool{}, missing: true, cluster: object.Ref{
		Group: capi.Cluster.Group, Kind: capi.Cluster.Kind, Namespace: key.Namespace, Name: key.Name}}
	hasCA := false
	for _, ref := range refs {
		certificates := rows.Row(ref.GroupKind()).Certificates
		hasCA = hasCA || slices.Contains(certificates, "ca")
		r.etcd = r.etcd || slices.Contains(certificates, "etcd")
		read := r.reader(rows, ref)
		if read == nil {
			continue
		}
		raw, err := c.Bytes(ref)
		if err != nil {
			return nil, err
		}
		read(raw)
	}
	if hasCA {
		r.ca, r.controlPlane = workload.Certificates(r.renewal.ca), true
	}
	return r, nil
}

// reader returns what reads an object of the unit; nil for one of which nothing is needed.
func (r *recorded) reader(rows *capi.Table, ref object.Ref) func(raw []byte) {
	switch {
	case ref == r.kubeconfigRef():
		return func(raw []byte) {
			r.kubeconfig, r.problem = readKubeconfig(raw)
			r.missing, r.renewal.generated = false, isGenerated(rows, raw, r.cluster.Name)
		}
	case ref == r.secretRef("-ca"):
		return r.renewal.readAuthority
	case ref == r.secretRef("-etcd"):
		return func(raw []byte) {
			if ca, err := workload.ParseEtcdCA(readKeyPair(raw)); err == nil {
				r.etcdCA = ca
			}
		}
	case ref.Group == capi.GroupControlPlane:
		return r.readControlPlane
	case ref.GroupKind() == capi.Machine:
		return func(raw []byte) {
			m := readMachine(ref, raw)
			r.machines, r.controlPlane = append(r.machines, m), r.controlPlane || m.controlPlane
		}
	case ref.GroupKind() == capi.MachinePool:
		return r.readPool
	default:
		return nil
	}
}

// readControlPlane reads a control plane. Templates of control planes have no Machines of their
// own, and are in no unit. spec.machineTemplate is of the contract of control planes with Machines
// (cluster-api v1.14, internal/contract/controlplane.go).
func (r *recorded) readControlPlane(raw []byte) {
	f := gjson.GetManyBytes(raw, "spec.machineTemplate",
		"spec.kubeadmConfigSpec.clusterConfiguration.encryptionAlgorithm")
	r.controlPlane = r.controlPlane || f[0].Exists()
	r.renewal.algorithm = f[1].String()
}

func readMachine(ref object.Ref, raw []byte) recordedMachine {
	f := gjson.GetManyBytes(raw, "status.nodeRef.name", "spec.providerID",
		"metadata.deletionTimestamp", `metadata.labels.cluster\.x-k8s\.io/control-plane`)
	return recordedMachine{ref: ref, node: f[0].String(), providerID: f[1].String(),
		deleting: f[2].Exists(), controlPlane: f[3].Exists()}
}

func (r *recorded) readPool(raw []byte) {
	for _, list := range gjson.GetManyBytes(raw, "status.nodeRefs.#.name", "spec.providerIDList") {
		for _, v := range list.Array() {
			r.pools[v.String()] = true
		}
	}
}

func (r *recorded) kubeconfigRef() object.Ref { return r.secretRef(kubeconfigSuffix) }

// secretRef is the Secret of the Cluster that ends in suffix.
func (r *recorded) secretRef(suffix string) object.Ref {
	return object.Ref{Kind: "Secret", Namespace: r.cluster.Namespace, Name: r.cluster.Name + suffix}
}

// ask reads the state of the workload cluster. Where its control plane runs etcd, that is asked for
// its members as well, after the place in reading is free again: it may be silent.
func (r *recorded) ask(ctx context.Context, reading chan struct{}) (*workload.State, error) {
	state, err := r.kubeconfig.Ask(ctx, r.ca, reading)
	if err == nil && r.etcd {
		r.kubeconfig.AskEtcd(ctx, r.ca, r.etcdCA, state)
	}
	return state, err
}

// otherCA reports whether the CA of the snapshot is another one than that of the kubeconfig.
func (r *recorded) otherCA() bool {
	return r.kubeconfig != nil && len(r.ca) > 0 && !r.kubeconfig.FitsCA(r.ca)
}

// comparison is how a workload cluster differs from the snapshot.
type comparison struct {
	matched int
	// gone are the Machines whose Node is not there any more.
	gone []recordedMachine
	// control are the Nodes of the control plane and the etcd members that no Machine accounts for,
	// by the name of the Node, with the evidence.
	control map[string]string
	// workers are the other Nodes that no Machine accounts for.
	workers []workload.Node
}

// compare compares the Machines of the snapshot with the Nodes and etcd members that there are. A
// Machine is found by its provider ID, else by the name of its Node. A Machine that had no Node yet
// is never gone.
func (r *recorded) compare(s *workload.State) comparison {
	nodes := indexNodes(s.Nodes)
	c := comparison{control: map[string]string{}}
	members := map[string]string{}
	for _, m := range s.EtcdMembers {
		if r.etcd {
			members[m.Name] = m.String()
		}
	}
	ofMachines := map[string]bool{}
	for _, m := range r.machines {
		if m.node != "" {
			ofMachines[m.node] = ofMachines[m.node] || m.controlPlane
		}
		n, there := nodes.of(m)
		switch {
		case there:
			c.matched++
			ofMachines[n.Name] = true
			delete(nodes.byName, n.Name)
		case m.node != "":
			m.etcd = members[m.node]
			c.gone = append(c.gone, m)
		}
	}
	for _, n := range s.Nodes {
		if _, left := nodes.byName[n.Name]; !left || r.pools[n.Name] || r.pools[n.ProviderID] {
			continue
		}
		if n.ControlPlane && r.controlPlane {
			c.control[n.Name] = nodeEvidence(n, members[n.Name])
		} else {
			c.workers = append(c.workers, n)
		}
	}
	for name, member := range members {
		if !ofMachines[name] && c.control[name] == "" {
			c.control[name] = member
		}
	}
	return c
}

// nodeEvidence says what was seen of a Node of the control plane; member is its etcd member, ""
// when it has none.
func nodeEvidence(n workload.Node, member string) string {
	if member != "" {
		member = ", " + member
	}
	return fmt.Sprintf("Node %q (provider ID %q%s)", n.Name, n.ProviderID, member)
}

// nodeIndex finds the Node of a Machine.
type nodeIndex struct{ byName, byProvider map[string]workload.Node }

func indexNodes(nodes []workload.Node) nodeIndex {
	x := nodeIndex{byName: map[string]workload.Node{}, byProvider: map[string]workload.Node{}}
	for _, n := range nodes {
		x.byName[n.Name] = n
		if n.ProviderID != "" {
			x.byProvider[n.ProviderID] = n
		}
	}
	return x
}

// of finds the Node by the provider ID of the Machine, else by its name, where no other provider ID
// speaks against that. A host may have got another Machine since, with the same provider ID and
// another Node. Controllers set the Node of a Machine once, and look for the etcd member by it
// (cluster-api v1.14, core/reconcilers/machine/machine_controller_noderef.go).
func (x nodeIndex) of(m recordedMachine) (workload.Node, bool) {
	if n, there := x.byProvider[m.providerID]; there {
		return n, m.node == "" || m.node == n.Name
	}
	n, there := x.byName[cmp.Or(m.node, m.ref.Name)]
	return n, there && (n.ProviderID == "" || m.providerID == "" || n.ProviderID == m.providerID)
}

// mostNamed is how many Machines or Nodes of a workload cluster get a finding of their own.
const mostNamed = 10

// goneFindings reports the Machines whose Node is gone.
func (r *recorded) goneFindings(c comparison, severity object.Severity) []object.Finding {
	var list []object.Finding
	for i, m := range c.gone {
		f := object.Finding{Severity: severity, Code: object.CodeMachinesGone, Ref: m.ref, Unit: r.unit,
			Message: "its Node is gone from the workload cluster (" + m.String() + ")",
			Hint: "a newer snapshot does not have the Machine; after a release its health check or " +
				"its owner deletes it, and makes another one"}
		if rest := len(c.gone) - i; i == mostNamed && rest > 1 {
			f.Ref = r.cluster
			f.Message = fmt.Sprintf("the Nodes of %d more of its Machines are gone", rest)
			return append(list, f)
		}
		list = append(list, f)
	}
	return list
}

// unknownFindings reports the Nodes and etcd members that the snapshot does not know. newer names
// the newest snapshot with a Machine of such a name; "" when none is known.
func (r *recorded) unknownFindings(c comparison, severity object.Severity,
	newer func(node string) string) []object.Finding {
	var list []object.Finding
	for node, evidence := range c.control {
		f := object.Finding{Severity: severity, Code: object.CodeControlPlaneUnknown, Ref: r.cluster,
			Unit: r.unit, Message: "control plane " + evidence + " is there, and no Machine of the " +
				"snapshot is it: its controller would remove it",
			Hint: "use a snapshot that has its Machine"}
		if id := newer(node); id != "" {
			f.Hint += ": " + id
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b object.Finding) int {
		return strings.Compare(a.Message, b.Message)
	})
	if len(c.workers) > 0 {
		var names []string
		for _, n := range c.workers[:min(len(c.workers), mostNamed)] {
			names = append(names, fmt.Sprintf("%q (provider ID %q)", n.Name, n.ProviderID))
		}
		list = append(list, object.Finding{Severity: object.Warning, Code: object.CodeNodesUnknown,
			Ref: r.cluster, Unit: r.unit,
			Message: fmt.Sprintf("%d Nodes are there that no Machine of the snapshot is: %s", len(c.workers),
				strings.Join(names, ", ")),
			Hint: "nothing will manage them, and controllers may make more of them: use a newer " +
				"snapshot, or remove them by hand after the restore"})
	}
	return list
}
