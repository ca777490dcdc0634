package config

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/mgmtd/mgmtd/internal/service/access"
)

type listenEntry struct {
	Unix         string      `json:"unix"`
	Groups       []roleEntry `json:"groups"`
	TCP          string      `json:"tcp"`
	CertFile     string      `json:"certFile"`
	KeyFile      string      `json:"keyFile"`
	ClientCAFile string      `json:"clientCAFile"`
	Clients      []roleEntry `json:"clients"`
}

type roleEntry struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

func (d *document) readListen(e listenEntry) Listen {
	l := Listen{Unix: d.r.path(e.Unix), TCP: e.TCP, CertFile: d.r.path(e.CertFile),
		KeyFile: d.r.path(e.KeyFile), ClientCAFile: d.r.path(e.ClientCAFile)}
	if l.Unix == "" && l.TCP == "" {
		l.Unix = defaultSocket()
	}
	files := []struct{ field, path string }{
		{"spec.listen.certFile", l.CertFile}, {"spec.listen.keyFile", l.KeyFile},
		{"spec.listen.clientCAFile", l.ClientCAFile},
	}
	l.Access.Groups = d.readGroups(e.Groups, l.Unix != "")
	l.Access.Clients = d.readClients(e.Clients)
	if l.TCP == "" {
		for _, f := range files {
			if f.path != "" {
				d.problem(f.field, "set without spec.listen.tcp", "set tcp, too, or remove it: a unix "+
					"socket has no TLS")
			}
		}
		if len(e.Clients) > 0 {
			d.problem("spec.listen.clients", "set without spec.listen.tcp", "set tcp, too, or remove "+
				"it: a unix socket has no TLS")
		}
		return l
	}
	d.checkAddress("spec.listen.tcp", l.TCP)
	if len(e.Clients) == 0 {
		d.warn("spec.listen.clients", "there is none, so that every request over TCP is refused",
			`add the names of client certificates with their roles, such as {name: "cn:ops", role: `+
				`operate}`)
	}
	ok := true
	for _, f := range files {
		if f.path == "" {
			d.problem(f.field, "missing", "TCP is served with mutual TLS only: set certFile, keyFile and "+
				"clientCAFile")
			ok = false
		} else if f.field == "spec.listen.keyFile" && !d.checkSecret(f.field, f.path) ||
			!d.checkFile(f.field, f.path) {
			ok = false
		}
	}
	if !ok {
		return l
	}
	if _, err := tls.LoadX509KeyPair(l.CertFile, l.KeyFile); err != nil {
		d.problem("spec.listen.certFile", strings.TrimPrefix(err.Error(), "tls: "),
			"give a PEM certificate and the key that it is for")
	}
	if pem, err := os.ReadFile(l.ClientCAFile); err == nil &&
		!x509.NewCertPool().AppendCertsFromPEM(pem) {
		d.problem("spec.listen.clientCAFile", l.ClientCAFile+" holds no certificate",
			"give a file of PEM certificates")
	}
	return l
}

// readClients reads the roles of client certificates.
func (d *document) readClients(entries []roleEntry) []access.Client {
	var clients []access.Client
	for i, e := range entries {
		field := fmt.Sprintf("spec.listen.clients[%d]", i)
		role, ok := d.readRole(field, e)
		name, err := access.ParseName(e.Name)
		switch {
		case e.Name == "":
		case err != nil:
			d.problem(field+".name", fmt.Sprintf("%q: %v", e.Name, err), `write "cn:NAME" for a common `+
				`name, "dns:NAME" or "uri:NAME"; there are no patterns`)
		case slices.ContainsFunc(clients, func(c access.Client) bool { return c.Name == name }):
			d.problem(field+".name", fmt.Sprintf("%q has a role already", e.Name), "keep one")
		case ok:
			clients = append(clients, access.Client{Name: name, Role: role})
		}
	}
	return clients
}

// readGroups reads the roles of unix groups. Standalone, no system is asked for them.
func (d *document) readGroups(entries []roleEntry, socket bool) []access.Group {
	if len(entries) > 0 && !socket {
		d.problem("spec.listen.groups", "set without spec.listen.unix", "set unix, too, or remove it: "+
			"TCP knows no groups")
	}
	var groups []access.Group
	for i, e := range entries {
		field := fmt.Sprintf("spec.listen.groups[%d]", i)
		role, ok := d.readRole(field, e)
		if e.Name == "" || d.r.standalone {
			continue
		}
		gid, err := lookupGroup(e.Name)
		switch {
		case err != nil:
			d.problem(field+".name", fmt.Sprintf("%q is no group of this host", e.Name),
				"make the group, or write its number")
		case slices.ContainsFunc(groups, func(g access.Group) bool { return g.GID == gid }):
			d.problem(field+".name", fmt.Sprintf("%q has a role already", e.Name), "keep one")
		case ok:
			groups = append(groups, access.Group{Name: e.Name, GID: gid, Role: role})
		}
	}
	return groups
}

// lookupGroup returns the id of a group. A number needs no entry in the database of groups, which a
// container may not have.
func lookupGroup(name string) (uint32, error) {
	if gid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(gid), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	gid, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(gid), err
}

// readRole reads the role of an entry, and reports a missing name.
func (d *document) readRole(field string, e roleEntry) (access.Role, bool) {
	if e.Name == "" {
		d.problem(field+".name", "missing", "say who has the role")
	}
	role, err := access.ParseRole(e.Role)
	if err != nil {
		d.problem(field+".role", err.Error(), "each role has the rights of those before it; "+
			"docs/config.md lists them")
	}
	return role, err == nil
}
