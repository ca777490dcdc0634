package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/mgmtd/mgmtd/internal/capi"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/store"
)

// The defaults of what may be left out.
const (
	DefaultCatalog = "/var/lib/mgmtd/catalog.db"
	DefaultSocket  = "/run/mgmtd.sock"
)

// defaultSocket returns the socket of a configuration that names none. A unit of systemd with
// RuntimeDirectory= gives the folder: only root can make a file in /run itself.
func defaultSocket() string {
	dir, _, _ := strings.Cut(os.Getenv("RUNTIME_DIRECTORY"), ":") // there may be several
	if !filepath.IsAbs(dir) {
		return DefaultSocket
	}
	return filepath.Join(dir, "mgmtd.sock")
}

// ownDocument is a Config document.
type ownDocument struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Spec       ownSpec `json:"spec"`
}

type ownSpec struct {
	ManagementClusters []mgmtEntry     `json:"managementClusters"`
	Catalog            string          `json:"catalog"`
	Recipients         []string        `json:"recipients"`
	Plain              bool            `json:"plain"`
	SigningKeyFile     string          `json:"signingKeyFile"`
	TrustedKeyFiles    []string        `json:"trustedKeyFiles"`
	IdentityFile       string          `json:"identityFile"`
	Listen             listenEntry     `json:"listen"`
	Metrics            string          `json:"metrics"`
	AuditLog           string          `json:"auditLog"`
	Retention          keepEntry       `json:"retention"`
	Rules              []any           `json:"rules"` // of releases before spec.kinds
	Kinds              []capi.Document `json:"kinds"`
	Verify             verifyEntry     `json:"verify"`
}

type mgmtEntry struct {
	Name           string `json:"name"`
	KubeconfigFile string `json:"kubeconfigFile"`
	Context        string `json:"context"`
}

type keepEntry struct {
	KeepLast    int    `json:"keepLast"`
	KeepHourly  int    `json:"keepHourly"`
	KeepDaily   int    `json:"keepDaily"`
	KeepWeekly  int    `json:"keepWeekly"`
	KeepMonthly int    `json:"keepMonthly"`
	KeepWithin  string `json:"keepWithin"`
	Grace       string `json:"grace"`
}

// readOwn reads the Config document. The keys are in its one location, which has no place yet.
func (d *document) readOwn() *Config {
	var own ownDocument
	if !d.decode(&own) {
		return &Config{}
	}
	s := own.Spec
	if !isZero(d.at("spec.rules")) {
		d.problem("spec.rules", "not honoured", "describe the kinds in spec.kinds")
	}
	c := &Config{Metrics: s.Metrics, AuditLog: d.r.path(s.AuditLog),
		IdentityFile: d.r.path(s.IdentityFile)}
	c.Service.CatalogFile = d.r.path(s.Catalog)
	if s.Catalog == "" {
		c.Service.CatalogFile = DefaultCatalog
	}
	c.Service.Sources = d.readMgmts(s.ManagementClusters)
	c.Service.Targets = c.Service.Sources
	c.Service.Locations = []service.Location{{Store: d.readKeys(s)}}
	c.Service.Verify = d.readVerify(s.Verify, s.Plain || s.IdentityFile != "")
	c.Service.Verify.Identity = d.readIdentity(s)
	c.Service.Retention = d.readRetention(s.Retention)
	c.Service.Rows = d.readKinds(s.Kinds)
	c.Listen = d.readListen(s.Listen)
	if s.Metrics != "" {
		d.checkAddress("spec.metrics", s.Metrics)
	}
	return c
}

// readKinds reads the rows of kinds that are not built in. It returns nil, which is the built-in
// table, when there are none or one is wrong.
func (d *document) readKinds(kinds []capi.Document) *capi.Table {
	var rows []capi.Row
	var table *capi.Table
	for i, k := range kinds {
		row, err := k.Row("spec.kinds of " + d.r.file)
		if err == nil {
			var with *capi.Table
			if with, err = capi.New(append(rows[:len(rows):len(rows)], row)); err == nil {
				rows, table = append(rows, row), with
			}
		}
		if err != nil {
			d.problem(fmt.Sprintf("spec.kinds[%d]", i), err.Error(), "see spec.kinds in docs/config.md")
		}
	}
	return table
}

// readRetention reads which snapshots prunes retain.
func (d *document) readRetention(k keepEntry) service.Retention {
	r := service.Retention{Policy: retention.Policy{Last: k.KeepLast, Hourly: k.KeepHourly,
		Daily: k.KeepDaily, Weekly: k.KeepWeekly, Monthly: k.KeepMonthly}}
	counts := []struct {
		field string
		count int
	}{{"keepLast", k.KeepLast}, {"keepHourly", k.KeepHourly}, {"keepDaily", k.KeepDaily},
		{"keepWeekly", k.KeepWeekly}, {"keepMonthly", k.KeepMonthly}}
	for _, n := range counts {
		if n.count < 0 || n.count > math.MaxInt32 {
			d.problem("spec.retention."+n.field, "not a count", "write how many to keep, or 0 for "+
				"no such rule")
		}
	}
	r.Policy.Within = d.readAge("spec.retention.keepWithin", k.KeepWithin)
	if r.Grace = d.readAge("spec.retention.grace", k.Grace); k.Grace != "" &&
		r.Grace < service.MinGrace {
		d.problem("spec.retention.grace", "shorter than "+retention.AgeText(service.MinGrace),
			"write at least that: a snapshot that is being taken needs it")
	}
	return r
}

func (d *document) readAge(field, text string) time.Duration {
	if text == "" {
		return 0
	}
	age, err := retention.ParseAge(text)
	if err != nil {
		d.problem(field, fmt.Sprintf("%q is not a duration", text), "write 30d, 12h or 1d12h")
	}
	return age
}

// name is what can be given on a command line and in an annotation without quotes.
var name = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

const hintName = "use lower-case letters, digits, \"-\" and \".\""

func (d *document) readMgmts(entries []mgmtEntry) []kube.Options {
	if len(entries) == 0 {
		d.problem("spec.managementClusters", "there is none", "name at least one, with the path of "+
			"its kubeconfig")
	}
	var list []kube.Options
	seen := map[string]bool{}
	for i, e := range entries {
		field := fmt.Sprintf("spec.managementClusters[%d]", i)
		switch {
		case e.Name == "":
			d.problem(field+".name", "missing", "give it a name; requests and schedules use it")
		case !name.MatchString(e.Name):
			d.problem(field+".name", fmt.Sprintf("%q is not a name", e.Name), hintName)
		case seen[e.Name]:
			d.problem(field+".name", fmt.Sprintf("%q is the name of another one, too", e.Name), "rename one")
		}
		seen[e.Name] = true
		o := kube.Options{Name: e.Name, KubeconfigFile: d.r.path(e.KubeconfigFile), Context: e.Context}
		d.checkKubeconfig(field, o)
		list = append(list, o)
	}
	return list
}

func (d *document) checkKubeconfig(field string, o kube.Options) {
	if !d.checkSecret(field+".kubeconfigFile", o.KubeconfigFile) {
		return
	}
	kubeconfig, err := clientcmd.LoadFromFile(o.KubeconfigFile)
	if err != nil {
		// Not the error's text: a parser quotes what it could not read, which may be a token.
		d.problem(field+".kubeconfigFile", o.KubeconfigFile+" is not a kubeconfig",
			"give the path of one")
		return
	}
	context := o.Context
	if context == "" {
		context = kubeconfig.CurrentContext
	}
	if kubeconfig.Contexts[context] == nil {
		d.problem(field+".context", fmt.Sprintf("%s has no context %q", o.KubeconfigFile, context),
			"name one that it has")
	}
}

// checkFile reports a file that is missing or cannot be read. It returns whether the file can be
// read; standalone it does not open it and returns false.
func (d *document) checkFile(field, path string) bool {
	if path == "" {
		d.problem(field, "missing", "give the path of a file")
		return false
	}
	if d.r.standalone {
		return false
	}
	f, err := os.Open(path)
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && info.IsDir() {
			err = errors.New("it is a folder")
		}
		_ = f.Close()
	}
	if err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			err = e.Err
		}
		d.problem(field, fmt.Sprintf("read %s: %v", path, err), "give the path of a file that "+
			"mgmtd can read")
	}
	return err == nil
}

// checkSecret is checkFile for a file with a secret. It warns of one that others can read or write.
// A key of ours that others can write is refused where it is read.
func (d *document) checkSecret(field, path string) bool {
	if !d.checkFile(field, path) {
		return false
	}
	info, err := os.Stat(path)
	if err != nil {
		return false // it is gone since
	}
	if exposed := store.ExposedFile(info); exposed != "" {
		d.warn(field, path+": "+exposed, "make it readable by the user of mgmtd alone, or by a group "+
			"at most")
	}
	return true
}

func (d *document) readKeys(s ownSpec) service.StoreOptions {
	o := service.StoreOptions{Plain: s.Plain, Recipients: s.Recipients,
		SigningKeyFile: d.r.path(s.SigningKeyFile)}
	switch {
	case s.Plain && len(s.Recipients) > 0:
		d.problem("spec.plain", "plain and recipients exclude each other",
			"remove plain to encrypt, or recipients to store Secrets as they are")
	case !s.Plain && len(s.Recipients) == 0:
		d.problem("spec.recipients", "there is none", "give an age1... key (docs/keys.md says how to "+
			"make one), or plain: true to store Secrets as they are")
	}
	for i, r := range s.Recipients {
		d.checkKeys(fmt.Sprintf("spec.recipients[%d]", i), store.KeyOptions{Recipients: []string{r}})
	}
	switch {
	case s.SigningKeyFile != "":
		if d.checkSecret("spec.signingKeyFile", o.SigningKeyFile) {
			d.checkKeys("spec.signingKeyFile", store.KeyOptions{SigningKeyFile: o.SigningKeyFile})
		}
	case !s.Plain:
		d.problem("spec.signingKeyFile", "missing", "give the path of signing.key (docs/keys.md "+
			"says how to make one): a restore refuses snapshots that are not signed")
	}
	for i, f := range s.TrustedKeyFiles {
		field := fmt.Sprintf("spec.trustedKeyFiles[%d]", i)
		o.TrustedKeyFiles = append(o.TrustedKeyFiles, d.r.path(f))
		if d.checkFile(field, d.r.path(f)) {
			d.checkKeys(field, store.KeyOptions{TrustedKeyFiles: []string{d.r.path(f)}})
		}
	}
	return o
}

// readIdentity checks the identity file, and gives what reads it when it is needed; nil when there
// is none.
func (d *document) readIdentity(s ownSpec) func() ([]byte, error) {
	if s.IdentityFile == "" {
		return nil
	}
	file := d.r.path(s.IdentityFile)
	if s.Plain {
		d.problem("spec.identityFile", "set with plain", "remove it: nothing is encrypted")
	} else if d.checkSecret("spec.identityFile", file) {
		d.checkKeys("spec.identityFile", store.KeyOptions{IdentityFiles: []string{file}})
	}
	return func() ([]byte, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read spec.identityFile: %w", err)
		}
		return text, nil
	}
}

// checkKeys reports a key that cannot be parsed. The store's errors hold no secret text.
func (d *document) checkKeys(field string, o store.KeyOptions) {
	if _, err := store.LoadKeys(o); err != nil {
		d.problem(field, err.Error(), hintOf(err))
	}
}

func hintOf(err error) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}

func (d *document) checkAddress(field, address string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		d.problem(field, fmt.Sprintf("%q is not an address", address),
			"write host:port, such as 127.0.0.1:8085")
	}
}
