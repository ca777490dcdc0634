package access

import (
	"fmt"
	"slices"
	"strings"
)

// Role is a set of rights. Each role has those of the roles before it, too.
type Role int

// The roles.
const (
	// None may ask whether mgmtd serves (gRPC health), and nothing else.
	None Role = iota
	// View may list and show what is in the catalog and the store, without an identity.
	View
	// Operate may take, verify and pin snapshots, run and pause schedules, and read live management
	// clusters and whole stores.
	Operate
	// Restore may change management clusters, and send identities.
	Restore
	// Admin may do everything: delete, forget, copy, repair, and override findings.
	Admin
)

var roleNames = []string{"none", "view", "operate", "restore", "admin"}

func (r Role) String() string {
	if r < None || int(r) >= len(roleNames) {
		return fmt.Sprintf("role %d", int(r))
	}
	return roleNames[r]
}

// RoleNames lists the roles that a configuration can give, lowest first.
func RoleNames() []string { return slices.Clone(roleNames[View:]) }

// ParseRole reads the name of a role that a configuration can give.
func ParseRole(text string) (Role, error) {
	i := slices.Index(roleNames, text)
	if i < int(View) {
		return None, fmt.Errorf("%q is none of %s", text, strings.Join(RoleNames(), ", "))
	}
	return Role(i), nil
}
