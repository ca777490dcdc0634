package providertest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mgmtd/mgmtd/internal/object"
)

// The kinds of kubeadm, which a row has unless it names others.
const (
	kubeadmConfig       = "KubeadmConfig.bootstrap.cluster.x-k8s.io"
	kubeadmControlPlane = "KubeadmControlPlane.controlplane.cluster.x-k8s.io"
)

// row is one workload cluster of a provider. Its core objects are made by core.yaml.tmpl.
type row struct {
	// Name of the row in the table, and of the Cluster.
	Name      string
	Namespace string
	// Infrastructure, Machine, Bootstrap, ControlPlane are kinds of the provider, "Kind.group"; those
	// of kubeadm when Bootstrap and ControlPlane are empty. The Machines are <name>-cp and <name>-md.
	Infrastructure, Machine, Bootstrap, ControlPlane string
	// BootstrapSpec is the spec of each bootstrap configuration, as JSON.
	BootstrapSpec string
	// Managed: there are no Machines of the control plane, and no certificates of it.
	Managed bool
	// Pool is the kind of the infrastructure of a MachinePool <name>-mp, in place of <name>-md.
	Pool string
	// PoolSecret is the Secret with its bootstrap data.
	PoolSecret string
	// Zone is the failure domain of the Machines.
	Zone string
	// Certificates are the suffixes of the Secrets of the control plane; those of kubeadm when it is
	// empty.
	Certificates []string
	// Labels and Annotations of the Cluster.
	Labels, Annotations map[string]string

	// Blocked are the codes of the findings that keep a restore from bringing the workload cluster.
	Blocked string
	// MoveBlocked are those that keep a move from taking it.
	MoveBlocked string
	// Forced are those of a move that an operator overrides once he has done by hand what they ask.
	Forced string
	// Why says why it has to be so.
	Why string
}

// machine is a Machine of a row.
type machine struct{ Name, Labels, Owner string }

// workload is a row with what the template needs besides.
type workload struct {
	row
	CA, Key, Public string // PEM
	Kubeadm         bool
	Deployment      bool
	Machines        []machine
}

func (r row) workload(c certificate) workload {
	w := workload{row: r, CA: c.cert, Key: c.key, Public: c.public}
	if w.ControlPlane == "" {
		w.ControlPlane, w.Kubeadm = kubeadmControlPlane, true
	}
	if w.Bootstrap == "" {
		w.Bootstrap = kubeadmConfig
	}
	if w.BootstrapSpec == "" {
		w.BootstrapSpec = "{joinConfiguration: {nodeRegistration: {criSocket: \"unix:///run/c.sock\"}}}"
	}
	if w.Certificates == nil {
		w.Certificates = []string{"ca", "etcd", "proxy", "sa"}
	}
	if !w.Managed {
		w.Machines = append(w.Machines, machine{w.Name + "-cp",
			`, cluster.x-k8s.io/control-plane: "", cluster.x-k8s.io/control-plane-name: ` + w.Name,
			w.ControlPlane + "/" + w.Name})
	}
	if w.Machine != "" && w.Pool == "" {
		w.Deployment = true
		w.Machines = append(w.Machines, machine{w.Name + "-md", ", md: " + w.Name,
			"MachineSet.cluster.x-k8s.io/" + w.Name + "-md-1"})
	}
	return w
}

// certificate is a CA with its keys, as PEM.
type certificate struct{ cert, key, public string }

// newCertificate makes one CA for all workload clusters: none of them is ever dialled.
func newCertificate(t *testing.T) certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		Subject: pkix.Name{CommonName: "kubernetes"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign}
	cert, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return certificate{text("CERTIFICATE", cert), text("EC PRIVATE KEY", private),
		text("PUBLIC KEY", public)}
}

// blocks returns the codes of the errors that block a row.
func (r row) blocks(all []object.Finding) string {
	var codes []string
	for _, f := range all {
		unit := r.Namespace + "/" + r.Name
		if f.Severity >= object.Error && f.Concerns(unit) && !slices.Contains(codes, string(f.Code)) {
			codes = append(codes, string(f.Code))
		}
	}
	slices.Sort(codes)
	return strings.Join(codes, " ")
}
