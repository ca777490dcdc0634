package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/retention"
	"github.com/mgmtd/mgmtd/internal/service"
)

// commonSettings are the keys of config that locations of all providers have. Velero has none of
// them.
var commonSettings = map[string]func(d *document, value string, l *service.Location){
	"copyTo": func(d *document, value string, l *service.Location) {
		if l.CopyTo = value; value == "" {
			d.problem("spec.config.copyTo", "empty", "name a "+locationKind+", or remove it")
		}
	},
	"keepLast":    count("keepLast", func(p *retention.Policy) *int { return &p.Last }),
	"keepHourly":  count("keepHourly", func(p *retention.Policy) *int { return &p.Hourly }),
	"keepDaily":   count("keepDaily", func(p *retention.Policy) *int { return &p.Daily }),
	"keepWeekly":  count("keepWeekly", func(p *retention.Policy) *int { return &p.Weekly }),
	"keepMonthly": count("keepMonthly", func(p *retention.Policy) *int { return &p.Monthly }),
	"keepWithin": func(d *document, value string, l *service.Location) {
		ownRules(l).Within = d.readAge("spec.config.keepWithin", value)
	},
}

// ownRules returns the rules of a location, with which those of the Config document do not hold
// there.
func ownRules(l *service.Location) *retention.Policy {
	if l.Retention == nil {
		l.Retention = &retention.Policy{}
	}
	return l.Retention
}

// count reads a number of snapshots, which Velero's config holds as text.
func count(key string, of func(*retention.Policy) *int) func(*document, string,
	*service.Location) {
	return func(d *document, value string, l *service.Location) {
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 || n > math.MaxInt32 {
			d.problem("spec.config."+key, fmt.Sprintf("%q is not a count", value),
				`write how many to keep, such as "30"`)
		}
		*of(ownRules(l)) = n
	}
}

// readCommon reads the settings that locations of all providers have, and returns the others.
func (d *document) readCommon(settings map[string]string, l *service.Location) map[string]string {
	rest := maps.Clone(settings)
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if set, ok := commonSettings[key]; ok {
			set(d, settings[key], l)
			delete(rest, key)
		}
	}
	return rest
}

// checkCopies checks where locations are copied to. documents are those of the locations.
func checkCopies(documents []*document, locations []service.Location) {
	const field = "spec.config.copyTo"
	var names []string
	by := map[string]string{} // of copies, whose they are
	for _, l := range locations {
		names = append(names, l.Name)
	}
	for i, l := range locations {
		d, to := documents[i], slices.Index(names, l.CopyTo)
		switch {
		case l.CopyTo == "":
		case to < 0:
			d.problem(field, fmt.Sprintf("no %s is named %q", locationKind, l.CopyTo), "name one of "+
				strings.Join(names, ", "))
		case by[l.CopyTo] != "":
			d.problem(field, fmt.Sprintf("%q is the copy of %q, too", l.CopyTo, by[l.CopyTo]),
				"name another location: a copy has one origin")
		case locations[to].Store.ReadOnly:
			d.problem(field, fmt.Sprintf("%q is read-only", l.CopyTo),
				"name one with accessMode: ReadWrite")
		case locations[to].Default:
			d.problem(field, fmt.Sprintf("%q is the default, and a copy takes no snapshots", l.CopyTo),
				"let another location be the default")
		case inCircle(locations, l.Name):
			d.problem(field, fmt.Sprintf("%q is copied to itself in the end", l.Name),
				"remove one copyTo of the circle")
		}
		by[l.CopyTo] = l.Name
	}
}

// inCircle reports whether the copies of a location lead back to it.
func inCircle(locations []service.Location, name string) bool {
	at := name
	for range locations {
		i := slices.IndexFunc(locations, func(l service.Location) bool { return l.Name == at })
		if i < 0 {
			return false
		}
		if at = locations[i].CopyTo; at == name {
			return true
		}
	}
	return false
}

// originOf returns the name of the location of which the named one is a copy; "" when it is none.
func originOf(locations []service.Location, name string) string {
	for _, l := range locations {
		if l.CopyTo == name {
			return l.Name
		}
	}
	return ""
}
