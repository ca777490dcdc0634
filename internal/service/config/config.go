package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/service/access"
)

// Config is a configuration that was read and checked.
type Config struct {
	// Service is all but how to be reached. Its log and version are for the caller to set.
	Service service.Config
	Listen  Listen
	// IdentityFile opens snapshots for verifies at sample and full; empty means none.
	IdentityFile string
	// Metrics is the address of the HTTP server for metrics; empty means none.
	Metrics string
	// AuditLog is the path of the audit log; empty means that it is a part of the log.
	AuditLog string
	// Warnings are what is not wrong, and probably not meant.
	Warnings []Problem

	documents []*document
}

// Listen says where the API is served.
type Listen struct {
	// Unix is the path of a socket, TCP an address; empty means none. At least one is set.
	Unix, TCP string
	// CertFile, KeyFile and ClientCAFile are set when TCP is.
	CertFile, KeyFile, ClientCAFile string
	// Access gives clients and members of groups their roles. Its UID is for the caller to set.
	Access access.Rules
}

// Load reads and checks the file. Paths in it that are not absolute start at its folder. The error
// is an *InvalidError when the file can be read: it holds all that is wrong with it.
func Load(path string) (*Config, error) { return read(path, false) }

// LoadStandalone reads the file for a process that does the daemon's work once, without being it.
// Files that the configuration names are not opened: in an outage some of them may be gone, and
// each is needed by some requests only. The schedules are left out.
func LoadStandalone(path string) (*Config, error) { return read(path, true) }

func read(path string, standalone bool) (*Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	r := &reader{file: path, dir: filepath.Dir(path), standalone: standalone}
	c := r.read(text)
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, &InvalidError{File: path, Problems: r.problems}
	}
	return c, nil
}

// reader gathers what is wrong with a file.
type reader struct {
	file, dir string
	// standalone: the files that the configuration names are not opened.
	standalone         bool
	problems, warnings []Problem
}

// read makes a Config of the text, which is of use only when there are no problems.
func (r *reader) read(text []byte) *Config {
	var own, locations, schedules []*document
	for _, d := range r.split(text) {
		switch {
		case d.apiVersion == ownVersion && d.kind == ownKind:
			own = append(own, d)
		case d.apiVersion == veleroVersion && d.kind == locationKind:
			locations = append(locations, d)
		case d.apiVersion == veleroVersion && d.kind == scheduleKind:
			schedules = append(schedules, d)
		default:
			d.problem("", fmt.Sprintf("apiVersion %q with kind %q is not known", d.apiVersion, d.kind),
				fmt.Sprintf("a document is %s %s, %s %s or %s %s",
					ownVersion, ownKind, veleroVersion, locationKind, veleroVersion, scheduleKind))
		}
	}
	c := &Config{}
	if len(own) == 0 {
		r.add(Problem{Text: "no document is of kind " + ownKind, Hint: "add one with apiVersion " +
			ownVersion})
	}
	for i, d := range own {
		if i > 0 {
			d.problem("", "there is more than one document of kind "+ownKind, "keep one")
			continue
		}
		c = d.readOwn()
	}
	c.Service.Daemon = !r.standalone
	c.Warnings = r.warnings
	c.documents = slices.Concat(own, locations, schedules)
	keys := service.StoreOptions{}
	if len(c.Service.Locations) == 1 {
		keys = c.Service.Locations[0].Store
	}
	c.Service.Locations = r.readLocations(locations, keys)
	c.Service.Schedules = r.readSchedules(schedules, c)
	if r.standalone {
		c.Service.Schedules = nil
	}
	return c
}

// path resolves a path of the file.
func (r *reader) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.dir, p)
}
