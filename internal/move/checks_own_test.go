package move

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http/httptest"
	"testing"

	"github.com/mgmtd/mgmtd/internal/kube"
	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/snapshot"
	"github.com/mgmtd/mgmtd/internal/store"
	"github.com/mgmtd/mgmtd/internal/store/bucket/directory"
	"github.com/mgmtd/mgmtd/internal/workload"
)

// TestTheClusterOfAManagementClusterIsReported: by the kubeconfig that Cluster API made of it.
func TestTheClusterOfAManagementClusterIsReported(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := server.Certificate()
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":` +
		`{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":"t"}}],"clusters":[{"name":"c",` +
		`"cluster":{"server":"https://w:6443","certificate-authority-data":"` +
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: ca.Raw})) + `"}}]}`
	secret := anObject("/v1", "Secret", "w-kubeconfig", `"type":"cluster.x-k8s.io/secret","data":{"value":"`+
		base64.StdEncoding.EncodeToString([]byte(text))+`"}`)
	own := snapshot.Options{API: &kube.API{Server: "https://127.0.0.1:1",
		CA: workload.KeyIDs([]*x509.Certificate{ca})}}
	other := snapshot.Options{API: &kube.API{Server: "https://w:6443", CA: []string{"other"}}}
	for name, tt := range map[string]struct {
		source, target snapshot.Options
		want           []string
	}{
		"none":          {other, other, nil},
		"not known":     {snapshot.Options{}, snapshot.Options{}, nil},
		"of the source": {own, other, []string{"warning own-cluster: it is the Cluster of the source "}},
		"of the target": {other, own, []string{"warning own-cluster: it is the Cluster of the target "}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sourceOf(t, core("Cluster", "w", ""), secret)
			c.Source.options, c.Target.options = tt.source, tt.target
			checkFound(t, found(t, c, checkOwn), tt.want...)
		})
	}
}

// TestCheckStoreWarnsOfARecordInAnotherStore: by the mark of the last release on the Cluster. A
// store that the move has made is named, since its URL may be mistyped.
func TestCheckStoreWarnsOfARecordInAnotherStore(t *testing.T) {
	made, root := newStore(t)
	c := sourceOf(t, core("Cluster", "w", ""))
	c.Store = made
	if err := checkStore(t.Context(), c); err != nil || len(c.findings) != 1 ||
		c.findings[0].Code != object.CodeNewStore {
		t.Errorf("%+v (%v)", c.findings, err)
	}

	st, err := store.Open(t.Context(), store.Options{Bucket: directory.New(root)})
	if err != nil {
		t.Fatal(err)
	}
	for mark, want := range map[string]string{
		st.ID() + "/4":    "",
		"":                "",
		"nothing":         "",
		"another-store/4": "warning other-store: its ownership record, epoch 4, is in the store another-",
	} {
		c := sourceOf(t, core("Cluster", "w",
			`"metadata":{"name":"w","annotations":{"mgmtd.dev/epoch":"`+mark+`"}}`))
		c.Store = st
		var wanted []string
		if want != "" {
			wanted = append(wanted, want)
		}
		checkFound(t, found(t, c, checkStore), wanted...)
	}
}
