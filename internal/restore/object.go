package restore

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/object"
)

const (
	ownAnnotations = "mgmtd.dev/"
	// gone once the UID of what was created is journaled
	annotationOperation  = capi.AnnotationOperation
	annotationWasPaused  = capi.AnnotationWasPaused // gone with the release
	fieldMetadata        = "metadata"
	conditionPaused      = "Paused"
	fieldOwnerReferences = "ownerReferences"
)

func gkOf(u *unstructured.Unstructured) object.GroupKind {
	gvk := u.GroupVersionKind()
	return object.GroupKind{Group: gvk.Group, Kind: gvk.Kind}
}

// strip removes what a management cluster sets itself; what is left can be created.
func strip(u *unstructured.Unstructured) {
	for _, f := range []string{"uid", "resourceVersion", "generation", "creationTimestamp",
		"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"} {
		unstructured.RemoveNestedField(u.Object, fieldMetadata, f)
	}
}

// Annotate sets one annotation.
func Annotate(u *unstructured.Unstructured, key, value string) {
	a := u.GetAnnotations()
	if a == nil {
		a = map[string]string{}
	}
	a[key] = value
	u.SetAnnotations(a)
}

// Unannotate removes one annotation, and the field with the last of them.
func Unannotate(u *unstructured.Unstructured, key string) {
	a := u.GetAnnotations()
	if _, ok := a[key]; !ok {
		return
	}
	delete(a, key)
	if len(a) == 0 {
		a = nil
	}
	u.SetAnnotations(a)
}

// prepare makes of an object of the snapshot the one to create: paused, marked as ours, with owner
// references to live UIDs. Owners that do not live yet are left out when partial says that they
// follow; else that is an error, since the garbage collector deletes an object with an unknown
// owner.
func (r *run) prepare(u *unstructured.Unstructured, o Object, workloadID string,
	partial bool) error {
	strip(u)
	r.Rows.Pause(u.Object)
	if workloadID != "" && o.GroupKind() == capi.Cluster {
		Annotate(u, capi.AnnotationWorkloadID, workloadID)
	}
	return r.setOwners(u, o, partial)
}

// setOwners rewrites the owner references to the UIDs that live on the target.
func (r *run) setOwners(u *unstructured.Unstructured, o Object, partial bool) error {
	var refs []metav1.OwnerReference
	position := 0
	for _, ref := range u.GetOwnerReferences() {
		if position == len(o.Owners) || !sameOwner(ref, o.Owners[position]) {
			continue // dropped by the plan
		}
		uid := o.Outside[position]
		if uid == "" {
			uid = r.uid(o.Owners[position])
		}
		if uid == "" && !partial {
			return fmt.Errorf("its owner %s does not live on the target", o.Owners[position])
		}
		if uid != "" {
			ref.UID = types.UID(uid)
			refs = append(refs, ref)
		}
		position++
	}
	u.SetOwnerReferences(refs)
	if len(refs) == 0 {
		unstructured.RemoveNestedField(u.Object, fieldMetadata, fieldOwnerReferences)
	}
	return nil
}

// wrongOwner names an owner reference of live that has another UID than the same one of want; ""
// when there is none.
func wrongOwner(want, live *unstructured.Unstructured) string {
	for _, is := range live.GetOwnerReferences() {
		for _, should := range want.GetOwnerReferences() {
			if is.Kind == should.Kind && is.Name == should.Name && is.APIVersion == should.APIVersion &&
				is.UID != should.UID {
				return fmt.Sprintf("its owner %s/%s is not the one that lives", is.Kind, is.Name)
			}
		}
	}
	return ""
}

func sameOwner(ref metav1.OwnerReference, owner object.Ref) bool {
	group, _, ok := strings.Cut(ref.APIVersion, "/")
	if !ok {
		group = ""
	}
	return group == owner.Group && ref.Kind == owner.Kind && ref.Name == owner.Name
}

// movedFields returns the managedFields of source for live. Owner references are keyed by UID in
// them, so they follow the owners to their live UIDs.
func movedFields(source, live *unstructured.Unstructured) []metav1.ManagedFieldsEntry {
	fields := source.GetManagedFields()
	for _, was := range source.GetOwnerReferences() {
		for _, is := range live.GetOwnerReferences() {
			if was.Kind != is.Kind || was.Name != is.Name {
				continue
			}
			for i := range fields {
				if f := fields[i].FieldsV1; f != nil {
					fields[i].FieldsV1 = metav1.NewFieldsV1(strings.ReplaceAll(f.GetRawString(), string(was.UID),
						string(is.UID)))
				}
			}
		}
	}
	return fields
}

// withStatus returns live with the status of the snapshot's object. The target's controllers write
// their own Paused condition as soon as the object is there, and it is kept. observedGeneration,
// wherever it stands, is mapped: what had observed the source's generation has observed the live
// one; what had not is one behind.
func withStatus(live, want *unstructured.Unstructured) *unstructured.Unstructured {
	status, _, _ := unstructured.NestedMap(want.Object, "status") // a deep copy
	mapGenerations(status, want.GetGeneration(), live.GetGeneration())
	liveStatus, _, _ := unstructured.NestedMap(live.Object, "status")
	keepPaused(status, liveStatus)
	out := live.DeepCopy()
	out.Object["status"] = status
	return out
}

func mapGenerations(v any, from, to int64) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if g, ok := e.(int64); ok && k == "observedGeneration" {
				switch {
				case g == from:
					v[k] = to
				case to > 1:
					v[k] = to - 1
				default:
					// nothing is observed yet; 0 is not valid in the schema of Cluster API
					delete(v, k)
				}
				continue
			}
			mapGenerations(e, from, to)
		}
	case []any:
		for _, e := range v {
			mapGenerations(e, from, to)
		}
	}
}

// keepPaused replaces the Paused condition of want by the one of live, or removes it when live has
// none yet, wherever conditions are kept.
func keepPaused(want, live map[string]any) {
	for _, path := range [][]string{{"conditions"}, {"v1beta2", "conditions"}} {
		conditions, ok, _ := unstructured.NestedSlice(want, path...)
		if !ok {
			continue
		}
		liveConditions, _, _ := unstructured.NestedSlice(live, path...)
		paused := condition(liveConditions, conditionPaused)
		kept := make([]any, 0, len(conditions))
		for _, c := range conditions {
			if m, ok := c.(map[string]any); ok && m["type"] == conditionPaused {
				continue
			}
			kept = append(kept, c)
		}
		if paused != nil {
			kept = append(kept, paused)
		}
		_ = unstructured.SetNestedSlice(want, kept, path...) // its parents were read just now
	}
	if _, ok := want["conditions"]; !ok {
		if paused := condition(sliceOf(live, "conditions"), conditionPaused); paused != nil {
			want["conditions"] = []any{paused}
		}
	}
}

func sliceOf(m map[string]any, path ...string) []any {
	s, _, _ := unstructured.NestedSlice(m, path...)
	return s
}

func condition(conditions []any, name string) map[string]any {
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == name {
			return m
		}
	}
	return nil
}

// safe gives the text of an API error without values of fields, for kinds whose fields may be
// secrets (invariant I6): admission may quote what it refuses.
func safe(gk object.GroupKind, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	s := status.Status()
	var fields []string
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			if c.Field != "" {
				// its message quotes the value
				fields = append(fields, fmt.Sprintf("%s: %s", c.Field, c.Type))
			}
		}
	}
	if len(fields) == 0 && !capi.HoldsSecrets(gk) {
		return err.Error() // the words of a webhook, of authorization, of a conflict
	}
	return fmt.Sprintf("%s (%d) %s", s.Reason, s.Code, strings.Join(fields, ", "))
}

func decodeBase64(s string) ([]byte, error) { return base64.StdEncoding.DecodeString(s) }

// keysMatch reports whether a public and a private key in PEM belong together. The service account
// pair is keys, not certificates.
func keysMatch(publicPEM, privatePEM []byte) bool {
	pub, _ := pem.Decode(publicPEM)
	priv, _ := pem.Decode(privatePEM)
	if pub == nil || priv == nil {
		return false
	}
	public, err := x509.ParsePKIXPublicKey(pub.Bytes)
	if err != nil {
		if public, err = x509.ParsePKCS1PublicKey(pub.Bytes); err != nil {
			return false
		}
	}
	private, err := parsePrivateKey(priv.Bytes)
	if err != nil {
		return false
	}
	equal, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && equal.Equal(public)
}

func parsePrivateKey(der []byte) (crypto.Signer, error) {
	if k, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return k, nil
	}
	if k, err := x509.ParseECPrivateKey(der); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	if signer, ok := k.(crypto.Signer); ok {
		return signer, nil
	}
	return nil, fmt.Errorf("key of type %T cannot sign", k)
}
