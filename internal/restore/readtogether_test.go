package restore

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
)

// TestObjectsOfAWorkloadClusterAreReadTogether: a poll reads them with one LIST. What has lost its
// label, or is gone, is read by itself, and so is everything when the LIST fails.
func TestObjectsOfAWorkloadClusterAreReadTogether(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	claims := func(name string) object.Ref {
		return object.Ref{Group: "ipam.cluster.x-k8s.io", Kind: "IPAddressClaim", Namespace: "one",
			Name: name}
	}
	fleet := func() *memory {
		objects := []string{`{"kind":"Namespace","metadata":{"name":"one"}}`,
			`{"kind":"Cluster","metadata":{"namespace":"one","name":"w"},"spec":{}}`}
		for _, name := range names {
			objects = append(objects, `{"kind":"IPAddressClaim","metadata":{"namespace":"one","name":"`+
				name+`","labels":{"cluster.x-k8s.io/cluster-name":"w"},
				"ownerReferences":[{"kind":"Cluster","name":"w"}]}}`)
		}
		return newMemory(t, "source", objects...)
	}
	for name, tt := range map[string]struct {
		change func(target *memory)
		read   []string // one by one
		left   []string // have a problem
	}{
		"all are there": {change: func(*memory) {}},
		"one has lost its label": {change: func(target *memory) {
			target.objects[claims("a")].SetLabels(nil)
		}, read: []string{"a"}},
		"one is gone": {change: func(target *memory) { delete(target.objects, claims("b")) },
			read: []string{"b"}, left: []string{"b"}},
		"one is another one": {change: func(target *memory) {
			target.objects[claims("b")].SetUID("another")
		}, left: []string{"b"}},
		"the LIST breaks off": {change: func(target *memory) {
			target.refuseList = func(kube.Kind) error { return errors.New("broken off") }
		}, read: names},
	} {
		t.Run(name, func(t *testing.T) {
			target := fleet()
			x := newTrial(t, fleet(), target)
			r := newRun(t.Context(), RunOptions{Plan: &Plan{}, Contents: x.contents, Reader: target,
				Kinds: target.kinds})
			var objects []Object
			for _, name := range names {
				k, _ := kube.FindKind(target.kinds, claims(name).GroupKind())
				r.kinds[k.GroupKind] = k
				r.setUID(claims(name), string(target.objects[claims(name)].GetUID()))
				objects = append(objects, Object{Ref: claims(name)},
					Object{Ref: claims("left-out-" + name), Action: Skip})
			}
			tt.change(target)
			var mu sync.Mutex
			var read, left []string
			target.onGet = func(ref object.Ref) {
				mu.Lock()
				defer mu.Unlock()
				read = append(read, ref.Name)
			}
			problems, _, err := r.problems(t.Context(), objects, nil,
				func(o Object, source, live *unstructured.Unstructured) string {
					if live.GetName() != o.Name || source.GetName() != o.Name {
						return "mixed up"
					}
					return ""
				})
			for _, o := range problems {
				left = append(left, o.Name)
			}
			slices.Sort(read)
			if err != nil || !slices.Equal(read, tt.read) || !slices.Equal(left, tt.left) {
				t.Errorf("read %v one by one, want %v; problems with %v, want %v: %v", read, tt.read, left,
					tt.left, err)
			}
		})
	}
}
