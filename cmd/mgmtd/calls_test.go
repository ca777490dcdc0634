package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// TestEveryCallThatChangesNothingIsLoggedAtDebug lists the methods that are logged at info. A new
// method that only reads must say so in its .proto file.
func TestEveryCallThatChangesNothingIsLoggedAtDebug(t *testing.T) {
	var writes []string
	protoregistry.GlobalFiles.RangeFilesByPackage("mgmt.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				if m := s.Methods().Get(j); !readsOnly("/" + string(s.FullName()) + "/" + string(m.Name())) {
					writes = append(writes, string(m.Name()))
				}
			}
		}
		return true
	})
	slices.Sort(writes)
	want := []string{"AcceptUnit", "CreateSnapshot", "DeleteSnapshots", "FenceMgmt",
		"PauseSchedule", "PinSnapshot", "RebuildCatalog", "ResumeOperation", "ResumeSchedule",
		"RollbackFromMarks", "RollbackOperation", "RunMove", "RunPrune",
		"RunRestore", "RunSchedule", "StopOperation", "UnpinSnapshot", "VerifySnapshot"}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Error(diff)
	}
	for _, method := range []string{"/grpc.health.v1.Health/Check",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"} {
		if !readsOnly(method) {
			t.Errorf("%s is logged at info", method)
		}
	}
	if readsOnly("/mgmt.v1.SnapshotService/Unknown") {
		t.Error("a method that is not known is taken for one that reads")
	}
}
