package lab

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestManifestsContainEveryCRDOfClusterAPI: a kind that Cluster API publishes and the lab does not
// install would be one that no test of the product sees. It needs `lab build` first.
func TestManifestsContainEveryCRDOfClusterAPI(t *testing.T) {
	home, err := FindHome()
	if err != nil {
		t.Fatal(err)
	}
	published := 0
	for _, module := range []string{"sigs.k8s.io/cluster-api", "sigs.k8s.io/cluster-api/test"} {
		dir, err := moduleDir(t.Context(), home, current().module, module)
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			bases, err2 := filepath.Match("*/crd/bases/*.yaml", lastElements(path, 4))
			if err != nil || err2 != nil || !bases {
				return err
			}
			crds, err := readObjects(path)
			for _, crd := range crds {
				// clusterctl reads it from a file of a provider; it is never installed.
				if crd.GetName() == "metadata.clusterctl.cluster.x-k8s.io" {
					continue
				}
				published++
				if _, err := os.Stat(filepath.Join(home.crds(current()), crd.GetName()+".yaml")); err != nil {
					t.Errorf("the lab does not install %s: %v", crd.GetName(), err)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	const least = 29 // of v1.14
	if published < least {
		t.Errorf("found %d published CRDs, want %d at least", published, least)
	}
}

// lastElements returns the last n elements of a path.
func lastElements(path string, n int) string {
	last := ""
	for range n {
		last = filepath.Join(filepath.Base(path), last)
		path = filepath.Dir(path)
	}
	return last
}
