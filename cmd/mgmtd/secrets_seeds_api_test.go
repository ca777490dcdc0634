//go:build api

package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// policy makes the API server quote a value of a refused object in the error, as an admission
// webhook may.
const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: ["%[2]s"], apiVersions: ["*"], operations: [CREATE], resources: [%[3]s]}]}
  validations: [{expression: "(has(request.dryRun) && request.dryRun) || !(%[4]s)", messageExpression: "%[5]s"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

// makeKeys makes the daemon's keys: an identity that a passphrase protects, and one without, since
// each use of a passphrase takes a second of computing. It returns the recipients of both.
func (f *secretsFixture) makeKeys() (recipients string) {
	f.t.Helper()
	write(f.t, f.dir, "passphrase", f.seeds.mark("passphrase")+"\n")
	write(f.t, f.dir, "wrong", f.seeds.mark("wrong passphrase")+"\n")
	f.mgmtctl(0, "keygen", "--out", f.dir+"/keys", "--passphrase", "--passphrase-file", f.dir+
		"/passphrase")
	f.mgmtctl(0, "keygen", "--out", f.dir+"/other")
	f.mgmtctl(0, "keygen", "--out", f.dir+"/plain")
	f.identity, f.protected = f.dir+"/plain/identity.txt", f.dir+"/keys/identity.txt"
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(f.dir, name))
		if err != nil {
			f.t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	for _, name := range []string{"signing.key", "signing.pub"} {
		write(f.t, f.dir, name, read("keys/"+name)+"\n")
	}
	_, other, _ := strings.Cut(read("other/identity.txt"), "AGE-SECRET-KEY-")
	f.seeds.add(f.t, "another identity", other)
	_, plain, _ := strings.Cut(read("plain/identity.txt"), "AGE-SECRET-KEY-")
	f.seeds.add(f.t, "identity", plain)
	_, signing, _ := strings.Cut(read("signing.key"), "\n")
	f.seeds.add(f.t, "signing key", signing[40:])
	return read("keys/recipient.txt") + ", " + read("plain/recipient.txt")
}

// seedAround adds the keys of the kubeconfigs of the management clusters.
func (f *secretsFixture) seedAround() {
	f.t.Helper()
	for name, file := range map[string]string{"a": f.a, "b": f.b} {
		key := mustKubectl(f.t, file, "", "config", "view", "--raw", "-o",
			"jsonpath={.users[0].user.client-key-data}")
		f.seeds.add(f.t, "key of the kubeconfig of "+name, pemLine(f.t, key))
	}
}

// pemLine returns a line from the middle of a key in base64 of PEM.
func pemLine(t *testing.T, encoded string) string {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(encoded)
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 4 {
		t.Fatalf("no key in PEM: %v", err)
	}
	return lines[2]
}

// seedObjects writes secrets to the source, and a colliding Secret to the target.
func (f *secretsFixture) seedObjects() {
	f.t.Helper()
	get := func(path string, args ...string) string {
		return mustKubectl(f.t, f.a, "", append([]string{"get", "-n", f.namespace, "-o", "jsonpath={" +
			path + "}"}, args...)...)
	}
	f.seeds.add(f.t, "object: key of a CA", pemLine(f.t, get(`.data.tls\.key`, "secret",
		"w-00002-ca")))
	patch := func(kind, name, body string) {
		mustKubectl(f.t, f.a, "", "patch", "-n", f.namespace, kind, name, "--type", "merge", "-p", body)
	}
	secret := func(name, workload, key, value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":%q,"labels":{"clusterctl.cluster.x-k8s.io/move":"","cluster.x-k8s.io/cluster-name":%q}},"stringData":{%q:%q}}`,
			name, f.namespace, workload, key, value)
	}
	for i, s := range []string{
		secret("cloud", "w-00002", "credentials", `{"secret_access_key":"`+
			f.seeds.mark("object: credentials of a cloud")+`"}`),
		secret("refused", "w-00001", "token", f.seeds.mark("object: value of a Secret that "+
			"admission quotes")),
		secret("moved", "w-00003", "token", f.seeds.mark("object: value of a Secret that is moved")),
		secret("collides", "w-00000", "token", f.seeds.mark("object: value of a Secret that collides")),
	} {
		if out, err := kubectl(f.t, f.a, s, "create", "-f", "-"); err != nil {
			f.t.Fatal(i, out)
		}
	}
	patch("secret", "cloud",
		fmt.Sprintf(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%q}}}`,
			`{"data":{"k":"`+base64.StdEncoding.EncodeToString(
				[]byte(f.seeds.mark("object: annotation of a Secret")))+`"}}`))
	if out, err := kubectl(f.t, f.a,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cloud","namespace":%q,"labels":{"clusterctl.cluster.x-k8s.io/move":"","cluster.x-k8s.io/cluster-name":"w-00002"}},"data":{"clouds.yaml":%q}}`,
			f.namespace, "password: "+f.seeds.mark("object: value of a ConfigMap")), "create", "-f",
		"-"); err != nil {
		f.t.Fatal(out)
	}
	kubeconfig := func(server, more string) string {
		text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: [{name: k, cluster: {server: %q}}], users: [{name: u, user: {%s}}]}`, server, more)
		return fmt.Sprintf(`{"stringData":{"value":%q}}`, text)
	}
	patch("secret", "w-00001-kubeconfig", kubeconfig("https://127.0.0.1:1", "token: "+
		f.seeds.mark("object: token of a kubeconfig")))
	patch("secret", "w-00002-kubeconfig", kubeconfig("https://user:"+
		f.seeds.mark("object: password in the server of a kubeconfig")+"@127.0.0.1:1", "token: t"))
	patch("secret", "w-00003-kubeconfig", fmt.Sprintf(`{"stringData":{"value":%q}}`, "token: ["+
		f.seeds.mark("object: a broken kubeconfig")))
	config := func(workload, file, password string) {
		name := get(".items[0].metadata.name", "kubeadmconfigs", "-l", "cluster.x-k8s.io/cluster-name="+
			workload)
		patch("kubeadmconfig", name,
			fmt.Sprintf(`{"spec":{"files":[{"path":"/etc/x","content":%q}],"users":[{"name":"u","passwd":%q}]}}`, file, password))
	}
	config("w-00002", f.seeds.mark("object: file of a KubeadmConfig that admission quotes"),
		f.seeds.mark("object: password of a KubeadmConfig"))
	config("w-00001", f.seeds.mark("object: file of a KubeadmConfig"),
		f.seeds.mark("object: password of another one"))
	patch("kubeadmcontrolplane", get(".items[0].metadata.name", "kubeadmcontrolplanes", "-l",
		"cluster.x-k8s.io/cluster-name=w-00002"),
		fmt.Sprintf(`{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/x","content":%q}]}}}`,
			f.seeds.mark("object: file of a KubeadmControlPlane")))

	namespace := mustKubectl(f.t, f.a, "", "get", "namespace", f.namespace, "-o", "json")
	mustKubectl(f.t, f.b,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":%s}}`,
			f.namespace, gjson.Get(namespace, "metadata.labels").Raw), "create", "-f", "-")
	if out, err := kubectl(f.t, f.b, secret("collides", "w-00000", "token",
		f.seeds.mark("value on the target")), "create", "-f", "-"); err != nil {
		f.t.Fatal(out)
	}
	for _, p := range []string{
		fmt.Sprintf(policy, "secrets", "", "secrets", "object.metadata.name == 'refused'",
			"'no: ' + string(object.data['token'])"),
		fmt.Sprintf(policy, "configs", "bootstrap.cluster.x-k8s.io", "kubeadmconfigs",
			"has(object.spec.files) && has(object.spec.files[0].content) && "+
				"object.spec.files[0].content.startsWith('Marker') && "+
				"object.metadata.labels['cluster.x-k8s.io/cluster-name'] == 'w-00002'",
			"'no: ' + string(object.spec.files[0].content)"),
	} {
		mustKubectl(f.t, f.b, p, "create", "-f", "-")
	}
	// It takes a while until a policy holds; then it has to quote what it refuses.
	wait(f.t, f.dir, "the API server quotes a value", func() bool {
		probe := "ProbeOfAdmission"
		out, err := kubectl(f.t, f.b, secret("refused", "w", "token", probe), "create", "-f", "-")
		if err == nil {
			mustKubectl(f.t, f.b, "", "delete", "secret", "-n", f.namespace, "refused")
		}
		return err != nil && strings.Contains(out, probe) || err != nil &&
			strings.Contains(out, base64.StdEncoding.EncodeToString([]byte(probe)))
	})
}
