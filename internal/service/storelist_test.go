package service

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// TestLocationsAreListedWithTheirCopies: by the operations of the catalog, and no store is opened.
func TestLocationsAreListedWithTheirCopies(t *testing.T) {
	b := newPruneFixture(t, Retention{})
	b.take(2)
	b.copied()
	b.cfg.Locations[0].CopyTo = "copy"
	b.cfg.Locations = append(b.cfg.Locations, Location{Name: "archive", Store: StoreOptions{
		ReadOnly: true, S3: &s3.Options{Bucket: "bucket", Prefix: "p", CredentialsFile: "none"}}})
	service := &storeService{s: b.Server}
	list := func() (map[string]*mgmtv1.Location, []string) {
		t.Helper()
		resp, err := service.ListLocations(t.Context(), &mgmtv1.ListLocationsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		byName, names := map[string]*mgmtv1.Location{}, []string(nil)
		for _, l := range resp.GetLocations() {
			byName[l.GetName()], names = l, append(names, l.GetName())
		}
		return byName, names
	}
	good, names := list()
	if diff := cmp.Diff([]string{"archive", "copy", "main"}, names); diff != "" {
		t.Errorf("names: %s", diff)
	}
	for name, want := range map[string]*mgmtv1.Location{
		"archive": {Name: "archive", Place: "s3://bucket/p", ReadOnly: true, CopyBehind: -1},
		"main":    {Name: "main", Place: b.root, Default: true, CopyTo: "copy", CopyBehind: -1},
	} {
		if diff := cmp.Diff(want, good[name], protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	c := good["copy"]
	if c.GetCopyOf() != "main" || c.GetCopyBehind() != 0 || c.GetCopyError() != "" ||
		c.GetCopyOperation() == "" || !c.GetCopySuccessTime().IsValid() {
		t.Errorf("the copy: %v", c)
	}

	b.take(1)
	b.buckets["copy"] = &deny{Bucket: directory.New(b.cfg.Locations[1].Store.URL)}
	run, err := b.beginCopy(t.Context(), copyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Wait(); !errors.Is(err, store.ErrDenied) {
		t.Fatal(err)
	}
	bad, _ := list()
	d := bad["copy"]
	if d.GetCopyBehind() != 1 || d.GetCopyError() == "" ||
		d.GetCopyOperation() != string(run.Operation().ID) ||
		!d.GetCopySuccessTime().AsTime().Equal(c.GetCopySuccessTime().AsTime()) {
		t.Errorf("after a failure: %v", d)
	}
	b.cfg.Locations[0].CopyTo = ""
	if none, _ := list(); none["copy"].GetCopyOf() != "" || none["copy"].GetCopyOperation() != "" {
		t.Errorf("of a copy that the configuration does not name: %v", none["copy"])
	}
}
