package capi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const hostImage = `"image":{"url":"http://images/v1.raw","checksum":"c"}`

// hostOf is a BareMetalHost with annotations, a spec and a status, each without its braces.
func hostOf(t *testing.T, annotations, spec, status string) map[string]any {
	t.Helper()
	return decoded(t, fmt.Sprintf(`{"apiVersion":"metal3.io/v1alpha1","kind":"BareMetalHost",
		"metadata":{"name":"h","namespace":"n","annotations":{%s}},"spec":{%s},"status":{%s}}`,
		annotations, spec, status))
}

// inState is the status of a host in a state, with more fields of status.provisioning.
func inState(state, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`"lastUpdated":"2026-01-02T03:04:05Z","operationalStatus":"OK","hardware":{
		"cpu":{"count":4}},"provisioning":{"ID":"7","state":%q%s}`, state, more)
}

// TestAHostIsPausedTogetherWithItsStatus: one write sets both annotations. The hardware, which is
// large, comes from another object.
func TestAHostIsPausedTogetherWithItsStatus(t *testing.T) {
	for _, tt := range []struct{ name, before, was, paused string }{
		{"free to work", ``, WasAbsent, "mgmtd.dev"},
		{"paused by its provider", `"baremetalhost.metal3.io/paused":"metal3.io/capm3",` +
			`"baremetalhost.metal3.io/status":"{}"`, WasFalse, "mgmtd.dev"},
		{"paused by a user", `"baremetalhost.metal3.io/paused":"by me"`, WasTrue, "by me"},
	} {
		var rows *Table
		u := hostOf(t, tt.before, hostImage, inState("provisioned", hostImage))
		if !rows.Pause(u) || rows.Pause(u) {
			t.Errorf("%s: it is paused once", tt.name)
		}
		want := map[string]any{AnnotationWasPaused: tt.was, "baremetalhost.metal3.io/paused": tt.paused,
			"baremetalhost.metal3.io/status": `{"lastUpdated":"2026-01-02T03:04:05Z",` +
				`"operationalStatus":"OK","provisioning":{"ID":"7",` +
				`"image":{"checksum":"c","url":"http://images/v1.raw"},"state":"provisioned"}}`}
		if diff := cmp.Diff(want, annotations(u)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		rows.Unpause(u)
		before := hostOf(t, tt.before, ``, ``)
		for _, of := range []map[string]any{u, before} {
			if tt.was != WasAbsent { // it is its status still, until somebody unpauses the host
				Unannotate(of, "baremetalhost.metal3.io/status")
			}
		}
		if diff := cmp.Diff(annotations(before), annotations(u),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s, given back (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestAStatusThatIsOnlyAnAnnotationIsNeverLost: the host was moved here by clusterctl, and its
// controller has not seen it yet.
func TestAStatusThatIsOnlyAnAnnotationIsNeverLost(t *testing.T) {
	var rows *Table
	const status = `"baremetalhost.metal3.io/status":"{\"provisioning\":{\"state\":\"provisioned\"}}"`
	u := hostOf(t, status, hostImage, ``)
	rows.Pause(u)
	rows.Unpause(u)
	if diff := cmp.Diff(hostOf(t, status, hostImage, ``), u); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWhatOthersWroteToAPausedHostStays: cluster-api-provider-metal3 may write its value after
// ours, and then unpauses the host itself; a user may want it paused.
func TestWhatOthersWroteToAPausedHostStays(t *testing.T) {
	for _, value := range []string{"metal3.io/capm3", "by me"} {
		var rows *Table
		u := hostOf(t, ``, ``, ``)
		rows.Pause(u)
		Annotate(u, "baremetalhost.metal3.io/paused", value)
		rows.Unpause(u)
		if got := annotations(u)["baremetalhost.metal3.io/paused"]; got != value || PausedByUs(u) {
			t.Errorf("%q became %v", value, annotations(u))
		}
	}
}

// TestAHostIsReadyWithTheStatusOfItsSource is the truth table of the gate: a host is released with
// what its controller decides by, and in no other state.
func TestAHostIsReadyWithTheStatusOfItsSource(t *testing.T) {
	provisioned := inState("provisioned", hostImage+
		`,"bootMode":"UEFI","raid":{"softwareRAIDVolumes":[]}`)
	const other = `"image":{"url":"http://images/v2.raw","checksum":"c"}`
	annotated := `"baremetalhost.metal3.io/status":"{\"lastUpdated\":\"2026-01-02T03:04:05Z\",` +
		`\"provisioning\":{\"state\":\"provisioned\",\"image\":{\"url\":\"http://images/v1.raw\"}}}"`
	const deployed = `"customDeploy":{"method":"install"}`
	for _, tt := range []struct {
		name      string
		was, live map[string]any
		unlike    string // a part of the answer
	}{
		{name: "as it was", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, ``, hostImage, provisioned)},
		{name: "with another ID, and what is empty left out", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, ``, hostImage, strings.NewReplacer(`"ID":"7"`, `"ID":"8"`,
				`"raid":{"softwareRAIDVolumes":[]}`, `"raid":{"softwareRAIDVolumes":[]},"rootDeviceHints":{}`).
				Replace(provisioned))},
		{name: "without a status", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, annotated, hostImage, ``), unlike: "it has no status"},
		{name: "without the time of its status", was: hostOf(t, ``, hostImage, provisioned),
			live:   hostOf(t, ``, hostImage, strings.Replace(provisioned, "lastUpdated", "at", 1)),
			unlike: "it has no status"},
		{name: "registering", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, ``, hostImage, inState("registering", "")), unlike: "provisioning.state"},
		{name: "without its image", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, ``, hostImage, inState("provisioned", "")), unlike: "provisioning.image"},
		{name: "with another image", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, ``, hostImage, inState("provisioned", other)), unlike: "v2.raw"},
		{name: "with another boot mode", was: hostOf(t, ``, hostImage, provisioned),
			live:   hostOf(t, ``, hostImage, strings.Replace(provisioned, "UEFI", "legacy", 1)),
			unlike: "bootMode"},
		{name: "with another image in its spec", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, ``, other, provisioned), unlike: "it would be deprovisioned"},
		{name: "without an image in its spec", was: hostOf(t, ``, hostImage, provisioned),
			live: hostOf(t, ``, ``, provisioned), unlike: "it would be deprovisioned"},
		{name: "free", was: hostOf(t, ``, ``, inState("available", `"rootDeviceHints":{"model":"x"}`)),
			live: hostOf(t, ``, ``, inState("available", `"rootDeviceHints":{"model":"x"}`))},
		{name: "free, with other hints",
			was:    hostOf(t, ``, ``, inState("available", `"rootDeviceHints":{"model":"x"}`)),
			live:   hostOf(t, ``, ``, inState("available", ``)),
			unlike: "rootDeviceHints is not there, and has to be"},
		{name: "free, and provisioned here", was: hostOf(t, ``, ``, inState("available", ``)),
			live: hostOf(t, ``, hostImage, provisioned), unlike: "provisioning.state"},
		{name: "provisioned elsewhere",
			was:  hostOf(t, ``, `"externallyProvisioned":true`, inState("externally provisioned", ``)),
			live: hostOf(t, ``, `"externallyProvisioned":true`, inState("externally provisioned", ``))},
		{name: "provisioned elsewhere, and not any more by its spec",
			was:    hostOf(t, ``, `"externallyProvisioned":true`, inState("externally provisioned", ``)),
			live:   hostOf(t, ``, hostImage, inState("externally provisioned", ``)),
			unlike: "inspected or prepared"},
		{name: "installed", was: hostOf(t, ``, deployed, inState("provisioned", deployed)),
			live: hostOf(t, ``, deployed, inState("provisioned", deployed))},
		{name: "installed in another way", was: hostOf(t, ``, deployed, inState("provisioned", deployed)),
			live:   hostOf(t, ``, `"customDeploy":{"method":"b"}`, inState("provisioned", deployed)),
			unlike: "it would be deprovisioned"},
		{name: "free, with other settings of its firmware",
			was: hostOf(t, ``, ``, inState("available", `"firmware":{"simultaneousMultithreadingEnabled":
				true}`)),
			live: hostOf(t, ``, ``, inState("available", ``)), unlike: "firmware is not there"},
		{name: "whose source had its status as an annotation", was: hostOf(t, annotated, hostImage, ``),
			live: hostOf(t, annotated, hostImage, ``)},
		{name: "which has lost that annotation", was: hostOf(t, annotated, hostImage, ``),
			live: hostOf(t, ``, hostImage, ``), unlike: "it has no status"},
		{name: "new", was: hostOf(t, ``, ``, ``), live: hostOf(t, ``, ``, ``)},
		{name: "in use without a status", was: hostOf(t, ``, ``, ``), live: hostOf(t, ``, hostImage, ``),
			unlike: "its disk would be written"},
		{name: "compared with its annotation", live: hostOf(t, annotated, hostImage,
			inState("provisioned", `"image":{"url":"http://images/v1.raw"}`))},
		{name: "unlike its annotation", live: hostOf(t, annotated, hostImage,
			inState("available", ``)), unlike: "provisioning.state"},
		{name: "in use, with neither", live: hostOf(t, ``, hostImage, ``),
			unlike: "its disk would be written"},
	} {
		why := PauseByHostAnnotation.Gate().Unready(tt.was, tt.live)
		if tt.unlike == "" && why != "" || !strings.Contains(why, tt.unlike) {
			t.Errorf("%s: %q, want %q", tt.name, why, tt.unlike)
		}
	}
}

// TestAHostInWorkIsNotSettled: what a copy would begin again.
func TestAHostInWorkIsNotSettled(t *testing.T) {
	const (
		settled = "settled"
		begins  = "begins again"
		harmful = "harmful"
	)
	for _, tt := range []struct{ name, spec, status, want string }{
		{"provisioned", hostImage, inState("provisioned", hostImage), settled},
		{"provisioned, with another image in its spec", `"image":{"url":"b"}`,
			inState("provisioned", hostImage), harmful},
		{"about to be deprovisioned", ``, inState("provisioned", hostImage), harmful},
		{"serviced", hostImage, strings.Replace(inState("provisioned", hostImage), `"OK"`, `"servicing"`,
			1), harmful},
		{"serviced in vain", hostImage, `"errorType":"servicing error",` +
			inState("provisioned", hostImage), harmful},
		{"provisioned elsewhere", `"externallyProvisioned":true`, inState("externally provisioned", ""),
			settled},
		{"provisioned elsewhere, and not any more by its spec", ``, inState("externally provisioned", ""),
			harmful},
		{"available", ``, inState("available", ""), settled},
		{"ready", ``, inState("ready", ""), settled},
		{"unmanaged", ``, inState("unmanaged", ""), settled},
		{"registering", ``, inState("registering", ""), begins},
		{"inspecting", ``, inState("inspecting", ""), begins},
		{"preparing", ``, inState("preparing", ""), harmful},
		{"provisioning", hostImage, inState("provisioning", ""), harmful},
		{"deprovisioning", ``, inState("deprovisioning", hostImage), harmful},
		{"powering off", ``, inState("powering off before delete", ""), harmful},
		{"deleting", ``, inState("deleting", ""), harmful},
		{"in a state that is not known", ``, inState("melting", ""), harmful},
		{"new", ``, ``, begins},
		{"new, with an image", hostImage, ``, harmful},
		{"in use without a status", `"consumerRef":{"name":"m"}`, ``, harmful},
		{"new, provisioned elsewhere", `"externallyProvisioned":true,"consumerRef":{"name":"m"}`, ``,
			begins},
	} {
		why, isHarmful := PauseByHostAnnotation.Gate().Unsettled(hostOf(t, ``, tt.spec, tt.status))
		got := settled
		if isHarmful {
			got = harmful
		} else if why != "" {
			got = begins
		}
		if got != tt.want || isHarmful && why == "" {
			t.Errorf("%s: %s (%q), want %s", tt.name, got, why, tt.want)
		}
	}
}
