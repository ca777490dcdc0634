package move

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/kube"
)

// admission answers to dry-runs of a removal.
type admission struct {
	Prober
	patch, del error

	mu    sync.Mutex
	asked []string
}

func (a *admission) ask(verb string, k kube.Kind, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, verb+" "+k.Kind+" "+name)
}

func (a *admission) DryRunPatchMetadata(_ context.Context, k kube.Kind, _, name string,
	metadata map[string]any) (*unstructured.Unstructured, error) {
	a.ask(fmt.Sprintf("patch %v", metadata), k, name)
	if a.patch != nil {
		return nil, a.patch
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetUID("u")
	return u, nil
}

func (a *admission) DryRunDelete(_ context.Context, k kube.Kind, _, name string,
	uid types.UID) error {
	a.ask("delete "+string(uid), k, name)
	return a.del
}

// TestWhatTheSourceWouldNotRemoveIsReported: before the first pause, and not after the release. The
// texts are those of an API server.
func TestWhatTheSourceWouldNotRemoveIsReported(t *testing.T) {
	denied := func(words string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: "cluster.x-k8s.io",
			Resource: "machines"}, "m", errors.New(words))
	}
	status := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason,
			Message: message}}
	}
	policy := denied(`ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: keep it`)
	kyverno := status(http.StatusForbidden, metav1.StatusReasonForbidden,
		`admission webhook "validate.kyverno.svc-fail" denied the request: keep it`)
	provider := status(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook `+
		`"validation.azuremanagedmachinepool.infrastructure.cluster.x-k8s.io" denied the request: the last`)
	noDryRun := apierrors.NewBadRequest(`admission webhook "w.example.com" does not support dry run`)
	down := status(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		`Internal error occurred: failed calling webhook "w.example.com": connection refused`)
	again := apierrors.NewConflict(schema.GroupResource{}, "m", errors.New("UID"))
	const patches = "error retire-refused: the source refuses to take off the finalizers"
	const deletes = "error retire-refused: the source refuses the deletion at the retirement: " +
		"Machine m ("
	for name, tt := range map[string]struct {
		answers *admission
		want    []string
	}{
		"nothing":                {&admission{}, nil},
		"a policy":               {&admission{del: policy}, []string{deletes}},
		"a policy on changes":    {&admission{patch: policy}, []string{patches}},
		"a webhook":              {&admission{del: kyverno}, []string{deletes}},
		"a webhook that is down": {&admission{patch: down, del: down}, []string{patches, deletes}},
		"a webhook of a provider": {&admission{del: provider}, []string{"warning retire-refused: a webhook " +
			"of a provider refuses the deletion at the retirement: Machine m ("}},
		"a webhook without dry-runs": {&admission{patch: noDryRun}, []string{"info not-checked: what the " +
			"source lets the move remove at the end is not known of all kinds: Machine m has a webhook"}},
		"no right, which another check reports": {&admission{del: status(http.StatusForbidden,
			metav1.StatusReasonForbidden, `machines.cluster.x-k8s.io "m" is forbidden: User "u" cannot `+
				`delete resource "machines" in API group "cluster.x-k8s.io" in the namespace "ns"`)}, nil},
		"made again since": {&admission{patch: again, del: again}, nil},
		"gone since":       {&admission{del: apierrors.NewNotFound(schema.GroupResource{}, "m")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := sourceOf(t, core("Machine", "m", `"metadata":{"name":"m","uid":"u","resourceVersion":"7"}`),
				core("Machine", "n", ""), core("MachineSet", "s", ""))
			c.Source.Kinds = []kube.Kind{{GroupKind: c.nodes[0].GroupKind(), Resource: "machines"}}
			c.Source.Prober = tt.answers
			checkFound(t, found(t, c, checkRetirement), tt.want...)
			slices.Sort(tt.answers.asked)
			if want := []string{"delete u Machine m", "patch map[annotations:map[clusterctl.cluster.x-k8s.io/" +
				"delete-for-move:] finalizers:<nil> uid:u] Machine m"}; !slices.Equal(tt.answers.asked,
				want) {
				t.Errorf("asked %q, want %q", tt.answers.asked, want)
			}
		})
	}
}

// TestSecretsWithoutFinalizersAreDeletedOnly: a policy that keeps Secrets from being changed does
// not keep a workload cluster from being moved.
func TestSecretsWithoutFinalizersAreDeletedOnly(t *testing.T) {
	for finalizers, want := range map[string]int{"": 0, `,"finalizers":["f"]`: 1} {
		c := sourceOf(t, anObject("v1", "Secret", "s",
			`"metadata":{"name":"s","uid":"u","resourceVersion":"7"`+finalizers+`}`))
		c.Source.Kinds = []kube.Kind{kube.SecretKind}
		c.Source.Prober = &admission{patch: apierrors.NewForbidden(schema.GroupResource{}, "s",
			errors.New("a policy denied the request"))}
		if findings := found(t, c, checkRetirement); len(findings) != want {
			t.Errorf("finalizers %q: %v, want %d", finalizers, findings, want)
		}
	}
}

// DryRunUpdate implements Prober.
func (a *admission) DryRunUpdate(_ context.Context, k kube.Kind, u *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	a.ask(fmt.Sprintf("update %d owners", len(u.GetOwnerReferences())), k, u.GetName())
	return u, a.patch
}

// TestWhatIsSharedMustLoseItsOwner: before a retirement removes the owner.
func TestWhatIsSharedMustLoseItsOwner(t *testing.T) {
	for _, tt := range []struct {
		refuses error
		want    []string
	}{
		{nil, nil},
		{apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "s", errors.New(
			`ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: keep it`)), []string{
			"error retire-refused: the source refuses to take the workload cluster off the owners of what " +
				"it shares: Secret s ("}},
	} {
		c := sourceOf(t, core("Cluster", "w", `"metadata":{"name":"w","uid":"u-w"}`), anObject("/v1",
			"Secret", "s", `"metadata":{"name":"s","uid":"u-s","ownerReferences":[{"apiVersion":`+
				`"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"w","uid":"u-w"},{"apiVersion":`+
				`"cluster.x-k8s.io/v1beta2","kind":"Cluster","name":"x","uid":"u-x"}]}`))
		c.nodes[1].Unit = ""
		c.Source.Kinds = []kube.Kind{kube.SecretKind}
		a := &admission{patch: tt.refuses}
		c.Source.Prober = a
		checkFound(t, found(t, c, checkRetirement), tt.want...)
		if want := []string{"update 1 owners Secret s"}; !slices.Equal(a.asked, want) {
			t.Errorf("asked %q, want %q", a.asked, want)
		}
	}
}
