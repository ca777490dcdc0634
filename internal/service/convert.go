package service

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/restore"
	"github.com/mgmtd/mgmtd/internal/store"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

var operationStates = map[catalog.State]mgmtv1.OperationState{
	catalog.Planned:       mgmtv1.OperationState_OPERATION_STATE_PLANNED,
	catalog.Running:       mgmtv1.OperationState_OPERATION_STATE_RUNNING,
	catalog.Succeeded:     mgmtv1.OperationState_OPERATION_STATE_SUCCEEDED,
	catalog.Stopped:       mgmtv1.OperationState_OPERATION_STATE_STOPPED,
	catalog.Failed:        mgmtv1.OperationState_OPERATION_STATE_FAILED,
	catalog.RolledBack:    mgmtv1.OperationState_OPERATION_STATE_ROLLED_BACK,
	catalog.NeedsIdentity: mgmtv1.OperationState_OPERATION_STATE_NEEDS_IDENTITY,
}

func operationToProto(op catalog.Operation) *mgmtv1.Operation {
	p := &mgmtv1.Operation{
		Id: string(op.ID), Kind: string(op.Kind), State: operationStates[op.State],
		CreateTime: timestamppb.New(op.Created), UpdateTime: timestamppb.New(op.Updated),
		Source: op.Source.Name, Target: op.Target.Name, SnapshotId: op.SnapshotID, Message: op.Message,
		HintKey: string(op.HintKey),
		Changed: op.Changed,
		Units:   map[string]string{}, Schedule: op.Schedule, Location: op.Location,
	}
	p.Copy = copyToProto(op.Copy)
	if !op.RetainedUntil.IsZero() {
		p.RetainedUntil = timestamppb.New(op.RetainedUntil)
	}
	for unit, state := range op.Units {
		p.Units[unit] = string(state)
	}
	if op.State.Ended() && !op.State.Final() {
		p.ExitCode = int32((&Error{Reason: Reason(op.Code)}).ExitCode())
	}
	return p
}

var eventTypes = map[catalog.EventType]mgmtv1.EventType{
	catalog.EventOperation: mgmtv1.EventType_EVENT_TYPE_OPERATION,
	catalog.EventUnit:      mgmtv1.EventType_EVENT_TYPE_UNIT,
	catalog.EventStep:      mgmtv1.EventType_EVENT_TYPE_STEP,
	catalog.EventProgress:  mgmtv1.EventType_EVENT_TYPE_PROGRESS,
	catalog.EventFinding:   mgmtv1.EventType_EVENT_TYPE_FINDING,
	catalog.EventMessage:   mgmtv1.EventType_EVENT_TYPE_MESSAGE,
}

func eventToProto(e catalog.Event) *mgmtv1.Event {
	p := &mgmtv1.Event{Seq: e.Seq, Time: timestamppb.New(e.Time), Type: eventTypes[e.Type],
		Unit: e.Unit, Step: e.Step, Message: e.Message, HintKey: string(e.HintKey)}
	switch e.Type {
	case catalog.EventOperation:
		p.State = operationStates[catalog.State(e.State)]
	case catalog.EventUnit:
		p.UnitState = e.State
	case catalog.EventStep:
		p.StepState = e.State
	default: // other events have no state
	}
	if e.Progress != nil {
		p.Progress, p.Done, p.Total = e.Progress.What, e.Progress.Done, e.Progress.Total
	}
	if f := e.Finding; f != nil {
		p.Finding = findingToProto(*f)
		p.Finding.Unit = e.Unit
	}
	return p
}

var severities = map[object.Severity]mgmtv1.Severity{
	object.Info:    mgmtv1.Severity_SEVERITY_INFO,
	object.Warning: mgmtv1.Severity_SEVERITY_WARNING,
	object.Error:   mgmtv1.Severity_SEVERITY_ERROR,
	object.Fatal:   mgmtv1.Severity_SEVERITY_FATAL,
}

func findingToProto(f object.Finding) *mgmtv1.Finding {
	p := &mgmtv1.Finding{Severity: severities[f.Severity], Code: string(f.Code), Unit: f.Unit,
		Message: f.Message, Hint: f.Hint}
	if !f.Ref.IsZero() {
		p.Ref = refToProto(f.Ref)
	}
	return p
}

func refToProto(r object.Ref) *mgmtv1.Ref {
	return &mgmtv1.Ref{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

var trusts = map[store.Trust]mgmtv1.Trust{
	store.Trusted:       mgmtv1.Trust_TRUST_TRUSTED,
	store.UnknownSigner: mgmtv1.Trust_TRUST_STRANGER,
	store.Limited:       mgmtv1.Trust_TRUST_LIMITED,
	store.Unsigned:      mgmtv1.Trust_TRUST_UNSIGNED,
	store.Unchecked:     mgmtv1.Trust_TRUST_UNCHECKED,
}

func snapshotToProto(e store.Signed) *mgmtv1.Snapshot {
	p := &mgmtv1.Snapshot{
		Id: string(e.ID), SourceUid: e.Source.UID, Source: e.Source.Name, Time: timestamppb.New(e.Time),
		ResourceVersion: e.ResourceVersion,
		Sequence:        e.Sequence, Objects: e.Counts.Objects, Units: e.Counts.Units,
		Missing:     e.Counts.Missing,
		StoredBytes: e.Bytes,
		NotInCut:    e.NotInCut, Trust: trusts[e.Trust], TrustDetail: e.KeyID, Partial: e.Partial,
		Key: e.Key().String(), Scope: e.ScopeID(), Sha256: e.SHA256,
		Recipients: e.Recipients,
	}
	if e.Scope != nil {
		p.Schedule, p.Operation = e.Scope.Schedule, e.Scope.Operation
	}
	if e.Trust == store.Limited {
		p.TrustDetail = "signed by key " + e.KeyID + ", " + e.Limit
	}
	p.ExpireTime = timeToProto(e.Expires)
	return p
}

func damagedToProto(key store.EnvelopeKey, err error) *mgmtv1.Snapshot {
	return &mgmtv1.Snapshot{
		Id: string(key.ID), SourceUid: key.Source, Time: timestamppb.New(key.Time),
		Trust: mgmtv1.Trust_TRUST_DAMAGED, TrustDetail: err.Error(), Key: key.String(),
	}
}

var managedFields = map[mgmtv1.ManagedFields]restore.ManagedFields{
	mgmtv1.ManagedFields_MANAGED_FIELDS_UNSPECIFIED: restore.FieldsApply,
	mgmtv1.ManagedFields_MANAGED_FIELDS_APPLY:       restore.FieldsApply,
	mgmtv1.ManagedFields_MANAGED_FIELDS_ALL:         restore.FieldsAll,
	mgmtv1.ManagedFields_MANAGED_FIELDS_NONE:        restore.FieldsNone,
}

// specFromProto reads what decides a plan. Errors are usage errors.
func specFromProto(p *mgmtv1.RestoreSpec) (restore.Spec, error) {
	selection, err := selectionFromProto(p.GetSelection())
	if err != nil {
		return restore.Spec{}, err
	}
	dropOwners, err := refsFromProto(p.GetDropOwners())
	if err != nil {
		return restore.Spec{}, err
	}
	forced, err := forcedFromProto(object.Restores, p.GetForceCodes())
	if err != nil {
		return restore.Spec{}, err
	}
	accept, err := acceptedFromProto(p.GetAcceptDifferences())
	return restore.Spec{
		Selection: selection, SourceIsGone: p.GetSourceIsGone(), Force: forced,
		NoRelease: p.GetNoRelease(), DropOwners: dropOwners,
		ManagedFields: managedFields[p.GetManagedFields()], Accept: accept,
		IncludeUnowned: p.GetIncludeUnowned(), RenewKubeconfigs: p.GetRenewKubeconfigs(),
	}, err
}

// acceptedFromProto reads the differences that an operator accepts. Errors are usage errors.
func acceptedFromProto(texts []string) ([]object.AcceptedDifference, error) {
	var accepted []object.AcceptedDifference
	for _, text := range texts {
		a, err := object.ParseAcceptedDifference(text)
		if err != nil {
			return nil, &Error{Reason: ReasonUsage, Message: err.Error(), err: err}
		}
		accepted = append(accepted, a)
	}
	return accepted, nil
}

// selectionFromProto reads a selection. Errors are usage errors.
func selectionFromProto(p *mgmtv1.Selection) (restore.Selection, error) {
	selection := restore.Selection{Namespaces: p.GetNamespaces(), Selector: p.GetSelector()}
	for _, w := range p.GetWorkloads() {
		key, err := object.ParseKey(w)
		if err != nil {
			return selection, &Error{Reason: ReasonUsage, Message: err.Error(), err: err}
		}
		selection.Workloads = append(selection.Workloads, key)
	}
	return selection, nil
}

// refsFromProto reads references as operators write them. Errors are usage errors.
func refsFromProto(list []string) ([]object.Ref, error) {
	var refs []object.Ref
	for _, text := range list {
		ref, err := object.ParseRef(text)
		if err != nil {
			return nil, &Error{Reason: ReasonUsage, Message: err.Error(), err: err}
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

var actions = map[restore.Action]mgmtv1.PlanAction{
	restore.Create: mgmtv1.PlanAction_PLAN_ACTION_CREATE,
	restore.Adopt:  mgmtv1.PlanAction_PLAN_ACTION_ADOPT,
	restore.Skip:   mgmtv1.PlanAction_PLAN_ACTION_SKIP,
}

func planObjectToProto(unit string, o restore.Object) *mgmtv1.PlanObject {
	p := &mgmtv1.PlanObject{Ref: refToProto(o.Ref), Unit: unit, Wave: int32(o.Wave),
		Action: actions[o.Action], Reason: o.Reason, Modified: o.Modified}
	for _, owner := range o.Owners {
		p.Owners = append(p.Owners, refToProto(owner))
	}
	return p
}

// forcedFromProto reads the codes that an operator overrides in a work. Errors are usage errors.
func forcedFromProto(work object.Work, codes []string) (object.Forced, error) {
	forced, err := object.ParseForced(work, codes)
	if err != nil {
		return nil, &Error{Reason: ReasonUsage, Message: err.Error(), err: err}
	}
	return forced, nil
}
