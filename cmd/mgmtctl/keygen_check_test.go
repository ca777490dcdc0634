package main

import (
	"testing"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

func testKeyCheck(findings ...*mgmtv1.Finding) *mgmtv1.CheckKeysResponse {
	return &mgmtv1.CheckKeysResponse{Encrypted: true, Identities: []string{"0f1e2d3c4b5a6978"},
		Recipients: []string{"0f1e2d3c4b5a6978"}, Findings: findings,
		Snapshots: []*mgmtv1.CheckedSnapshot{{Snapshot: testSnapshots()[0], Opens: true},
			{Snapshot: testSnapshots()[1]}}}
}

func keyFinding(severity mgmtv1.Severity, code string) *mgmtv1.Finding {
	return &mgmtv1.Finding{Severity: severity, Code: code, Message: "it does not fit",
		Hint: "use another one"}
}

// TestKeygenCheckExitsAsTheFindingsSay: 12 for a key that does not fit, 3 for what else is an
// error, and 0 for warnings.
func TestKeygenCheckExitsAsTheFindingsSay(t *testing.T) {
	warning, bad := mgmtv1.Severity_SEVERITY_WARNING, mgmtv1.Severity_SEVERITY_ERROR
	for name, tt := range map[string]struct {
		findings []*mgmtv1.Finding
		want     int
	}{
		"none":            {nil, 0},
		"unchecked":       {[]*mgmtv1.Finding{keyFinding(warning, "signature")}, 0},
		"next recipients": {[]*mgmtv1.Finding{keyFinding(bad, "recipient-missing")}, 3},
		"damaged":         {[]*mgmtv1.Finding{keyFinding(bad, "damaged")}, 3},
		"unknown signer":  {[]*mgmtv1.Finding{keyFinding(bad, "signature")}, 12},
		"wrong, and other": {[]*mgmtv1.Finding{keyFinding(bad, "identity-wrong"),
			keyFinding(bad, "damaged")}, 12},
	} {
		f := newFake()
		f.keyCheck = testKeyCheck(tt.findings...)
		if got := (runner{fake: f}).run(t, "keygen check"+readFlags); got.code != tt.want {
			t.Errorf("%s: exit code %d, want %d", name, got.code, tt.want)
		}
	}
}

func TestKeygenCheckNamesASnapshot(t *testing.T) {
	for line, want := range map[string]*mgmtv1.CheckKeysRequest{
		"":                     {},
		" 1a2b --source prod":  {Id: "1a2b", Source: "prod"},
		" latest --scope team": {Id: "latest", Scope: "team"},
	} {
		f := newFake()
		f.keyCheck = testKeyCheck()
		runner{fake: f}.run(t, "keygen check"+line+readFlags).want(t, 0)
		req := requestOf[*mgmtv1.CheckKeysRequest](t, f)
		if req.GetId() != want.GetId() || req.GetSource() != want.GetSource() ||
			req.GetScope() != want.GetScope() {
			t.Errorf("%q: request %v", line, req)
		}
	}
	for _, line := range []string{" a b", " --scope team"} {
		runner{fake: newFake()}.run(t, "keygen check"+line+readFlags).want(t, 2)
	}
	runner{fake: newFake()}.run(t, "keygen check --standalone --store /s").want(t, 12)
}
