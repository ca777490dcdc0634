package access

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Caller is who sends a request, as its connection proves it: a certificate or a user.
type Caller struct {
	// Names are the names of the client certificate that can have a role, each with its kind, as
	// CertificateNames gives them.
	Names []string
	// Serial is the serial number of the client certificate, in hex; empty for a user.
	Serial string
	// User is the process at the other end of a unix socket; nil for a certificate.
	User *User
}

// User is a process at the other end of a unix socket, as the kernel knew it when it connected.
type User struct {
	Name string // empty when the system does not know the user
	UID  uint32
	PID  int32
	// Groups are the primary group and all others.
	Groups []uint32
}

// AuthInfo is what a connection to the daemon proves.
type AuthInfo interface {
	credentials.AuthInfo
	Caller() Caller
	// Valid returns an error when the connection does not prove it any more, since a certificate has
	// expired for example. It is asked for each request.
	Valid() error
}

// CallerOf returns the caller of a request. It is false for a connection that proves nothing.
func CallerOf(ctx context.Context) (Caller, bool) {
	if info := authInfo(ctx); info != nil {
		return info.Caller(), true
	}
	return Caller{}, false
}

// authInfo returns what the connection of a request proves; nil when it proves nothing.
func authInfo(ctx context.Context) AuthInfo {
	if p, ok := peer.FromContext(ctx); ok {
		info, _ := p.AuthInfo.(AuthInfo)
		return info
	}
	return nil
}

// String names the caller in logs: all names of a certificate, or the user.
func (c Caller) String() string {
	if c.User == nil {
		return namesText(c.Names)
	}
	if c.User.Name == "" {
		return fmt.Sprintf("uid %d", c.User.UID)
	}
	return fmt.Sprintf("%s (uid %d)", clean(c.User.Name), c.User.UID)
}

// The kinds of names in a certificate. The kind is part of a name: an authority that checks who may
// have a DNS name may let everybody choose a common name, and the other way round.
const (
	kindCN  = "cn:"
	kindDNS = "dns:"
	kindURI = "uri:"
)

// CertificateNames returns the names of a certificate that can have a role: the common name of its
// subject ("cn:…"), its DNS names ("dns:…", in lower case) and its URIs ("uri:…"). Addresses, other
// parts of the subject and its issuer do not count.
func CertificateNames(cert *x509.Certificate) []string {
	var names []string
	if cn := cert.Subject.CommonName; cn != "" {
		names = append(names, kindCN+cn)
	}
	for _, name := range cert.DNSNames {
		names = append(names, kindDNS+strings.ToLower(name))
	}
	for _, uri := range cert.URIs {
		names = append(names, kindURI+uri.String())
	}
	return names
}

// ParseName reads a name as a configuration has it.
func ParseName(text string) (string, error) {
	for _, kind := range []string{kindCN, kindDNS, kindURI} {
		name, ok := strings.CutPrefix(text, kind)
		switch {
		case !ok:
		case name == "":
			return "", errors.New("no name follows the kind")
		case kind == kindDNS:
			return kind + strings.ToLower(name), nil
		default:
			return text, nil
		}
	}
	return "", errors.New("the kind of the name is missing")
}

// Client gives a role to certificates that have a name.
type Client struct {
	Name string // with its kind
	Role Role
}

// Group gives a role to the members of a unix group.
type Group struct {
	Name string
	GID  uint32
	Role Role
}

// Rules give callers their roles.
type Rules struct {
	Clients []Client
	Groups  []Group
	// UID is the user of the daemon, who has every right at its socket, as root has.
	UID uint32
}

// Role returns the role of a caller, and by what the caller has it. The highest one counts when
// several names or groups have roles.
func (r *Rules) Role(c Caller) (role Role, by string) {
	if u := c.User; u != nil {
		if u.UID == 0 || u.UID == r.UID {
			return Admin, "user " + c.String()
		}
		for _, g := range r.Groups {
			if g.Role > role && slices.Contains(u.Groups, g.GID) {
				role, by = g.Role, "group "+g.Name
			}
		}
		return role, by
	}
	for _, rule := range r.Clients {
		if rule.Role > role && slices.Contains(c.Names, rule.Name) {
			role, by = rule.Role, rule.Name
		}
	}
	return role, by
}

// The longest text and the longest list of names that go into a log or an error: a caller without
// any right chooses them.
const (
	maxText  = 200
	maxNames = 8
)

// clean returns text that fits on a line: a certificate may have anything as a name.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// namesText lists names in a sentence.
func namesText(names []string) string {
	cut := names[:min(len(names), maxNames)]
	texts := make([]string, 0, len(cut)+1)
	for _, name := range cut {
		texts = append(texts, clean(name))
	}
	if more := len(names) - len(cut); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return cmp.Or(strings.Join(texts, ", "), "a certificate without a name")
}
