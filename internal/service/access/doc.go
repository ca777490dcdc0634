// Package access decides who may do what at the API of the daemon.
//
// A caller is who sends a request, as its connection proves it: the names in a client certificate,
// or the user and the groups of the process at the other end of a unix socket. The rules of the
// configuration give a caller one role. Each method needs a least role, and some fields of a
// request need a higher one. A caller without a role is refused.
//
// A standalone mgmtctl serves itself and has no guard.
package access
