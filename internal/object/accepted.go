package object

import (
	"fmt"
	"regexp"
	"strings"
)

// AcceptedDifference is a difference that an operator accepts before it is known whether it is
// there: objects of a kind may differ at a path and below it. Its text is "Kind.group:path", for
// example "Machine.cluster.x-k8s.io:status.nodeRef.uid".
type AcceptedDifference struct {
	GroupKind
	Path string
}

var (
	position = regexp.MustCompile(`\[[0-9]+\]`)
	// neverAccepted are the fields of a Secret that nobody may accept a difference in.
	neverAccepted = []string{"data", "stringData", "type"}
)

// ParseAcceptedDifference reads "Kind.group:path". A list position in the path may be left out,
// which means each of them. An error says what is wrong with the text.
func ParseAcceptedDifference(text string) (AcceptedDifference, error) {
	kind, path, ok := strings.Cut(text, ":")
	name, group, _ := strings.Cut(kind, ".")
	if !ok || name == "" || path == "" || strings.HasPrefix(path, ".") ||
		strings.HasSuffix(path, ".") {
		return AcceptedDifference{}, fmt.Errorf("%q is not Kind.group:path, such as "+
			"Machine.cluster.x-k8s.io:status.nodeRef.uid", text)
	}
	a := AcceptedDifference{GroupKind: GroupKind{Group: group, Kind: name}, Path: path}
	for _, field := range neverAccepted {
		if secret := (GroupKind{Kind: "Secret"}); a.GroupKind == secret &&
			(path == field || strings.HasPrefix(path, field+".")) {
			return AcceptedDifference{}, fmt.Errorf("a difference in the %s of Secrets cannot be "+
				"accepted: certificates and credentials would be other ones", field)
		}
	}
	return a, nil
}

func (a AcceptedDifference) String() string { return a.GroupKind.String() + ":" + a.Path }

// MarshalText implements encoding.TextMarshaler.
func (a AcceptedDifference) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It refuses what ParseAcceptedDifference does.
func (a *AcceptedDifference) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAcceptedDifference(string(text))
	return err
}

// Covers reports whether a difference is accepted.
func (a AcceptedDifference) Covers(gk GroupKind, path string) bool {
	if a.GroupKind != gk {
		return false
	}
	if !position.MatchString(a.Path) {
		path = position.ReplaceAllString(path, "")
	}
	rest, ok := strings.CutPrefix(path, a.Path)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
