package main

import (
	"time"

	mgmtv1 "github.com/mgmtd/mgmtd/proto/mgmt/v1"
)

// testLocations are a store, its copy, and an archive that is only read.
func testLocations() []*mgmtv1.Location {
	return []*mgmtv1.Location{
		{Name: "archive", Place: "file:///archive", ReadOnly: true, CopyBehind: -1},
		{Name: "main", Place: "s3://mgmt/prod", Default: true, CopyTo: "offsite", CopyBehind: -1},
		{Name: "offsite", Place: "s3://mgmt-copy/prod", CopyOf: "main", CopyBehind: 1,
			CopySuccessTime: ago(3 * time.Hour), CopyOperation: "65f1a2b3c4d5",
			CopyError: "snapshots that are not in the copy: 1"},
	}
}
