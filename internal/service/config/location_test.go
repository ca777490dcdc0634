package config

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// TestLocationsHonourTheEncryptionKeysOfVelero: a document as Velero's plugin for AWS documents it
// says the same here.
func TestLocationsHonourTheEncryptionKeysOfVelero(t *testing.T) {
	dir := folder(t)
	for config, want := range map[string]s3.Options{
		`serverSideEncryption: AES256, signatureVersion: "4"`: {ServerSideEncryption: "AES256"},
		`kmsKeyId: "alias/x", serverSideEncryption: "aws:kms"`: {KMSKeyID: "alias/x",
			ServerSideEncryption: "aws:kms"},
		`customerKeyEncryptionFile: customer, enableSharedConfig: "true"`: {
			CustomerKeyFile: filepath.Join(dir, "customer")},
		`tagging: "team=a&env=b", storageClass: STANDARD_IA`: {Tagging: "team=a&env=b",
			StorageClass: "STANDARD_IA"},
	} {
		c, err := load(t, dir, goodOwn+`---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main}
spec: {provider: aws, objectStorage: {bucket: bucket}, config: {`+config+`}}
`)
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		want.Bucket = "bucket"
		if diff := cmp.Diff(&want, c.Service.Locations[0].Store.S3); diff != "" {
			t.Errorf("%s: %s", config, diff)
		}
	}
}

// TestAStandaloneCommandOpensNoCredentialsOfOtherLocations: the file of a daemon is of use where
// only some of what it names can be read.
func TestAStandaloneCommandOpensNoCredentialsOfOtherLocations(t *testing.T) {
	dir := folder(t)
	text := goodOwn + `---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main}
spec: {provider: aws, objectStorage: {bucket: bucket}, config: {credentialsFile: none, profile: none, customerKeyEncryptionFile: none}}
`
	if _, err := load(t, dir, text); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a daemon without its files: %v, want an error", err)
	}
	if _, err := LoadStandalone(filepath.Join(dir, "mgmtd.yaml")); err != nil {
		t.Errorf("a standalone command: %v", err)
	}
}

// TestAReadOnlyLocationIsRead: accessMode as Velero has it.
func TestAReadOnlyLocationIsRead(t *testing.T) {
	c, err := load(t, folder(t), goodOwn+goodVelero+`---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: archive}
spec: {provider: mgmtd.dev/directory, accessMode: ReadOnly, config: {path: archive}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range c.Service.Locations {
		if l.Store.ReadOnly != (l.Name == "archive") {
			t.Errorf("%s is read-only: %v", l.Name, l.Store.ReadOnly)
		}
	}
}

// TestALocationIsCopiedAndPrunedAsItSays: the keys for that are those of all providers.
func TestALocationIsCopiedAndPrunedAsItSays(t *testing.T) {
	c, err := load(t, folder(t), goodOwn+`---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: main}
spec: {provider: mgmtd.dev/directory, default: true, config: {path: main, copyTo: offsite}}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: offsite}
spec:
  provider: aws
  objectStorage: {bucket: bucket}
  config: {copyTo: third, keepLast: "1", keepHourly: "2", keepDaily: "3", keepWeekly: "4", keepMonthly: "5", keepWithin: 6d}
---
apiVersion: velero.io/v1
kind: BackupStorageLocation
metadata: {name: third}
spec: {provider: mgmtd.dev/directory, config: {path: third, keepLast: "0"}}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []service.Location{{CopyTo: "offsite"},
		{CopyTo: "third", Retention: &retention.Policy{Last: 1, Hourly: 2, Daily: 3, Weekly: 4,
			Monthly: 5, Within: 6 * 24 * time.Hour}},
		{Retention: &retention.Policy{}}}
	for i, l := range c.Service.Locations {
		if l.CopyTo != want[i].CopyTo {
			t.Errorf("%s is copied to %q", l.Name, l.CopyTo)
		}
		if diff := cmp.Diff(want[i].Retention, l.Retention); diff != "" {
			t.Errorf("%s: %s", l.Name, diff)
		}
	}
}
