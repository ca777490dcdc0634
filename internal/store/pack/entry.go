// Package pack is the format of a pack: a tar of captured objects, and the names of the files in
// it.
package pack

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Entry says which object a file in a pack holds. An empty Group is the core group, an empty
// Namespace means cluster-scoped.
type Entry struct {
	Group, Kind, Namespace, Name string
}

const (
	coreGroup   = "core"
	noNamespace = "_" // no DNS label can be this
	entrySuffix = ".json"
	maxName     = 253 // of a Kubernetes object
)

// EntryName returns "<group>/<Kind>/<namespace>/<name>.json". It refuses what could leave the
// folder that a pack is unpacked into, or could mean two objects: ParseEntryName gives back exactly
// e.
func EntryName(e Entry) (string, error) {
	if err := e.check(); err != nil {
		return "", fmt.Errorf("name entry of %.80q %.80q: %w", e.Kind, e.Namespace+"/"+e.Name, err)
	}
	group, namespace := e.Group, e.Namespace
	if group == "" {
		group = coreGroup
	}
	if namespace == "" {
		namespace = noNamespace
	}
	return group + "/" + e.Kind + "/" + namespace + "/" + e.Name + entrySuffix, nil
}

// ParseEntryName reads what EntryName made; anything else, such as a path with "..", is an error.
func ParseEntryName(name string) (Entry, error) {
	fail := func(err error) (Entry, error) {
		return Entry{}, fmt.Errorf("parse entry name %.120q: %w", name, err)
	}
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return fail(errors.New("not <group>/<Kind>/<namespace>/<name>.json"))
	}
	e := Entry{Group: parts[0], Kind: parts[1], Namespace: parts[2]}
	var ok bool
	if e.Name, ok = strings.CutSuffix(parts[3], entrySuffix); !ok {
		return fail(errors.New("does not end in .json"))
	}
	if e.Group == "" || e.Namespace == "" {
		return fail(errors.New("empty part"))
	}
	if e.Group == coreGroup {
		e.Group = ""
	}
	if e.Namespace == noNamespace {
		e.Namespace = ""
	}
	if err := e.check(); err != nil {
		return fail(err)
	}
	return e, nil
}

func (e Entry) check() error {
	switch {
	case e.Group != "" && (e.Group == coreGroup || !isDNSName(e.Group, maxName)):
		return errors.New("bad group")
	case !isKind(e.Kind):
		return errors.New("bad kind")
	case e.Namespace != "" && (strings.Contains(e.Namespace, ".") || !isDNSName(e.Namespace, 63)):
		return errors.New("bad namespace")
	case !isObjectName(e.Name):
		return errors.New("bad name")
	}
	return nil
}

// isDNSName takes lower-case letters, digits, "-" and single inner dots.
func isDNSName(s string, most int) bool {
	if len(s) > most {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
			label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

func isKind(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return true
}

// isObjectName follows Kubernetes' rule for a path segment, which some kinds have instead of the
// DNS rule, and takes no backslash and nothing that does not print.
func isObjectName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > maxName || !utf8.ValidString(s) ||
		strings.ContainsAny(s, `/\%`) {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
