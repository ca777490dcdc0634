// Package workload asks the API server of a workload cluster what there is of it, through the
// kubeconfig of a snapshot.
//
// A kubeconfig of a snapshot is untrusted input (invariant I8): only its server, its CA and its
// inline credentials are used. The credentials go to that server alone, once its certificate is
// verified, and never follow a redirect. The answers are untrusted as well: their size is bounded,
// and what is shown of them is cut to one line of printable characters. Nothing is changed
// on a workload cluster (invariant I7).
//
// Its etcd is asked for its members through a port-forward of the API server. The client
// certificate for that is made of the CA of the snapshot, and is never written anywhere (invariant
// I6); only an etcd whose certificate is of that CA gets it.
package workload
