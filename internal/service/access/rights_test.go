package access

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// eachMethod calls do for every method of our API.
func eachMethod(do func(fullName string, m protoreflect.MethodDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage("mgmt.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				do("/"+string(s.FullName())+"/"+string(m.Name()), m)
			}
		}
		return true
	})
}

func TestEveryMethodHasARow(t *testing.T) {
	count := 0
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		count++
		n, ok := needOf(name, nil)
		if !ok || n.role == None {
			t.Errorf("%s has no row in rights: say which role it needs", name)
		}
		o, _ := m.Options().(*descriptorpb.MethodOptions)
		if o.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS && n.role <= View {
			t.Errorf("%s changes something and needs only the role %s", name, n.role)
		}
	})
	if count < 40 {
		t.Errorf("%d methods were found", count)
	}
	if _, ok := needOf("/mgmt.v1.SnapshotService/Unknown", nil); ok {
		t.Error("a method without a row is known")
	}
}

// TestFieldsOfARequestRaiseItsRole sets each field of each request that carries a secret or
// overrides a finding, wherever it is.
func TestFieldsOfARequestRaiseItsRole(t *testing.T) {
	secrets, forces := 0, 0
	var visit func(name string, root, m protoreflect.Message, path []protoreflect.Name)
	visit = func(name string, root, m protoreflect.Message, path []protoreflect.Name) {
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			o, _ := f.Options().(*descriptorpb.FieldOptions)
			var want Role
			switch {
			case o.GetDebugRedact() || f.Kind() == protoreflect.BytesKind:
				want = Restore
				secrets++
				m.Set(f, protoreflect.ValueOfBytes([]byte("x")))
			case f.Name() == "force_codes":
				want = Admin
				forces++
				list := m.Mutable(f).List()
				list.Append(protoreflect.ValueOfString("x"))
			case f.Message() != nil && !f.IsList() && !f.IsMap():
				visit(name, root, m.Mutable(f).Message(), append(slices.Clone(path), f.Name()))
				m.Clear(f)
				continue
			default:
				continue
			}
			if n, _ := needOf(name, root.Interface()); n.role < want {
				t.Errorf("%s with %v.%s needs only the role %s, want %s", name, path, f.Name(), n.role, want)
			}
			m.Clear(f)
		}
	}
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		req := dynamicpb.NewMessage(m.Input())
		visit(name, req, req, nil)
	})
	if secrets < 12 || forces < 6 {
		t.Errorf("%d fields with secrets and %d with codes were found", secrets, forces)
	}
}

// needNoMore are the flags and lists of requests that change something which need no more than the
// role of their method, each with the reason.
var needNoMore = map[protoreflect.Name]string{
	"namespaces":         "a selection",
	"workloads":          "a selection",
	"full":               "a snapshot costs more, and says the same",
	"no_record":          "a verify says less",
	"ids":                "what the method is for",
	"all":                "a fence of all: the method may fence each of them by name",
	"lift":               "only what the ownership records give to this management cluster is lifted",
	"dry_run":            "it changes nothing",
	"source_is_gone":     "each restore in an outage needs it, and source-seen-recently has to be forced",
	"no_release":         "less is changed",
	"include_unowned":    "objects that the selection could name",
	"renew_kubeconfigs":  "with the CA of the snapshot, which the role can read",
	"drop_owners":        "of objects that the role may create without the owner",
	"accept_differences": "as AcceptUnit: a unit is released in spite of a difference that is on record",
	"drop_scopes":        "the method needs the role admin",
	"damaged":            "the method needs the role admin",
	"suspend_gitops":     "a move that needs it is refused without it, and a rollback gives it back",
	"without_source":     "what the ownership records give to the target is released there",
	"without_target":     "nothing is given back without a proof, and to do without the store needs force_codes",
}

// TestEveryFlagOfARequestHasADecision: one that overrides a protection needs the role admin, and a
// new one cannot be forgotten.
func TestEveryFlagOfARequestHasADecision(t *testing.T) {
	used := map[protoreflect.Name]bool{}
	var visit func(name string, m protoreflect.MessageDescriptor)
	visit = func(name string, m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			switch decided := slices.ContainsFunc(fieldRights, func(r fieldRight) bool {
				return r.field == f.Name()
			}); {
			case f.Message() != nil && !f.IsList() && !f.IsMap():
				visit(name, f.Message())
			case decided || f.Kind() != protoreflect.BoolKind && !f.IsList():
			case needNoMore[f.Name()] == "":
				t.Errorf("%s: the field %s of %s is in no table", name, f.Name(), m.Name())
			default:
				used[f.Name()] = true
			}
		}
	}
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		o, _ := m.Options().(*descriptorpb.MethodOptions)
		if o.GetIdempotencyLevel() != descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			visit(name, m.Input())
		}
	})
	for name := range needNoMore {
		if !used[name] {
			t.Errorf("no request has the field %s", name)
		}
	}
}

func TestRolesOfRequests(t *testing.T) {
	for _, test := range []struct {
		method string
		req    proto.Message
		role   Role
		what   string
	}{
		{mgmtv1.SnapshotService_ListSnapshots_FullMethodName, &mgmtv1.ListSnapshotsRequest{}, View,
			"ListSnapshots"},
		{mgmtv1.SnapshotService_DiffSnapshots_FullMethodName, &mgmtv1.DiffSnapshotsRequest{From: "a"}, View,
			"DiffSnapshots"},
		{mgmtv1.SnapshotService_DiffSnapshots_FullMethodName, &mgmtv1.DiffSnapshotsRequest{Live: true},
			Operate, "DiffSnapshots with the live source"},
		{mgmtv1.SnapshotService_GetSnapshot_FullMethodName, &mgmtv1.GetSnapshotRequest{
			Identity: []byte("x")}, Restore, "GetSnapshot with an identity"},
		{mgmtv1.SnapshotService_GetObject_FullMethodName, &mgmtv1.GetObjectRequest{}, Restore,
			"GetObject"},
		{mgmtv1.RestoreService_RunRestore_FullMethodName, &mgmtv1.RunRestoreRequest{
			Identity: []byte("x")}, Restore, "RunRestore"},
		{mgmtv1.RestoreService_RunRestore_FullMethodName, &mgmtv1.RunRestoreRequest{
			Identity: []byte("x"), Spec: &mgmtv1.RestoreSpec{ForceCodes: []string{"x"}}}, Admin,
			"RunRestore with a forced finding"},
		{mgmtv1.PruneService_PlanPrune_FullMethodName, &mgmtv1.PlanPruneRequest{
			Spec: &mgmtv1.PruneSpec{AcceptGaps: true}}, Admin, "PlanPrune with accepted gaps"},
		{mgmtv1.MoveService_PlanMove_FullMethodName, &mgmtv1.PlanMoveRequest{
			Spec: &mgmtv1.MoveSpec{NoFence: true}}, Admin, "PlanMove without a fence"},
		{mgmtv1.MoveService_RunMove_FullMethodName, &mgmtv1.RunMoveRequest{
			Spec: &mgmtv1.MoveSpec{AcceptDifferences: []string{"Secret:metadata"}}}, Restore, "RunMove"},
	} {
		if n, ok := needOf(test.method, test.req); !ok || n.role != test.role || n.what != test.what {
			t.Errorf("%s: %+v", test.method, n)
		}
	}
}

// TestTheDocumentationSaysWhichRoleEachMethodNeeds compares docs/config.md with the table.
func TestTheDocumentationSaysWhichRoleEachMethodNeeds(t *testing.T) {
	text, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			rows[strings.Trim(cells[1], " `")] = cells[3]
		}
	}
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		role := rights[name]
		for _, r := range append(RoleNames(), None.String()) {
			if listed := strings.Contains(rows[r], "`"+string(m.Name())+"`"); listed != (r == role.String()) {
				t.Errorf("%s needs %s; in the row of %s: %t", m.Name(), role, r, listed)
			}
		}
	})
}
