package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/catalog"
	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/service"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
)

// emptyStore makes an encrypted store without a snapshot.
func emptyStore(t *testing.T) service.StoreOptions {
	t.Helper()
	dir := t.TempDir()
	made, err := store.Keygen(filepath.Join(dir, "keys"), time.Now())
	must(t, err)
	o := service.StoreOptions{URL: filepath.Join(dir, "store"), Recipients: []string{made.Recipient},
		SigningKeyFile: filepath.Join(dir, "keys", "signing.key")}
	keys, err := store.LoadKeys(store.KeyOptions{Recipients: o.Recipients,
		SigningKeyFile: o.SigningKeyFile})
	must(t, err)
	_, err = store.Open(t.Context(), store.Options{Bucket: directory.New(o.URL), Keys: keys,
		Create: true})
	must(t, err)
	return o
}

// interruptedRestore leaves a catalog with a restore whose process died.
func interruptedRestore(t *testing.T, file string) string {
	t.Helper()
	c, err := catalog.Open(t.Context(), file, catalog.Options{})
	must(t, err)
	op, err := c.CreateOperation(t.Context(), catalog.Operation{Kind: catalog.KindRestore})
	must(t, err)
	_, err = c.SetState(t.Context(), op.ID, catalog.Running, catalog.Outcome{})
	must(t, errors.Join(err, c.Close()))
	return string(op.ID)
}

// TestRefusalsOfTheServiceEndWithTheCommandsOfMgmtctl runs mgmtctl against the real service: its
// hints name no flags, and mgmtctl adds them.
func TestRefusalsOfTheServiceEndWithTheCommandsOfMgmtctl(t *testing.T) {
	location := service.Location{Name: "main", Default: true, Store: emptyStore(t)}
	two := []kube.Options{{Name: "a"}, {Name: "b"}}
	standalone := service.Config{}
	daemon := service.Config{Daemon: true, Sources: two, Targets: two,
		Locations: []service.Location{location}}
	places := daemon
	places.Locations = []service.Location{{Name: "x"}, {Name: "y"}}
	for _, tt := range []struct {
		name, command string
		cfg           service.Config
		code          int
		want          string // lines on stdout or stderr; OPERATION is the id of the restore
	}{
		{"several sources", "snapshot create" + writeFlags, daemon, 2,
			"hint: name one of a, b (--source NAME)\n  mgmtctl snapshot create --source NAME" + writeFlags},
		{"several locations", "snapshot list" + storeFlags, places, 2,
			"hint: name one of x, y (--location NAME)\n  mgmtctl snapshot list --location NAME" +
				storeFlags},
		{"no store", "snapshot list" + storeFlags, standalone, 2,
			"hint: name one (--store URL)\n  mgmtctl snapshot list --store URL --standalone --plain"},
		{"no source", "snapshot coverage --source-kubeconfig s" + catalogFlags, standalone, 2,
			"hint: name its kubeconfig (--source-kubeconfig FILE)\n  mgmtctl snapshot coverage " +
				"--source-kubeconfig FILE" + catalogFlags},
		{"no snapshot", "snapshot show latest" + storeFlags, daemon, 1,
			"hint: take one, or check whether this is the right store\n" +
				"  mgmtctl snapshot create" + storeFlags},
		{"no identity", "snapshot verify latest --level full" + storeFlags, daemon, 12,
			"hint: give one, or verify the structure alone (--identity FILE, or --level structure)"},
		{"no key of a damaged snapshot", "snapshot delete 1a2b --damaged --yes" + storeFlags, daemon, 2,
			"hint: the plan of a prune has the keys\n  mgmtctl prune plan -o json" + storeFlags},
		{"no operation", "operation show ffff" + catalogFlags, daemon, 1,
			"hint: a list of the operations shows which there are\n  mgmtctl operation list" + catalogFlags},
		{"a rollback without a target", "operation rollback latest" + catalogFlags, daemon, 2,
			"standalone, this needs --store, --target-kubeconfig"},
		{"a restore that waits for an identity", "operation show latest" + catalogFlags, daemon, 0,
			"resume it with an identity, which is not stored (mgmtctl operation resume OPERATION " +
				"--identity FILE" + catalogFlags + ")"},
		{"its history", "operation watch latest" + catalogFlags, daemon, 4,
			"resume it with an identity, which is not stored (mgmtctl operation resume OPERATION " +
				"--identity FILE" + catalogFlags + ")"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := tt.cfg
			cfg.CatalogFile = filepath.Join(t.TempDir(), "catalog.db")
			id := interruptedRestore(t, cfg.CatalogFile)
			r := runner{inside: service.New(cfg)}.run(t, tt.command).want(t, tt.code)
			if want := strings.ReplaceAll(tt.want, "OPERATION", id); !strings.Contains(r.stdout+r.stderr,
				want+"\n") {
				t.Errorf("want %q\nstdout: %s\nstderr: %s", want, r.stdout, r.stderr)
			}
		})
	}
}
