package access

import (
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// rights gives each method that the daemon serves its least role. A method without a row is refused
// to everybody.
var rights = map[string]Role{
	// Load balancers and probes ask it. It says only whether mgmtd serves.
	grpc_health_v1.Health_Check_FullMethodName: None,
	grpc_health_v1.Health_List_FullMethodName:  None,
	grpc_health_v1.Health_Watch_FullMethodName: None,
	// The API is public. The list of its methods is no secret.
	grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName:      View,
	grpc_reflection_v1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: View,

	// What mgmtd knows, and what the store shows without an identity.
	mgmtv1.SnapshotService_ListSnapshots_FullMethodName:   View,
	mgmtv1.SnapshotService_GetSnapshot_FullMethodName:     View,
	mgmtv1.SnapshotService_ListObjects_FullMethodName:     View,
	mgmtv1.SnapshotService_GraphSnapshot_FullMethodName:   View,
	mgmtv1.SnapshotService_DiffSnapshots_FullMethodName:   View,
	mgmtv1.SnapshotService_FindObject_FullMethodName:      View,
	mgmtv1.OperationService_ListOperations_FullMethodName: View,
	mgmtv1.OperationService_GetOperation_FullMethodName:   View,
	mgmtv1.OperationService_WatchOperation_FullMethodName: View,
	mgmtv1.ScheduleService_ListSchedules_FullMethodName:   View,
	mgmtv1.MgmtService_ListMgmts_FullMethodName:           View,
	mgmtv1.StoreService_ListLocations_FullMethodName:      View,

	// What reads a whole management cluster, store or catalog: it changes nothing, and costs.
	mgmtv1.SnapshotService_ExplainCoverage_FullMethodName: Operate,
	mgmtv1.MgmtService_CheckMgmt_FullMethodName:           Operate,
	mgmtv1.StoreService_GetStats_FullMethodName:           Operate,
	mgmtv1.StoreService_CheckKeys_FullMethodName:          Operate,
	mgmtv1.StoreRepairService_PlanRepair_FullMethodName:   Operate,
	mgmtv1.PruneService_PlanPrune_FullMethodName:          Operate,
	mgmtv1.CatalogService_CheckCatalog_FullMethodName:     Operate,

	mgmtv1.SnapshotService_CreateSnapshot_FullMethodName: Operate,
	mgmtv1.SnapshotService_VerifySnapshot_FullMethodName: Operate,
	mgmtv1.SnapshotService_PinSnapshot_FullMethodName:    Operate,
	mgmtv1.ScheduleService_RunSchedule_FullMethodName:    Operate,
	mgmtv1.ScheduleService_PauseSchedule_FullMethodName:  Operate,
	mgmtv1.ScheduleService_ResumeSchedule_FullMethodName: Operate,

	// The content of objects, also from a store that is not encrypted.
	mgmtv1.SnapshotService_GetObject_FullMethodName:      Restore,
	mgmtv1.SnapshotService_ExtractObjects_FullMethodName: Restore,
	// What changes management clusters, and its plans: they dry-run objects on the target, and dial
	// workload clusters with credentials of the snapshot.
	mgmtv1.RestoreService_PlanRestore_FullMethodName:           Restore,
	mgmtv1.RestoreService_RunRestore_FullMethodName:            Restore,
	mgmtv1.RestoreService_PlanRollbackFromMarks_FullMethodName: Restore,
	mgmtv1.RestoreService_RollbackFromMarks_FullMethodName:     Restore,
	mgmtv1.MoveService_PlanMove_FullMethodName:                 Restore,
	mgmtv1.MoveService_RunMove_FullMethodName:                  Restore,
	mgmtv1.MgmtService_FenceMgmt_FullMethodName:                Restore,
	mgmtv1.OperationService_ResumeOperation_FullMethodName:     Restore,
	mgmtv1.OperationService_RollbackOperation_FullMethodName:   Restore,
	mgmtv1.OperationService_AcceptUnit_FullMethodName:          Restore,
	// It may leave the workload clusters of a move paused.
	mgmtv1.OperationService_StopOperation_FullMethodName: Restore,

	mgmtv1.SnapshotService_DeleteSnapshots_FullMethodName:   Admin,
	mgmtv1.SnapshotService_UnpinSnapshot_FullMethodName:     Admin,
	mgmtv1.PruneService_RunPrune_FullMethodName:             Admin,
	mgmtv1.StoreService_CopyStore_FullMethodName:            Admin,
	mgmtv1.StoreRepairService_RunRepair_FullMethodName:      Admin,
	mgmtv1.OperationService_ForgetOperations_FullMethodName: Admin,
	mgmtv1.CatalogService_RebuildCatalog_FullMethodName:     Admin,
}

// fieldRight is the role that a field of a request needs.
type fieldRight struct {
	field   protoreflect.Name
	role    Role
	because string
}

// fieldRights are the roles that fields of a request need, whatever its method needs. They are
// found by name at any depth, so that a new request cannot forget them.
var fieldRights = []fieldRight{
	{"identity", Restore, "with an identity"},
	// It decides what becomes of the objects of a snapshot.
	{"resource_modifiers", Restore, "with resource modifiers"},
	{"force_codes", Admin, "with a forced finding"},
	{"accept_gaps", Admin, "with accepted gaps"},
	// Nothing then prevents a second host from handing over the same workload clusters.
	{"no_fence", Admin, "without a fence"},
	{"live", Operate, "with the live source"},
}

// need is what a request needs.
type need struct {
	role Role
	// what names the request: its method, and the field that needs more than the method does.
	what string
}

// needOf returns what a request needs. req is nil before a stream has brought its request. It is
// false for a method without a row.
func needOf(method string, req proto.Message) (need, bool) {
	role, ok := rights[method]
	n := need{role: role, what: method[strings.LastIndexByte(method, '/')+1:]}
	if !ok || req == nil {
		return n, ok
	}
	because := ""
	for _, f := range fieldRights {
		if f.role > n.role && hasField(req.ProtoReflect(), f.field) {
			n.role, because = f.role, " "+f.because
		}
	}
	n.what += because
	return n, true
}

// hasField reports whether a field of this name is set in a message or in one of its messages.
func hasField(m protoreflect.Message, name protoreflect.Name) bool {
	found := false
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		found = found || d.Name() == name ||
			d.Message() != nil && !d.IsMap() && !d.IsList() && hasField(v.Message(), name)
		return !found
	})
	return found
}
