//go:build api

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/kube/kubetest"
	"github.com/mgmtd/mgmtd/internal/store/bucket/s3/s3test"
)

// The scripts of testdata/api run mgmtctl against two real API servers without Cluster API
// controllers: what it says, how it exits, and above all that it changes nothing when it refuses.
// Each runs standalone, which is the same to it as through a daemon but for the variables below. A
// script whose outcome depends on that begins with the line "# both: why" and runs twice, the
// second time through a daemon of its own; with MGMTD_TEST_STATES all of them do. One that has a
// meaning in one of the two only begins with a line such as "# only daemon: why". Single lines have
// the conditions [standalone] and [daemon].
//
// Each script has a namespace of its own, $NS, with the workload clusters $NS/w-00000 and
// $NS/w-00001 on the source and nothing on the target, so that they run side by side; those named
// alone_* change what is common to all namespaces and run one after the other. These are set:
//
//	$SOURCE, $TARGET  kubeconfigs; their contexts, and the names in the daemon's config, are
//	                  mgmt-1 and mgmt-2
//	$TO               the target, for a restore
//	$WRITE            what "snapshot create" needs: the store, the keys that encrypt and sign, the
//	                  source; with $FROM_TARGET after it, the target is the source
//	$READ             what everything else needs: the store, the identity, the trusted key
//	$BLIND            $READ without the identity
//	$MOVE             what a move needs: the store, the keys, both sides
//	$GO_ON            what an operation or a plan needs that says itself which sides it is about
//	$INSPECT          what a command needs that reads the source only
//	$CATALOG          what a command needs that reads the catalog only
//	$AT_X             puts a store at $WORK/x in the place of $WORK/store, for each of the places
//	                  below; $AT_MAIN says that it is $WORK/store
//	$AT_LOCKED        puts a bucket with Object Lock, which retains what is written for a day, in
//	                  the place of $WORK/store
//	$BUCKET           the folder with what is in that bucket
//
// Besides the commands of testscript there are:
//
//	exits CODE ARG...     run mgmtctl and want this exit code
//	refuses CODE ARG...   the same, and nothing may have changed: neither $NS on both servers, nor
//	                      the store, nor may it leave an operation running
//	reads ARG...          refuses 0
//	copy REF              copy an object of the source to the target, without its owners
//	unsign, tamper        take the signature away from the newest envelope of the store; change
//	                      what was signed
//	truncate PATTERN      cut the one file that fits the pattern in half
//	unlock ID             end the retention of a snapshot's envelope in $BUCKET, as somebody does
//	                      who may bypass governance
//	disk DIR SIZE         mount a file system of this size at DIR, or give the one that is there
//	                      another size
//	await FILE REGEXP     wait until a line of the file matches
//	setenv NAME REGEXP    set $NAME to the first group of a regular expression that matches the
//	                      last stdout
//
// An argument such as $READ, which begins with a flag and holds several, counts as several.

// places are folders next to the store that a script can name with $AT_X, where X is the name in
// upper case.
var places = []string{"missing", "file", "photos", "foreign", "newer", "empty", "copied"}

// The two ways to reach the service.
const (
	modeStandalone = "standalone"
	modeDaemon     = "daemon"
)

func TestAPIScripts(t *testing.T) {
	l := startLab(t)
	for _, mode := range []string{modeStandalone, modeDaemon} {
		t.Run(mode, func(t *testing.T) { l.run(t, mode) })
	}
}

// run runs the scripts of a mode.
func (l *lab) run(t *testing.T, mode string) {
	files, err := filepath.Glob("testdata/api/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("find scripts: %v", err)
	}
	var parallel, alone []string
	for _, f := range files {
		switch {
		case !runsIn(t, f, mode):
		case strings.HasPrefix(filepath.Base(f), "alone_"):
			alone = append(alone, f)
		default:
			parallel = append(parallel, f)
		}
	}
	if mode == modeDaemon {
		l.mgmtd = buildDaemon(t)
	}
	t.Run("parallel", func(t *testing.T) { testscript.Run(t, l.params(mode, parallel...)) })
	for _, f := range alone {
		t.Run("alone", func(t *testing.T) { testscript.Run(t, l.params(mode, f)) })
	}
}

var (
	onlyLine = regexp.MustCompile(`(?m)^# only (\w+)(: .+)?$`)
	bothLine = regexp.MustCompile(`(?m)^# both: .+$`)
)

// runsIn reports whether a script runs in a mode. One that runs in only one of them must say why.
func runsIn(t *testing.T, file, mode string) bool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := onlyLine.FindSubmatch(text)
	if m == nil {
		return mode == modeStandalone || bothLine.Match(text) || os.Getenv("MGMTD_TEST_STATES") != ""
	}
	only, reason := string(m[1]), string(m[2])
	if reason == "" || (only != modeStandalone && only != modeDaemon) {
		t.Fatalf("%s: %q: want a mode and a reason", file, m[0])
	}
	return only == mode
}

func (l *lab) params(mode string, files ...string) testscript.Params {
	return testscript.Params{
		Files:               files,
		Setup:               func(env *testscript.Env) error { return l.setup(env, mode) },
		Condition:           func(cond string) (bool, error) { return cond == mode, nil },
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		ContinueOnError:     true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				exits(ts, neg,
					split(args))
			},
			"refuses": l.refuses,
			"reads": func(ts *testscript.TestScript, neg bool, args []string) {
				l.refuses(ts, neg, append([]string{"0"}, args...))
			},
			"copy":     l.copyObject,
			"unsign":   unsign,
			"tamper":   tamper,
			"truncate": truncate,
			"unlock":   l.unlock,
			"disk":     disk,
			"await":    await,
			"setenv":   setenv,
		},
	}
}

// lab is two bare API servers, the source and the target, and the daemon's program.
type lab struct {
	t              *testing.T
	servers        *kubetest.Servers
	s3             *s3test.Server
	bin, mgmtd     string
	source, target *kube.Mgmt
	kinds          []kube.Kind
}

// startLab starts the servers for the time of one test; the other tests of the package need none.
func startLab(t *testing.T) *lab {
	t.Helper()
	program, err := kubetest.Lab()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, bin: filepath.Dir(program), servers: kubetest.Start(t, 2),
		s3: s3test.Start(t, s3test.Options{Versions: true})}
	l.s3.Setenv(t) // mgmtctl runs in this process, and the S3 client reads the environment of that
	l.source, l.target = l.servers.Connect(t, 0), l.servers.Connect(t, 1)
	if l.kinds, err = l.source.Reader().Kinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// setup fills the script's namespace on the source, makes keys, and sets the variables of its
// mode.
func (l *lab) setup(env *testscript.Env, mode string) error {
	script := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"), "_", "-")
	fill := []string{"--namespace-prefix", mode + "-" + script + "-", "--workloads", "2", "--machines",
		"2", "--fast"}
	if strings.HasPrefix(script, "alone") {
		// a kind that no other script needs, so that it can be taken away
		fill = append(fill, "--machine-pools")
	}
	if err := l.servers.Fill(context.Background(), 0, fill...); err != nil {
		return fmt.Errorf("fill source: %w", err)
	}
	if err := makeKeys(filepath.Join(env.WorkDir, "keys"), nil); err != nil {
		return err
	}
	recipient, err := os.ReadFile(filepath.Join(env.WorkDir, "keys", "recipient.txt"))
	if err != nil {
		return err
	}
	a := access{
		work: env.WorkDir, namespace: mode + "-" + script + "-team-0000",
		recipient: strings.TrimSpace(string(recipient)),
		source:    l.servers.Options(0), target: l.servers.Options(1), s3: l.s3, bucket: mode + "-" +
			script,
	}
	if err := l.s3.Client(l.t).MakeBucket(context.Background(), a.bucket,
		minio.MakeBucketOptions{ObjectLocking: true}); err != nil {
		return fmt.Errorf("make bucket: %w", err)
	}
	vars := a.standalone()
	if mode == modeDaemon {
		vars = a.daemon()
	}
	vars["NS"], vars["HOME"], vars["RECIPIENT"] = a.namespace, filepath.Join(env.WorkDir, "home"),
		a.recipient
	vars["BUCKET"] = filepath.Join(l.s3.Root, a.bucket)
	vars["SOURCE"], vars["TARGET"] = a.source.KubeconfigFile, a.target.KubeconfigFile
	vars["PATH"] = l.bin + string(filepath.ListSeparator) + env.Getenv("PATH")
	for name, value := range vars {
		env.Setenv(name, value)
	}
	if mode == modeDaemon {
		return l.startDaemon(env, a)
	}
	return nil
}

// access is what a script works with.
type access struct {
	work, namespace, recipient string
	source, target             kube.Options
	s3                         *s3test.Server
	bucket                     string
}

// file is a path in the script's folder.
func (a access) file(path string) string { return filepath.Join(a.work, filepath.FromSlash(path)) }

// standalone gives the variables of a script that runs without a daemon.
func (a access) standalone() map[string]string {
	catalog := "--standalone --catalog " + a.file("catalog.db")
	store := catalog + " --store " + a.file("store")
	write := store + " --recipient " + a.recipient + " --signing-key " + a.file("keys/signing.key") +
		" --source-kubeconfig " + a.source.KubeconfigFile
	vars := map[string]string{
		"TO":          "--target-kubeconfig " + a.target.KubeconfigFile,
		"WRITE":       write,
		"FROM_TARGET": "--source-kubeconfig " + a.target.KubeconfigFile,
		"READ": store + " --identity " + a.file("keys/identity.txt") + " --trusted-key " +
			a.file("keys/signing.pub"),
		"BLIND": store + " --trusted-key " + a.file("keys/signing.pub"),
		"MOVE": write + " --trusted-key " + a.file("keys/signing.pub") + " --target-kubeconfig " +
			a.target.KubeconfigFile,
		"GO_ON": write + " --identity " + a.file("keys/identity.txt") + " --trusted-key " +
			a.file("keys/signing.pub") + " --target-kubeconfig " +
			a.target.KubeconfigFile,
		"INSPECT": "--standalone --source-kubeconfig " + a.source.KubeconfigFile,
		"CATALOG": catalog,
	}
	vars["AT_MAIN"] = "--store " + a.file("store")
	vars["AT_LOCKED"] = "--store " + a.s3.URL(a.bucket, "") +
		"&path-style=true&object-lock=governance&retention-days=1"
	for _, place := range places {
		vars["AT_"+strings.ToUpper(place)] = "--store " + a.file(place)
	}
	return vars
}

// daemon gives the variables of a script that runs through a daemon.
func (a access) daemon() map[string]string {
	address := "--address unix://" + a.file("mgmtd.sock")
	vars := map[string]string{
		"TO":          "--target " + a.target.Name,
		"WRITE":       address + " --source " + a.source.Name,
		"FROM_TARGET": "--source " + a.target.Name,
		"READ":        address + " --identity " + a.file("keys/identity.txt"),
		"BLIND":       address,
		"MOVE":        address + " --source " + a.source.Name + " --target " + a.target.Name,
		"GO_ON":       address + " --identity " + a.file("keys/identity.txt"),
		"INSPECT":     address + " --source " + a.source.Name,
		"CATALOG":     address,
	}
	vars["AT_MAIN"], vars["AT_LOCKED"] = "--location main", "--location locked"
	for _, place := range places {
		vars["AT_"+strings.ToUpper(place)] = "--location " + place
	}
	return vars
}

// split makes several arguments of one that begins with a flag and holds several.
func split(args []string) []string {
	var all []string
	for _, a := range args {
		if strings.HasPrefix(a, "--") && strings.Contains(a, " ") {
			all = append(all, strings.Fields(a)...)
		} else {
			all = append(all, a)
		}
	}
	return all
}
