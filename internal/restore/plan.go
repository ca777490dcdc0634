package restore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

// ManagedFields says for which objects the snapshot's managedFields are written.
type ManagedFields string

// The choices; the zero value means FieldsApply.
const (
	FieldsApply ManagedFields = "apply" // objects in which a server-side-apply manager owns fields
	FieldsAll   ManagedFields = "all"
	FieldsNone  ManagedFields = "none"
)

// Selection picks a part of a snapshot; the zero value picks everything. Several entries add up.
type Selection struct {
	Namespaces []string     `json:"namespaces,omitempty"`
	Workloads  []object.Key `json:"workloads,omitempty"`
	Selector   string       `json:"selector,omitempty"`
}

func (s Selection) everything() bool {
	return len(s.Namespaces) == 0 && len(s.Workloads) == 0 && s.Selector == ""
}

// Spec is what decides a plan.
type Spec struct {
	Selection     Selection     `json:"selection"`
	SourceIsGone  bool          `json:"sourceIsGone,omitempty"`
	Force         object.Forced `json:"force,omitempty"`
	NoRelease     bool          `json:"noRelease,omitempty"`
	DropOwners    []object.Ref  `json:"dropOwners,omitempty"`
	ManagedFields ManagedFields `json:"managedFields,omitempty"`
	// Accept are the differences that keep no unit paused.
	Accept []object.AcceptedDifference `json:"accept,omitempty"`
	// IncludeUnowned restores objects, too, that name a Cluster which is not restored.
	IncludeUnowned bool `json:"includeUnowned,omitempty"`
	// RenewKubeconfigs: expired kubeconfigs that Cluster API made are renewed before the release.
	RenewKubeconfigs bool `json:"renewKubeconfigs,omitempty"`
	// Modifiers is the digest of the resource modifiers; "" means that there are none. The document
	// itself may hold credentials and is stored nowhere: a resume needs it again.
	Modifiers string `json:"modifiers,omitempty"`
	// SourceAtWork: the source is alive and is paused unit by unit, so nobody has to vouch that it
	// is gone.
	SourceAtWork bool `json:"move,omitempty"`
	// Only are the units ("namespace/name") of the selection to plan, where a move has batches; nil
	// means all.
	Only []string `json:"only,omitempty"`
	// Also are selected besides the selection, with all that they need, as far as the snapshot has
	// them.
	Also []object.Ref `json:"also,omitempty"`
}

// Action is what happens to an object.
type Action string

// The actions.
const (
	Create Action = "create"
	Adopt  Action = "adopt" // an equal one is on the target
	Skip   Action = "skip"
)

// Plan is what a restore will do. It is data: no client, no content, no secret. A resume carries
// out the stored plan.
type Plan struct {
	Snapshot Snapshot         `json:"snapshot"`
	Target   object.Side      `json:"target"`
	Spec     Spec             `json:"spec"`
	Shared   Unit             `json:"shared"`
	Units    []Unit           `json:"units"` // by name
	Findings []object.Finding `json:"findings"`
	Blocked  bool             `json:"blocked"` // nothing can run
	// Epochs are those of the ownership records at planning, by id of the workload cluster; nil in
	// plans of version 0.3 and older.
	Epochs map[string]int64 `json:"epochs"`
	// OriginEpochs are the highest epochs that are known of the records in the origin of the store,
	// by id of the workload cluster; nil unless the store is a copy.
	OriginEpochs map[string]int64 `json:"originEpochs,omitempty"`
	// SourceSeen is when the source was last known to live at planning; zero in plans of version 0.4
	// and older.
	SourceSeen time.Time `json:"sourceSeen,omitzero"`
	// OwnersSeen is the same of management clusters whose ownership records are overridden, by UID.
	OwnersSeen map[string]time.Time `json:"ownersSeen,omitempty"`
	// Overridden are these management clusters by id of the workload cluster; nil in plans of version
	// 0.4 and older.
	Overridden map[string]object.Side `json:"overridden,omitempty"`
	// FromMarks: it is the plan of a rollback from marks (Marks), and Lost are the operations
	// that made what it removes. Nothing of it is ever restored.
	FromMarks bool     `json:"fromMarks,omitempty"`
	Lost      []string `json:"lost,omitempty"`
}

// Snapshot names the snapshot that is restored.
type Snapshot struct {
	// StoreID is the id of the store that took it, also when it was read from a copy.
	StoreID string      `json:"storeID"`
	ID      string      `json:"id"`
	Key     string      `json:"key"`
	Source  object.Side `json:"source"`
	Time    time.Time   `json:"time"`
}

// Unit is a workload cluster in the plan, or what units share.
type Unit struct {
	Name        string   `json:"name"`
	WorkloadID  string   `json:"workloadID,omitempty"`
	Objects     []Object `json:"objects"` // by wave
	Machines    int      `json:"machines,omitempty"`
	StaysPaused bool     `json:"staysPaused,omitempty"`
	Blocked     bool     `json:"blocked,omitempty"`
	// Held: it is the Cluster of the source management cluster itself, and is never released.
	Held bool `json:"held,omitempty"`
	// Compared: its workload cluster answered, and was compared with the snapshot.
	Compared bool `json:"compared,omitempty"`
	// Gone are the Machines whose Node is gone from the workload cluster.
	Gone []object.Ref `json:"gone,omitempty"`
	// OtherMachines are the Machines of the workload cluster that were on the target at planning and
	// are not in the snapshot, UID by name.
	OtherMachines map[string]string `json:"otherMachines,omitempty"`
	// Lost are the operations that made it, in a plan from marks.
	Lost []string `json:"lost,omitempty"`
}

// Object is an object in the plan.
type Object struct {
	object.Ref
	Version string `json:"version"`
	// Wave is its place in the order, from 1. Late objects, of kinds with no known pause, have
	// waves of their own after the release.
	Wave int  `json:"wave"`
	Late bool `json:"late,omitempty"`
	// Action, and the reason of a skip.
	Action Action `json:"action"`
	Reason string `json:"reason,omitempty"`
	// UID on the target, when it was there at planning. An object with a UID and the action Create
	// that is not Ours was created by another operation, which did not write its status: this one
	// does.
	UID string `json:"uid,omitempty"`
	// Owners to write; dropped ones are left out.
	Owners []object.Ref `json:"owners,omitempty"`
	// Outside are the UIDs of owners that live on the target and are not in the snapshot, by
	// position in Owners; nil when there are none.
	Outside map[int]string `json:"outside,omitempty"`
	// Modified are the paths of the values that resource modifiers change.
	Modified []string `json:"modified,omitempty"`
	// Checked: the target has accepted it as a dry-run.
	Checked bool `json:"checked,omitempty"`
	// Paused: it was paused on the source and stays so.
	Paused bool `json:"paused,omitempty"`
	// Ours: it was created by an operation whose journal is lost, or by the pre-copy of this one, and
	// has the UID of then.
	Ours bool `json:"ours,omitempty"`
	// Held: a Machine that an earlier operation keeps from remediation.
	Held bool `json:"held,omitempty"`
	// Users are the units that need a shared object. They are blocked when it fails.
	Users []string `json:"users,omitempty"`
	// Awaits are the workload clusters outside of the plan that use a pool of addresses, and the
	// objects without a workload cluster that have an address of it, as far as they are not
	// on the target: the pool stays paused for them.
	Awaits []string `json:"awaits,omitempty"`
}

// Without returns the plan without units that do not go on in it: they were rolled back, or belong
// to another management cluster by now. A pool of addresses that one of them uses stays paused, and
// so does a host in the namespace of one: the management cluster that has the unit works with it.
// Of each there is a finding.
func (p *Plan) Without(units map[string]bool, rows *capi.Table) (*Plan, []object.Finding) {
	if len(units) == 0 {
		return p, nil
	}
	var findings []object.Finding
	rest := *p
	rest.Units = slices.DeleteFunc(slices.Clone(p.Units), func(u Unit) bool { return units[u.Name] })
	rest.Shared.Objects = slices.Clone(p.Shared.Objects)
	for i := range rest.Shared.Objects {
		o := &rest.Shared.Objects[i]
		o.Awaits = slices.Clone(o.Awaits)
		row := rows.Row(o.GroupKind())
		for _, unit := range slices.Sorted(maps.Keys(units)) {
			namespace, _, _ := strings.Cut(unit, "/")
			mayUse := row.PausedShared && namespace == o.Namespace // a free host names nobody
			if units[unit] && (row.AddressPool && slices.Contains(o.Users, unit) || mayUse) {
				o.Awaits = append(o.Awaits, unit)
			}
		}
		switch held := len(o.Awaits) > len(p.Shared.Objects[i].Awaits) && o.Action != Skip; {
		case held && row.AddressPool:
			findings = append(findings, holdPool(o))
		case held:
			findings = append(findings, object.Finding{Severity: object.Warning,
				Code: object.CodeSharedKept, Ref: o.Ref, Message: fmt.Sprintf("it stays paused: the "+
					"management cluster that has %s works with it", listed(o.Awaits)),
				Hint: "unpause it only where no other management cluster works with it"})
		}
	}
	return &rest, findings
}

// Digest is a hash over objects, owners, pause states, blocking findings and the epochs that the
// operation may replace: two plans with one digest do the same.
func (p *Plan) Digest() string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	line := func(v ...any) {
		if err := enc.Encode(v); err != nil {
			panic(fmt.Sprintf("encode plan: %v", err)) // plain data always encodes
		}
	}
	line(p.Snapshot.ID, p.Target.UID, p.Spec, p.Epochs)
	if len(p.OriginEpochs) > 0 {
		line(p.OriginEpochs)
	}
	for _, u := range p.parts() {
		line(u.Name, u.StaysPaused, u.Blocked)
		if u.Held {
			line("held")
		}
		for _, o := range u.Objects {
			if o.Reason == string(object.CodeCapturedOnly) {
				continue // it may come and go: the plan does nothing with it
			}
			line(o) // all of it: the UIDs in it are those of adopted objects and of owners outside
		}
	}
	for _, f := range p.Findings {
		if f.Severity >= object.Error {
			line(f.Code, f.Ref, f.Unit)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// parts are what units share, then the units.
func (p *Plan) parts() []Unit { return append([]Unit{p.Shared}, p.Units...) }

// CheckCanary refuses a canary that is not a unit of the plan (*SelectionError) or is blocked
// (*FindingsError): going on without one is what it is there to prevent.
func (p *Plan) CheckCanary(name string) error {
	if name == "" {
		return nil
	}
	names := make([]string, 0, len(p.Units))
	for _, u := range p.Units {
		if u.Name == name && u.Blocked {
			return &FindingsError{Findings: slices.DeleteFunc(slices.Clone(p.Findings),
				func(f object.Finding) bool { return !f.Concerns(name) }), Canary: name}
		}
		if u.Name == name {
			return nil
		}
		names = append(names, u.Name)
	}
	return &SelectionError{fmt.Sprintf("canary %s is not a unit of the plan", name), "the plan has " +
		listed(names)}
}

// Counts returns how many objects are created, adopted and skipped, and how many units are blocked.
func (p *Plan) Counts() (create, adopt, skip, blocked int) {
	for _, u := range p.parts() {
		if u.Blocked {
			blocked++
		}
		for _, o := range u.Objects {
			switch {
			case o.Action == Skip, u.Blocked:
				skip++
			case o.Action == Adopt:
				adopt++
			default:
				create++
			}
		}
	}
	return create, adopt, skip, blocked
}

func (p *Plan) sortFindings() {
	slices.SortStableFunc(p.Findings, func(a, b object.Finding) int {
		if a.Severity != b.Severity {
			return int(b.Severity - a.Severity)
		}
		return strings.Compare(string(a.Code)+a.Unit+a.Ref.String()+a.Message,
			string(b.Code)+b.Unit+b.Ref.String()+b.Message)
	})
}

// decide sorts the findings and decides what they block.
func (p *Plan) decide() {
	p.sortFindings()
	blocked := map[string]bool{}
	for _, f := range p.Findings {
		switch {
		case f.Severity == object.Fatal, f.Severity == object.Error && f.Unit == "":
			p.Blocked = true
		case f.Severity == object.Error:
			for _, unit := range append([]string{f.Unit}, f.Users...) {
				blocked[unit] = true
			}
		}
	}
	runnable := 0
	for i := range p.Units {
		p.Units[i].Blocked = p.Units[i].Blocked || blocked[p.Units[i].Name]
		if !p.Units[i].Blocked {
			runnable++
		}
	}
	if len(p.Units) > 0 && runnable == 0 {
		p.Blocked = true
	}
}
