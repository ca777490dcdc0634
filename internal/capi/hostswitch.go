package capi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// Gate is what a release asks of an object whose controllers decide by its status alone what
// becomes of a machine: with another status they deprovision it, or write its disk again.
type Gate interface {
	// Unsettled says what the controllers of an object are in the middle of, and would begin again
	// with a copy of it; "" when they are not. harmful: that could write to the disks or to the
	// firmware of a machine.
	Unsettled(obj map[string]any) (why string, harmful bool)
	// Unready says why live, a copy of was, must not be released: it does not have the status of was;
	// "" when it may be released. Where was is nil, live is compared with the status that was written
	// to it together with its pause.
	Unready(was, live map[string]any) string
}

// The annotations of a BareMetalHost (baremetal-operator v0.13.2,
// apis/metal3.io/v1alpha1/baremetalhost_types.go: PausedAnnotation, StatusAnnotation). With the
// first one, whatever its value, the host is not reconciled, also while it is deleted. The second
// one is a status as JSON: a host that is at work without a status takes it from there, and one
// that has a status removes it (internal/controller/metal3.io/baremetalhost_controller.go,
// reconcileHostData).
const (
	annotationHostPaused = "baremetalhost.metal3.io/paused"
	annotationHostStatus = "baremetalhost.metal3.io/status"
)

// Values of annotationHostPaused. cluster-api-provider-metal3 pauses the hosts of a paused
// Cluster that are not paused, by a value of its own, and unpauses those with that value when the
// Cluster is at work again (cluster-api-provider-metal3 v1.14,
// baremetal/metal3machine_manager.go, SetPauseAnnotation and RemovePauseAnnotation). It removes
// no other value.
const (
	hostPausedByUs       = "mgmtd.dev"
	hostPausedByProvider = "metal3.io/capm3"
)

// hostSwitch pauses a BareMetalHost. The value of the provider is replaced, so that a copy is
// unpaused by its release alone, and the release writes it back (WasFalse). Any other value is a
// user's, and stays. Set also writes the status of the host as an annotation, in the same write, so
// that no controller ever finds a host without its status. Unset removes that annotation together
// with our pause, if the host has a status. On a host that a user paused the annotation stays; the
// Bare Metal Operator removes it once the host is not paused any more.
type hostSwitch struct{ ownSwitch }

func (hostSwitch) String() string   { return "host-annotation" }
func (hostSwitch) Order() int       { return 1 }
func (hostSwitch) AtWork(bool) bool { return true }
func (p hostSwitch) Gate() Gate     { return p }

func (hostSwitch) IsSet(obj map[string]any) bool {
	_, set := annotations(obj)[annotationHostPaused]
	return set
}

func (p hostSwitch) Set(obj map[string]any) string {
	if status := hostStatus(obj); status != nil {
		without := map[string]any{}
		for name, v := range status {
			if name != "hardware" { // it is large, and comes from the object HardwareData
				without[name] = v
			}
		}
		if text, err := json.Marshal(without); err == nil {
			Annotate(obj, annotationHostStatus, string(text))
		}
	}
	value, set := annotations(obj)[annotationHostPaused]
	switch {
	case set && value != hostPausedByProvider:
		return WasTrue
	case set:
		Annotate(obj, annotationHostPaused, hostPausedByUs)
		return WasFalse
	}
	Annotate(obj, annotationHostPaused, hostPausedByUs)
	return WasAbsent
}

func (hostSwitch) Unset(obj map[string]any, was string) {
	if annotations(obj)[annotationHostPaused] != hostPausedByUs {
		return // a user paused it, or the provider has written its own value since
	}
	switch was {
	case WasAbsent:
		Unannotate(obj, annotationHostPaused)
		if hostStatus(obj) != nil {
			Unannotate(obj, annotationHostStatus)
		}
	case WasFalse:
		Annotate(obj, annotationHostPaused, hostPausedByProvider)
	}
}

// hostStatus returns the status of a host; nil when it has none, by the rule of the Bare Metal
// Operator: a status is there once it has a time.
func hostStatus(host map[string]any) map[string]any {
	status, _ := host["status"].(map[string]any)
	if updated, _ := status["lastUpdated"].(string); updated == "" {
		return nil
	}
	return status
}

// annotatedStatus returns the status that a host has as an annotation; nil when there is none.
func annotatedStatus(host map[string]any) (status map[string]any) {
	text, _ := annotations(host)[annotationHostStatus].(string)
	if json.Unmarshal([]byte(text), &status) != nil {
		return nil
	}
	return status
}

// States of a BareMetalHost (baremetal-operator v0.13.2,
// apis/metal3.io/v1alpha1/baremetalhost_types.go).
const (
	hostProvisioned           = "provisioned"
	hostExternallyProvisioned = "externally provisioned"
	hostServicing             = "servicing"       // an operational status
	hostServicingError        = "servicing error" // a type of error: it is tried again
)

// hostStates are the states that last: the Bare Metal Operator only watches such a host until
// somebody changes its spec.
var hostStates = []string{"unmanaged", "ready", "available", hostProvisioned,
	hostExternallyProvisioned}

// harmlessStates are the states in which the Bare Metal Operator writes nothing to a machine. It
// begins them again, and may start the machine for that.
var harmlessStates = []string{"registering", "match profile", "inspecting"}

func (hostSwitch) Unsettled(host map[string]any) (why string, harmful bool) {
	spec, _ := host["spec"].(map[string]any)
	status := hostStatus(host)
	if status == nil {
		status = annotatedStatus(host)
	}
	state := hostState(status)
	external, _ := spec["externallyProvisioned"].(bool)
	switch {
	case state == "" && !external && (hasMap(spec, "image") || hasMap(spec, "customDeploy") ||
		hasMap(spec, "consumerRef")):
		return "it is in use, and has no status: its disk would be written", true
	case state == "":
		return "it has no status: it would be registered and inspected", false
	case slices.Contains(harmlessStates, state):
		return fmt.Sprintf("it is in the state %q, which begins again", state), false
	case !slices.Contains(hostStates, state):
		return fmt.Sprintf("it is in the state %q", state), true
	case status["operationalStatus"] == hostServicing, status["errorType"] == hostServicingError:
		return "its firmware is being changed (operational status or error of the type " +
			hostServicing + ")", true
	}
	why = takenFromUse(host, status)
	return why, why != ""
}

// hostDecides are the fields of status.provisioning by which the Bare Metal Operator decides what
// it does with a machine. It compares image and customDeploy with the spec and deprovisions what
// differs, and prepares a free machine again whose other fields differ (internal/controller/
// metal3.io/host_state_machine.go, provisioningCancelled and handleAvailable). The ID is that of
// its Ironic, which it replaces.
var hostDecides = []string{"state", "image", "customDeploy", "rootDeviceHints", "raid", "firmware",
	"bootMode"}

func (p hostSwitch) Unready(was, live map[string]any) string {
	var want map[string]any
	if was != nil {
		want = hostStatus(was)
	}
	if want == nil && was != nil {
		want = annotatedStatus(was)
	}
	if was == nil {
		want = annotatedStatus(live)
	}
	if want == nil { // it had no status: nothing was provisioned
		if why, harmful := p.Unsettled(live); harmful {
			return why
		}
		return ""
	}
	is := hostStatus(live)
	if is == nil && was != nil && hostStatus(was) == nil { // on the source it was only an annotation
		is = annotatedStatus(live)
	}
	if is == nil {
		return "it has no status"
	}
	for _, field := range hostDecides {
		have, should := inProvisioning(is, field), inProvisioning(want, field)
		if !reflect.DeepEqual(normal(have), normal(should)) {
			return fmt.Sprintf("status.provisioning.%s is %s, and has to be %s", field, shown(have),
				shown(should))
		}
	}
	return takenFromUse(live, is)
}

// takenFromUse says why the Bare Metal Operator would not leave a host that is in use as it is; ""
// when it would. A host that somebody else has provisioned, and whose spec does not say so any
// more, is inspected, prepared or deprovisioned
// (internal/controller/metal3.io/host_state_machine.go, handleExternallyProvisioned).
func takenFromUse(host, status map[string]any) string {
	spec, _ := host["spec"].(map[string]any)
	external, _ := spec["externallyProvisioned"].(bool)
	switch state := hostState(status); {
	case state == hostProvisioned:
		return isDeprovisioned(host, status)
	case state == hostExternallyProvisioned && !external:
		return "it was provisioned by somebody else, and its spec does not say so any more: it would " +
			"be inspected or prepared"
	}
	return ""
}

// isDeprovisioned says why the Bare Metal Operator would deprovision a host that is provisioned;
// "" when it would not (internal/controller/metal3.io/host_state_machine.go,
// provisioningCancelled).
func isDeprovisioned(host, status map[string]any) string {
	spec, _ := host["spec"].(map[string]any)
	field := func(m any, name, of string) string {
		in, _ := m.(map[string]any)
		inner, _ := in[name].(map[string]any)
		value, _ := inner[of].(string)
		return value
	}
	provisioning := status["provisioning"]
	method, wasMethod := field(spec, "customDeploy", "method"),
		field(provisioning, "customDeploy", "method")
	image, wasImage := field(spec, "image", "url"), field(provisioning, "image", "url")
	switch {
	case method != wasMethod && wasMethod != "":
		return fmt.Sprintf("it is provisioned by %q, and its spec has %q: it would be deprovisioned",
			wasMethod, method)
	case method == "" && image == "", wasImage != "" && image != wasImage:
		return fmt.Sprintf("it is provisioned with the image %q, and its spec has %q: it would be "+
			"deprovisioned", wasImage, image)
	}
	return ""
}

func hostState(status map[string]any) string {
	state, _ := inProvisioning(status, "state").(string)
	return state
}

func inProvisioning(status map[string]any, field string) any {
	provisioning, _ := status["provisioning"].(map[string]any)
	return provisioning[field]
}

// normal returns v as JSON decodes it, and nil for an empty value, which a controller may leave
// out.
func normal(v any) (out any) {
	text, err := json.Marshal(v)
	if err != nil || json.Unmarshal(text, &out) != nil {
		return v
	}
	switch v := out.(type) {
	case string:
		if v == "" {
			return nil
		}
	case map[string]any:
		for name, e := range v {
			if v[name] = normal(e); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) == 0 {
			return nil
		}
	}
	return out
}

// shown returns a value of a status for a message.
func shown(v any) string {
	if v = normal(v); v == nil {
		return "not there"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "unknown"
	}
	const most = 200
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}

func hasMap(m map[string]any, name string) bool {
	inner, _ := m[name].(map[string]any)
	return len(inner) > 0
}
