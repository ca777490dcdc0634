package s3

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"os"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/tags"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store/bucket"
	"github.com/mgmtd/mgmtd/internal/store/layout"
)

// Values of Options.ServerSideEncryption, as S3 and Velero write them.
const (
	EncryptionS3  = "AES256"
	EncryptionKMS = "aws:kms"
)

// customerKeySize is the size of a key of SSE-C.
const customerKeySize = 32

// atRest is how the storage keeps what is written: its own encryption, storage class and tags. The
// zero value leaves all of that to the bucket.
type atRest struct {
	encryption encrypt.ServerSide // nil: the default of the bucket
	tags       map[string]string
	// secret is the customer key in the forms in which a server could send it back.
	secret []string
}

// newAtRest checks the options and reads CustomerKeyFile. *bucket.UsageError.
func newAtRest(o *Options, secure bool) (atRest, error) {
	var a atRest
	usage := func(text, tip string) (atRest, error) {
		return atRest{}, &bucket.UsageError{Text: "open S3 store: " + text, Tip: tip,
			TipKey: object.HintStoreURL}
	}
	kms := o.KMSKeyID != "" || o.ServerSideEncryption == EncryptionKMS
	switch {
	case o.ServerSideEncryption != "" && o.ServerSideEncryption != EncryptionS3 &&
		o.ServerSideEncryption != EncryptionKMS:
		return usage("server-side encryption "+quoted(o.ServerSideEncryption)+" is not known",
			"use "+EncryptionS3+" or "+EncryptionKMS)
	case o.CustomerKeyFile != "" && (kms || o.ServerSideEncryption != ""):
		return usage("a customer key excludes the other server-side encryptions",
			"give only one of them")
	case o.KMSKeyID != "" && o.ServerSideEncryption == EncryptionS3:
		return usage("a KMS key with server-side encryption "+EncryptionS3,
			"use "+EncryptionKMS+", or give no key")
	case o.CustomerKeyFile != "" && !secure:
		return usage("a customer key is sent with each request, so it needs TLS",
			"use an endpoint with https://, or another encryption")
	}
	var err error
	switch {
	case o.CustomerKeyFile != "":
		err = a.readCustomerKey(o.CustomerKeyFile)
	case kms:
		a.encryption, err = encrypt.NewSSEKMS(o.KMSKeyID, nil)
	case o.ServerSideEncryption == EncryptionS3:
		a.encryption = encrypt.NewSSE()
	}
	if err != nil {
		return atRest{}, err
	}
	return a, a.readOther(o)
}

// readOther checks StorageClass and Tagging. A class whose content has to be thawed before it can
// be read would make a restore wait for hours, and every incremental snapshot fail.
func (a *atRest) readOther(o *Options) error {
	usage := func(text, tip string) error {
		return &bucket.UsageError{Text: "open S3 store: " + text, Tip: tip}
	}
	switch o.StorageClass {
	case "GLACIER", "DEEP_ARCHIVE":
		return usage("content in storage class "+o.StorageClass+" cannot be read at once",
			"use STANDARD_IA, INTELLIGENT_TIERING or GLACIER_IR")
	}
	if strings.ContainsFunc(o.StorageClass, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return usage("not the name of a storage class: "+quoted(o.StorageClass),
			"write it as the storage server does, such as STANDARD_IA")
	}
	if o.Tagging == "" {
		return nil
	}
	parsed, err := tags.Parse(o.Tagging, true)
	if err != nil {
		return usage("tags "+quoted(o.Tagging)+" cannot be read",
			"write at most ten as key=value&key2=value2, encoded as in a URL")
	}
	a.tags = parsed.ToMap()
	return nil
}

// readCustomerKey reads a key of 32 bytes, as Velero wants it; an editor may have put a line break
// behind it. No message quotes any of it.
func (a *atRest) readCustomerKey(file string) error {
	key, err := os.ReadFile(file)
	if err != nil {
		return &bucket.UsageError{Text: "open S3 store: read customer key", Err: err}
	}
	if len(key) > customerKeySize {
		key = bytes.TrimRight(key, "\r\n")
	}
	a.encryption, err = encrypt.NewSSEC(key)
	if err != nil {
		return &bucket.UsageError{Text: "open S3 store: customer key " + file + " has not 32 bytes",
			Tip: "make one with: openssl rand -out FILE 32"}
	}
	a.secret = []string{string(key), base64.StdEncoding.EncodeToString(key)}
	return nil
}

// put completes the options of a write. Small documents stay in the default class: the cheaper
// classes charge for 128 KiB and 30 days at least, and ownership records change.
func (a *atRest) put(o *minio.PutObjectOptions, key, class string) {
	o.ServerSideEncryption, o.UserTags = a.encryption, a.tags
	if _, err := layout.ParseKey(key); err == nil {
		o.StorageClass = class
	}
}

// get completes the options of a read; minio-go sends a customer key and nothing else with it.
func (a *atRest) get(o minio.GetObjectOptions) minio.GetObjectOptions {
	o.ServerSideEncryption = a.encryption
	return o
}

// customer reports whether the key of the encryption is ours.
func (a *atRest) customer() bool {
	return a.encryption != nil && a.encryption.Type() == encrypt.SSEC
}

// refineEncryption improves the error of a request that failed because of the storage's own
// encryption. Servers report that with codes that mean something else, too, and the answer to HEAD
// has no text.
func (b *Bucket) refineEncryption(e *bucket.Error, answer minio.ErrorResponse) {
	text := strings.ToLower(answer.Code + " " + answer.Message)
	named := strings.Contains(text, "encryption") || strings.Contains(text, "encrypted")
	other := e.Class == nil || e.Class == bucket.ErrDenied
	switch {
	case other && strings.Contains(text, "kms"):
		e.Tip, e.TipKey = "the storage server cannot use the KMS key for these credentials: reading "+
			"needs kms:Decrypt, writing kms:GenerateDataKey, and the key must exist and be enabled", ""
	case b.atRest.customer() && (e.Class == bucket.ErrDenied ||
		e.Class == nil && (named || answer.StatusCode == http.StatusBadRequest)):
		e.Tip, e.TipKey = "what is stored may be encrypted with another customer key than that in "+
			b.options.CustomerKeyFile+", or with none; or these credentials lack rights", ""
	case b.atRest.encryption == nil && e.Class == nil && named:
		e.Tip, e.TipKey = "what is stored is encrypted with a customer key: name its file in "+
			"sse-c-file= of the store's URL, or in customerKeyEncryptionFile", object.HintStoreURL
	case len(b.atRest.tags) > 0 && e.Op == "put" && e.Class == bucket.ErrDenied:
		e.Tip += "; writing tags needs PutObjectTagging"
		return
	default:
		return
	}
	e.Class = bucket.ErrDenied
}
