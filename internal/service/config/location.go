package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3"
)

// The providers of storage locations.
const (
	providerS3        = "aws"
	providerVeleroS3  = "velero.io/aws" // the plugin's full name
	providerDirectory = "mgmtd.dev/directory"
)

var locationRules = map[string]rule{
	"spec.provider": honoured, "spec.config": honoured, "spec.default": honoured,
	"spec.accessMode":           honoured,
	"spec.objectStorage.bucket": honoured, "spec.objectStorage.prefix": honoured,
	"spec.objectStorage.caCert": honoured,
}

var locationHints = map[string]string{
	"spec.credential": "remove it and name an AWS credentials file in " +
		"spec.config.credentialsFile, or set the AWS variables",
	"spec.objectStorage.caCertRef": "remove it and put the certificates into " +
		"spec.objectStorage.caCert",
	"spec.backupSyncPeriod":    "remove it: the store is read when it is asked about",
	"spec.validationFrequency": "remove it: the store is checked when it is used",
}

// readLocations makes locations of the documents; keys are those of the Config document.
func (r *reader) readLocations(documents []*document,
	keys service.StoreOptions) []service.Location {
	if len(documents) == 0 {
		r.add(Problem{Text: "no document is of kind " + locationKind, Hint: "add one with apiVersion " +
			veleroVersion + ": snapshots need a place"})
	}
	var list []service.Location
	seen := map[string]bool{}
	byDefault := ""
	for _, d := range documents {
		d.readName(seen)
		var bsl velerov1.BackupStorageLocation
		ok := d.decode(&bsl)
		d.checkSet(locationRules, locationHints)
		l := service.Location{Name: d.name, Store: keys}
		if ok {
			d.checkAnnotations(bsl.Annotations)
			l.Default = bsl.Spec.Default
			bsl.Spec.Config = d.readCommon(bsl.Spec.Config, &l)
			d.readPlace(&bsl.Spec, &l.Store)
		}
		if l.Default && byDefault != "" {
			d.problem("spec.default", fmt.Sprintf("%q is the default, too", byDefault),
				"let one be the default")
		}
		if l.Default {
			byDefault = d.name
		}
		list = append(list, l)
	}
	checkCopies(documents, list)
	return list
}

func (d *document) readPlace(spec *velerov1.BackupStorageLocationSpec, o *service.StoreOptions) {
	switch spec.AccessMode {
	case "", velerov1.BackupStorageLocationAccessModeReadWrite:
	case velerov1.BackupStorageLocationAccessModeReadOnly:
		o.ReadOnly = true
	default:
		d.problem("spec.accessMode", fmt.Sprintf("%q is not known", spec.AccessMode),
			"set ReadOnly or ReadWrite, or remove it")
	}
	switch spec.Provider {
	case providerS3, providerVeleroS3:
		d.readS3(spec, o)
	case providerDirectory:
		d.readDirectory(spec, o)
	case "":
		d.problem("spec.provider", "missing", "set aws for S3, or "+providerDirectory+" for a folder")
	default:
		d.problem("spec.provider", fmt.Sprintf("%q is not known", spec.Provider), "set aws for S3, or "+
			providerDirectory+" for a folder")
	}
}

// s3Settings are the keys of config that velero-plugin-for-aws documents and that are honoured,
// and ours.
var s3Settings = map[string]func(d *document, value string, o *s3.Options){
	"region":  func(_ *document, v string, o *s3.Options) { o.Region = v },
	"s3Url":   func(_ *document, v string, o *s3.Options) { o.Endpoint = v },
	"profile": func(_ *document, v string, o *s3.Options) { o.Profile = v },
	"s3ForcePathStyle": func(d *document, v string, o *s3.Options) {
		o.PathStyle = d.truth("s3ForcePathStyle", v)
	},
	"insecureSkipTLSVerify": func(d *document, v string, o *s3.Options) {
		o.InsecureSkipTLSVerify = d.truth("insecureSkipTLSVerify", v)
	},
	"checksumAlgorithm": func(d *document, v string, o *s3.Options) {
		o.ChecksumOff = v == "" // as in Velero: the key there and empty turns checksums off
		if v != "" && v != "SHA256" {
			d.problem("spec.config.checksumAlgorithm", fmt.Sprintf("%q is not honoured", v),
				`set SHA256, "" to send none, or remove it`)
		}
	},
	// The next two are ours: where users of Velero have a lock, it is the bucket's own.
	"objectLockMode": func(d *document, v string, o *s3.Options) {
		if o.ObjectLock = s3.LockMode(v); o.ObjectLock != s3.LockGovernance &&
			o.ObjectLock != s3.LockCompliance {
			d.problem("spec.config.objectLockMode", fmt.Sprintf("%q is not known", v),
				"set governance or compliance, or remove it")
			o.ObjectLock = s3.LockGovernance // one problem is enough
		}
	},
	"retentionDays": func(d *document, v string, o *s3.Options) {
		days, err := strconv.Atoi(v)
		if err != nil || days < 1 {
			d.problem("spec.config.retentionDays", fmt.Sprintf("%q is not a number of days", v),
				`write "30", or remove it`)
			days = 1
		}
		o.RetentionDays = days
	},
	"credentialsFile": func(d *document, v string, o *s3.Options) {
		if o.CredentialsFile = d.r.path(v); v != "" {
			d.checkSecret("spec.config.credentialsFile", o.CredentialsFile)
		}
	},
	"serverSideEncryption": func(_ *document, v string, o *s3.Options) { o.ServerSideEncryption = v },
	"kmsKeyId":             func(_ *document, v string, o *s3.Options) { o.KMSKeyID = v },
	"customerKeyEncryptionFile": func(d *document, v string, o *s3.Options) {
		if v != "" {
			o.CustomerKeyFile = d.r.path(v)
			d.checkSecret("spec.config.customerKeyEncryptionFile", o.CustomerKeyFile)
		}
	},
	"tagging": func(_ *document, v string, o *s3.Options) { o.Tagging = v },
	// Ours: Velero leaves the storage class to the bucket.
	"storageClass": func(_ *document, v string, o *s3.Options) { o.StorageClass = v },
	// The next two are honoured where they ask for what happens anyway.
	"signatureVersion": func(d *document, v string, _ *s3.Options) {
		if v != "" && v != "4" {
			d.problem("spec.config.signatureVersion", fmt.Sprintf("%q is not honoured", v),
				"remove it: requests are signed with version 4")
		}
	},
	"enableSharedConfig": func(d *document, v string, _ *s3.Options) {
		if !d.truth("enableSharedConfig", v) && v != "" {
			d.problem("spec.config.enableSharedConfig", `"false" is not honoured`,
				"remove it: a credentials file may always assume roles")
		}
	},
}

// settingNames lists the keys of a provider, and those that all have.
func settingNames[V any](of map[string]V) string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(of)), maps.Keys(commonSettings))
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

// unsupportedS3 has hints for keys of velero-plugin-for-aws that are not honoured.
var unsupportedS3 = map[string]string{
	"publicUrl": "remove it: nobody is given a URL to download from",
	"customerKeyEncryptionSecret": "remove it and name a file with the key in " +
		"customerKeyEncryptionFile",
}

func (d *document) readS3(spec *velerov1.BackupStorageLocationSpec, o *service.StoreOptions) {
	options := &s3.Options{}
	settings := spec.Config
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if set, ok := s3Settings[key]; ok {
			set(d, settings[key], options)
			continue
		}
		hint, ok := unsupportedS3[key]
		if !ok {
			hint = "the keys are " + settingNames(s3Settings)
		}
		d.problem("spec.config."+key, "this key is not known or not honoured", hint)
	}
	storage := spec.ObjectStorage
	if storage == nil || storage.Bucket == "" {
		d.problem("spec.objectStorage.bucket", "missing", "name the bucket")
		return
	}
	options.Bucket, options.Prefix, options.CACert = storage.Bucket, storage.Prefix, storage.CACert
	before := len(d.r.problems)
	checked := *options
	if d.r.standalone { // which opens the files of the location that it uses
		checked.CredentialsFile, checked.Profile, checked.CustomerKeyFile = "", "", ""
	}
	if _, err := s3.New(checked); err != nil && len(d.r.problems) == before {
		d.problem("spec", err.Error(), hintOf(err))
	}
	o.S3 = options
}

// truth reads "true" or "false", which Velero's config holds as texts.
func (d *document) truth(key, value string) bool {
	if value != "true" && value != "false" && value != "" {
		d.problem("spec.config."+key, fmt.Sprintf("%q is not a truth value", value),
			`write "true" or "false"`)
	}
	return value == "true"
}

func (d *document) readDirectory(spec *velerov1.BackupStorageLocationSpec,
	o *service.StoreOptions) {
	for _, key := range slices.Sorted(maps.Keys(spec.Config)) {
		if key != "path" {
			d.problem("spec.config."+key, "this key is not known or not honoured", "the keys are "+
				settingNames(map[string]bool{"path": true}))
		}
	}
	if s := spec.ObjectStorage; s != nil && (s.Bucket != "" || s.Prefix != "" || len(s.CACert) > 0) {
		d.problem("spec.objectStorage", "not honoured with provider "+providerDirectory,
			"remove it and name the folder in spec.config.path")
	}
	path := spec.Config["path"]
	if path == "" {
		d.problem("spec.config.path", "missing", "name the folder")
		return
	}
	o.URL = (&url.URL{Scheme: "file", Path: d.r.path(path)}).String()
}
