//go:build api

package main

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// seedObjects writes secrets onto the source, and onto the target what collides.
func (y *yard) seedObjects() {
	y.t.Helper()
	get := func(path string, args ...string) string {
		return mustKubectl(y.t, y.a, "", append([]string{"get", "-n", y.namespace, "-o", "jsonpath={" +
			path + "}"}, args...)...)
	}
	y.seeds.add(y.t, "object: key of a CA", pemLine(y.t, get(`.data.tls\.key`, "secret",
		"w-00002-ca")))
	patch := func(kind, name, body string) {
		mustKubectl(y.t, y.a, "", "patch", "-n", y.namespace, kind, name, "--type", "merge", "-p", body)
	}
	secret := func(name, workload, key, value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":%q,"labels":{"clusterctl.cluster.x-k8s.io/move":"","cluster.x-k8s.io/cluster-name":%q}},"stringData":{%q:%q}}`,
			name, y.namespace, workload, key, value)
	}
	for i, s := range []string{
		secret("cloud", "w-00002", "credentials", `{"secret_access_key":"`+
			y.seeds.mark("object: credentials of a cloud")+`"}`),
		secret("refused", "w-00001", "token", y.seeds.mark("object: value of a Secret that "+
			"admission quotes")),
		secret("moved", "w-00003", "token", y.seeds.mark("object: value of a Secret that is moved")),
		secret("collides", "w-00000", "token", y.seeds.mark("object: value of a Secret that collides")),
	} {
		if out, err := kubectl(y.t, y.a, s, "create", "-f", "-"); err != nil {
			y.t.Fatal(i, out)
		}
	}
	patch("secret", "cloud",
		fmt.Sprintf(`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":%q}}}`,
			`{"data":{"k":"`+base64.StdEncoding.EncodeToString(
				[]byte(y.seeds.mark("object: annotation of a Secret")))+`"}}`))
	if out, err := kubectl(y.t, y.a,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cloud","namespace":%q,"labels":{"clusterctl.cluster.x-k8s.io/move":"","cluster.x-k8s.io/cluster-name":"w-00002"}},"data":{"clouds.yaml":%q}}`,
			y.namespace, "password: "+y.seeds.mark("object: value of a ConfigMap")), "create", "-f",
		"-"); err != nil {
		y.t.Fatal(out)
	}
	kubeconfig := func(server, more string) string {
		text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: [{name: k, cluster: {server: %q}}], users: [{name: u, user: {%s}}]}`, server, more)
		return fmt.Sprintf(`{"stringData":{"value":%q}}`, text)
	}
	patch("secret", "w-00001-kubeconfig", kubeconfig("https://127.0.0.1:1", "token: "+
		y.seeds.mark("object: token of a kubeconfig")))
	patch("secret", "w-00002-kubeconfig", kubeconfig("https://user:"+
		y.seeds.mark("object: password in the server of a kubeconfig")+"@127.0.0.1:1", "token: t"))
	patch("secret", "w-00003-kubeconfig", fmt.Sprintf(`{"stringData":{"value":%q}}`, "token: ["+
		y.seeds.mark("object: a broken kubeconfig")))
	config := func(workload, file, password string) {
		name := get(".items[0].metadata.name", "kubeadmconfigs", "-l", "cluster.x-k8s.io/cluster-name="+
			workload)
		patch("kubeadmconfig", name,
			fmt.Sprintf(`{"spec":{"files":[{"path":"/etc/x","content":%q}],"users":[{"name":"u","passwd":%q}]}}`, file, password))
	}
	config("w-00002", y.seeds.mark("object: file of a KubeadmConfig that admission quotes"),
		y.seeds.mark("object: password of a KubeadmConfig"))
	config("w-00001", y.seeds.mark("object: file of a KubeadmConfig"),
		y.seeds.mark("object: password of another one"))
	patch("kubeadmcontrolplane", get(".items[0].metadata.name", "kubeadmcontrolplanes", "-l",
		"cluster.x-k8s.io/cluster-name=w-00002"),
		fmt.Sprintf(`{"spec":{"kubeadmConfigSpec":{"files":[{"path":"/etc/x","content":%q}]}}}`,
			y.seeds.mark("object: file of a KubeadmControlPlane")))

	namespace := mustKubectl(y.t, y.a, "", "get", "namespace", y.namespace, "-o", "json")
	mustKubectl(y.t, y.b,
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":%s}}`,
			y.namespace, gjson.Get(namespace, "metadata.labels").Raw), "create", "-f", "-")
	if out, err := kubectl(y.t, y.b, secret("collides", "w-00000", "token",
		y.seeds.mark("value on the target")), "create", "-f", "-"); err != nil {
		y.t.Fatal(out)
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
		mustKubectl(y.t, y.b, p, "create", "-f", "-")
	}
	// It takes a while until a policy holds; then it has to quote what it refuses.
	wait(y.t, y.dir, "the API server quotes a value", func() bool {
		probe := "ProbeOfAdmission"
		out, err := kubectl(y.t, y.b, secret("refused", "w", "token", probe), "create", "-f", "-")
		if err == nil {
			mustKubectl(y.t, y.b, "", "delete", "secret", "-n", y.namespace, "refused")
		}
		return err != nil && strings.Contains(out, probe) || err != nil &&
			strings.Contains(out, base64.StdEncoding.EncodeToString([]byte(probe)))
	})
}
