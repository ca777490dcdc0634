package main

const long = `mgmtd takes snapshots of Cluster API management clusters by schedule, and carries out the
snapshots, restores and moves that mgmtctl asks for.

It reads one YAML file, has a catalog of snapshots and operations, and serves gRPC on a unix
socket, on TCP with mutual TLS, or both. One process at a time holds a catalog; two hosts use two.

Changes: storage locations: it writes snapshots, results of verifies and ownership records, and
deletes snapshots where the configuration has retention or a ttl. Its catalog. A management cluster
for a restore, a move or a fence that a client asked for, or that was running when mgmtd ended; and
when a trusted ownership record says that another one owns a workload cluster: it is paused then.
Does not change: what a management cluster owns, by a schedule.

When it starts, it checks the whole configuration and reports everything that is wrong with it. It
opens the catalog and resumes moves that the process before it left unfinished. Restores from
encrypted storage wait for an identity (mgmtctl operation resume). Interrupted snapshots are failed,
and the next run takes a new one. A schedule that never ran, or was due meanwhile, runs at once
unless skipImmediately is true.

Signals:
  SIGTERM, SIGINT  end in good order: no new calls, no new snapshots, operations stop after the
                   current step; a second signal ends mgmtd at once
  SIGHUP           read FILE again, and apply spec.listen.groups and clients, the certificates and
                   the path of spec.auditLog at once. A caller with a lower role than before loses
                   its connections. The log names each other field that has changed: those need a
                   restart. A file with anything wrong in it changes nothing, and the log says what
                   is wrong. The audit log is opened again in any case

Files:
  FILE of --config              the configuration; docs/config.md has every field
  /var/lib/mgmtd/catalog.db     the catalog (spec.catalog): index of snapshots, history and journal
                                of operations, highest epochs of ownership records. When it is lost,
                                mgmtctl catalog rebuild makes the index from the store and imports
                                restores and moves that are mirrored there. The rest of the history
                                is lost, and a record that was put back in the store is detected by
                                the epochs on the Clusters only. Keep a damaged file until no
                                operation is unfinished
  CATALOG.pid, CATALOG.sock     next to the catalog: which process holds it, and where a
                                standalone mgmtctl can watch
  /run/mgmtd.sock               the API (spec.listen.unix), mode 0600 unless groups have roles
  FILE of spec.auditLog         who did what, in JSON, mode 0600; without it in the log
  certificates of spec.listen   read again when they change, and after SIGHUP

Environment:
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION,
  AWS_SHARED_CREDENTIALS_FILE
                   S3 credentials, for storage locations without config.credentialsFile
  NOTIFY_SOCKET    set by systemd: mgmtd sends READY=1, RELOADING=1 and STOPPING=1 there
  WATCHDOG_USEC    set by systemd: mgmtd sends WATCHDOG=1 while its catalog answers
  RUNTIME_DIRECTORY
                   set by systemd: the folder of the socket, if spec.listen.unix is not set
  TZ               time zone of schedules that name none
  KUBECONFIG       is not read

Security: root and the user of mgmtd may do everything at the socket. Members of a group have the
role that spec.listen.groups gives it: view, operate, restore or admin. TCP takes only TLS 1.3 with
client certificates of the configured CA, and serves those to which spec.listen.clients gives a
role. Anybody else is refused; docs/config.md says which role may do what. The daemon needs
recipients and a signing key, and cannot read the snapshots that it took. Identities come with a
request, stay in memory as long as its operation, and are not logged. With spec.identityFile mgmtd
can read snapshots for what it begins by itself; docs/security.md explains the risk. The log and the
metrics hold names, no contents.

Exit codes:
    0  ended by a signal, or --check found nothing wrong
    1  any other error, such as an address in use or a catalog that cannot be written
    2  usage, or something is wrong with the configuration
   11  the catalog or the socket is held by another process (named)
  130  a second signal ended it at once`

const examples = `  mgmtd --config /etc/mgmtd/mgmtd.yaml --check
  mgmtd --config /etc/mgmtd/mgmtd.yaml --log-format json
  mgmtctl schedule list                 # through the socket, as the same user or root`
