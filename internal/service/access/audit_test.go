package access

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mgmtd/mgmtd/internal/service"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// auditor is a guard whose audit log is in memory.
type auditor struct {
	*Guard
	text *bytes.Buffer
}

func newAuditor(rules *Rules) auditor {
	text := &bytes.Buffer{}
	return auditor{NewGuard(rules, slog.New(slog.NewJSONHandler(text, nil))), text}
}

// ended is the line of a request of a caller that ended with err; nil when it has none.
func (a auditor) ended(t *testing.T, c Caller, method string, req, answer proto.Message,
	err error) map[string]any {
	t.Helper()
	a.text.Reset()
	call := a.begin(t.Context(), method)
	call.caller, call.known = c, true
	call.role, call.by = a.rules.Load().Role(c)
	if denied := call.admit(req); denied != nil {
		err = denied
	} else if err == nil {
		call.result = resultAttrs(answer)
	}
	call.audit(err)
	if a.text.Len() == 0 {
		return nil
	}
	line := map[string]any{}
	if err := json.Unmarshal(a.text.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, a.text)
	}
	delete(line, "time")
	return line
}

var (
	dr   = Caller{Names: []string{"cn:dr", "dns:dr.example.com"}, Serial: "1f"}
	mon  = Caller{Names: []string{"cn:mon"}, Serial: "20"}
	root = Caller{User: &User{Name: "root", PID: 7}}
)

func TestAuditSaysWhoDidWhatWithWhat(t *testing.T) {
	a := newAuditor(&Rules{Clients: []Client{{"cn:dr", Restore}, {"cn:mon", View}}})
	for _, test := range []struct {
		name        string
		caller      Caller
		method      string
		req, answer proto.Message
		err         error
		want        map[string]any
	}{
		{"a restore", root, mgmtv1.RestoreService_RunRestore_FullMethodName, &mgmtv1.RunRestoreRequest{
			Identity: []byte("AGE-SECRET-KEY-1X"), PlanDigest: "d",
			Spec: &mgmtv1.RestoreSpec{Source: "prod", Snapshot: "latest", SourceIsGone: true,
				At:                timestamppb.New(time.Unix(0, 0)),
				ManagedFields:     mgmtv1.ManagedFields_MANAGED_FIELDS_ALL,
				Selection:         &mgmtv1.Selection{Workloads: []string{"a/b", "a/c"}},
				ForceCodes:        []string{"ca-mismatch"},
				AcceptDifferences: []string{"Machine.cluster.x-k8s.io:spec.a"}},
			Tuning: &mgmtv1.RestoreTuning{Observe: durationpb.New(time.Minute)}},
			&mgmtv1.RunRestoreResponse{Operation: &mgmtv1.Operation{Id: "op1", SnapshotId: "0123"}}, nil,
			map[string]any{"method": "RunRestore", "decision": "allowed", "caller": "root (uid 0)",
				"uid": 0.0, "pid": 7.0, "role": "admin", "by": "user root (uid 0)",
				"request": map[string]any{"identity": "given", "planDigest": "d",
					"spec": map[string]any{"source": "prod", "snapshot": "latest", "sourceIsGone": true,
						"at": "1970-01-01T00:00:00Z", "managedFields": "MANAGED_FIELDS_ALL",
						"selection":         map[string]any{"workloads": []any{"a/b", "a/c"}},
						"forceCodes":        []any{"ca-mismatch"},
						"acceptDifferences": []any{"Machine.cluster.x-k8s.io:spec.a"}},
					"tuning": map[string]any{"observe": "1m0s"}},
				"operation": "op1", "snapshot": "0123", "outcome": "OK"}},
		{"a look inside", dr, mgmtv1.SnapshotService_GetSnapshot_FullMethodName,
			&mgmtv1.GetSnapshotRequest{Id: "latest", Identity: []byte("x")},
			&mgmtv1.GetSnapshotResponse{Snapshot: &mgmtv1.Snapshot{Id: "0123"}}, nil,
			map[string]any{"method": "GetSnapshot", "decision": "allowed",
				"caller": "cn:dr, dns:dr.example.com", "serial": "1f", "role": "restore", "by": "cn:dr",
				"request":  map[string]any{"id": "latest", "identity": "given"},
				"snapshot": "0123", "outcome": "OK"}},
		{"a failure", dr, mgmtv1.OperationService_ResumeOperation_FullMethodName,
			&mgmtv1.ResumeOperationRequest{Id: "op1"}, nil,
			&service.Error{Reason: service.ReasonLocked, Message: "it runs"},
			map[string]any{"method": "ResumeOperation", "decision": "allowed",
				"caller": "cn:dr, dns:dr.example.com", "serial": "1f", "role": "restore", "by": "cn:dr",
				"request": map[string]any{"id": "op1"}, "outcome": "LOCKED", "error": "it runs"}},
		{"a refusal", mon, mgmtv1.PruneService_RunPrune_FullMethodName, &mgmtv1.RunPruneRequest{
			Spec: &mgmtv1.PruneSpec{AcceptGaps: true, Retention: &mgmtv1.Retention{KeepLast: 1}}}, nil, nil,
			map[string]any{"method": "RunPrune", "decision": "denied", "caller": "cn:mon", "serial": "20",
				"role": "view", "by": "cn:mon", "request": map[string]any{"spec": map[string]any{
					"acceptGaps": true, "retention": map[string]any{"keepLast": 1.0}}},
				"outcome": "DENIED", "error": "RunPrune needs the role admin, and cn:mon has the role view"}},
		{"a refused list", Caller{Names: []string{"cn:eve"}, Serial: "21"},
			mgmtv1.SnapshotService_ListSnapshots_FullMethodName, &mgmtv1.ListSnapshotsRequest{}, nil, nil,
			map[string]any{"method": "ListSnapshots", "decision": "denied", "caller": "cn:eve",
				"serial": "21", "role": "none", "by": "", "outcome": "DENIED",
				"error": "ListSnapshots is refused: no name of the client certificate has a role: cn:eve"}},
		{"a list", mon, mgmtv1.SnapshotService_ListSnapshots_FullMethodName,
			&mgmtv1.ListSnapshotsRequest{}, &mgmtv1.ListSnapshotsResponse{}, nil, nil},
		{"a list that failed", mon, mgmtv1.SnapshotService_ListSnapshots_FullMethodName,
			&mgmtv1.ListSnapshotsRequest{}, nil, errors.New("x"), nil},
	} {
		got := a.ended(t, test.caller, test.method, test.req, test.answer, test.err)
		if test.want != nil {
			test.want["level"], test.want["msg"] = "INFO", "audit"
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// TestI6NothingSecretIsAudited fills every field of every request, and searches the line for what
// must not be there.
func TestI6NothingSecretIsAudited(t *testing.T) {
	const secret = "AGE-SECRET-KEY-1SEED"
	a := newAuditor(&Rules{})
	var fill func(m protoreflect.Message)
	fill = func(m protoreflect.Message) {
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			switch {
			case f.Kind() == protoreflect.BytesKind:
				m.Set(f, protoreflect.ValueOfBytes([]byte(secret)))
			case f.IsMap():
				t.Errorf("%s is a map: decide what of it is audited", f.FullName())
			case f.IsList() && f.Kind() == protoreflect.StringKind:
				m.Mutable(f).List().Append(protoreflect.ValueOfString("text"))
			case f.IsList():
			case f.Kind() == protoreflect.StringKind:
				m.Set(f, protoreflect.ValueOfString("text"))
			case f.Message() != nil:
				fill(m.Mutable(f).Message())
			}
		}
	}
	eachMethod(func(name string, m protoreflect.MethodDescriptor) {
		req := dynamicpb.NewMessage(m.Input())
		fill(req)
		a.ended(t, root, name, req, nil, nil)
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)),
			strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]")} {
			if strings.Contains(a.text.String(), form[:len(form)-2]) {
				t.Errorf("%s: %s", name, a.text)
			}
		}
	})
}

// TestALineOfTheAuditLogIsBounded: requests hold up to 4 MiB, and anybody may send one.
func TestALineOfTheAuditLogIsBounded(t *testing.T) {
	a := newAuditor(&Rules{Clients: []Client{{"cn:dr", Admin}}})
	req := &mgmtv1.DeleteSnapshotsRequest{}
	for range 20_000 {
		req.Ids = append(req.Ids, strings.Repeat("é", 5000))
	}
	for c, limit := range map[*Caller]int{&dr: 1 << 19, &mon: 10_000} {
		line := a.ended(t, *c, mgmtv1.SnapshotService_DeleteSnapshots_FullMethodName, req, nil, nil)
		ids := line["request"].(map[string]any)["ids"].([]any)
		if cut := ids[len(ids)-1].(map[string]any)["more"]; a.text.Len() > limit ||
			cut != float64(len(req.Ids)-len(ids)+1) {
			t.Errorf("%s: %d bytes, %v more", c, a.text.Len(), cut)
		}
	}
}

// TestRefusedRequestsFillNoDisk: lines of what is allowed are never left out.
func TestRefusedRequestsFillNoDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuditor(&Rules{Clients: []Client{{"cn:dr", Restore}}})
		send := func(c Caller) map[string]any {
			return a.ended(t, c, mgmtv1.OperationService_StopOperation_FullMethodName,
				&mgmtv1.StopOperationRequest{}, nil, nil)
		}
		lines := 0
		for range 1000 {
			if send(mon) != nil {
				lines++
			}
		}
		if lines != denialsAtOnce {
			t.Errorf("%d lines of 1000 refusals", lines)
		}
		if line := send(dr); line == nil || line["suppressed"] != nil {
			t.Errorf("after many refusals: %v", line)
		}
		time.Sleep(time.Second)
		if line := send(mon); line["suppressed"] != float64(1000-denialsAtOnce) {
			t.Errorf("a second later: %v", line)
		}
	})
}
