package workload

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// etcdPort is where a member serves clients (kubernetes v1.36,
	// cmd/kubeadm/app/constants/constants.go, EtcdListenClientPort).
	etcdPort = 2379
	// mostMembers and memberBytes bound an answer of etcd, which recommends seven members at most.
	mostMembers, memberBytes = 64, 64 << 10
	// clientValid is how long the client certificate for etcd is valid, and since when: clocks
	// differ.
	clientValid = 5 * time.Minute
)

// EtcdMember is a member of the etcd of a workload cluster.
type EtcdMember struct {
	// Name is that of its Node: kubeadm names a member like its Node.
	Name string
	// Learner says that it does not vote yet.
	Learner bool
	// Pod is its Pod in kube-system when etcd was not asked; empty when etcd named the member.
	Pod string
}

// String returns what was seen of the member.
func (m EtcdMember) String() string {
	switch {
	case m.Pod != "":
		return fmt.Sprintf("etcd Pod %q", m.Pod)
	case m.Learner:
		return fmt.Sprintf("etcd member %q, a learner", m.Name)
	default:
		return fmt.Sprintf("etcd member %q", m.Name)
	}
}

// EtcdCA is the CA of the etcd of a workload cluster, with its key.
type EtcdCA struct {
	certificates []*x509.Certificate
	signer       crypto.Signer
}

// ParseEtcdCA reads a CA and its key in PEM. It is an error when either is missing, as the key of
// an external etcd is. Errors hold no byte of them.
func ParseEtcdCA(cert, key []byte) (*EtcdCA, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, errors.New("the snapshot has no CA of its etcd with a key")
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of the CA of its etcd signs nothing")
	}
	return &EtcdCA{certificates: Certificates(cert), signer: signer}, nil
}

// AskEtcd asks etcd for its members, through the API server and one Pod of s after the other, and
// replaces those that s has by their Pods. It takes no longer than AnswerWithin. Without an answer
// it notes why, and the Pods stay. ca are as in Ask. The client certificate is made here and is in
// memory only; an etcd that etcdCA has not signed never gets it.
func (k *Kubeconfig) AskEtcd(ctx context.Context, ca []*x509.Certificate, etcdCA *EtcdCA,
	s *State) {
	members, err := k.askPods(ctx, ca, etcdCA, s.EtcdMembers)
	if err != nil {
		s.EtcdNotAsked = err.Error()
		return
	}
	s.EtcdMembers, s.EtcdUnknown = members, ""
}

// askPods asks one etcd after the other. Each may take half of the time that is left, the last one
// all of it: one that is silent leaves time for another.
func (k *Kubeconfig) askPods(ctx context.Context, ca []*x509.Certificate, etcdCA *EtcdCA,
	pods []EtcdMember) ([]EtcdMember, error) {
	client, err := etcdCA.clientCertificate(time.Now())
	if err != nil {
		return nil, err
	}
	err = &UnknownError{Reason: "it has no Pod of etcd"}
	end := time.Now().Add(AnswerWithin)
	for i, m := range pods[:min(len(pods), mostMembers)] {
		// A name that is none leads to another path of the API server.
		if len(validation.IsDNS1123Subdomain(m.Pod)) > 0 {
			continue
		}
		within := time.Until(end)
		if i < len(pods)-1 {
			within /= 2
		}
		var members []EtcdMember
		if members, err = k.askPod(ctx, within, ca, etcdCA, client, m.Pod); err == nil {
			return members, nil
		}
	}
	return nil, err
}

// askPod asks the etcd of a Pod.
func (k *Kubeconfig) askPod(ctx context.Context, within time.Duration, ca []*x509.Certificate,
	etcdCA *EtcdCA, client tls.Certificate, pod string) ([]EtcdMember, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := k.forward(ctx, ca, pod, etcdPort)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	var otherCA atomic.Bool
	// The kubeadm control plane names the Pod in the handshake as well, which is no name of the
	// certificate, and compares the CA alone (cluster-api v1.14, controlplane/kubeadm/pkg/cluster.go).
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: pod,
		Certificates:       []tls.Certificate{client},
		InsecureSkipVerify: true, //nolint:gosec // G402: VerifyConnection verifies the chain
		VerifyConnection: func(c tls.ConnectionState) error {
			err := verify(c.PeerCertificates, etcdCA.certificates)
			otherCA.Store(err != nil)
			return err
		}}
	etcd, err := grpc.NewClient("passthrough:///"+pod,
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(memberBytes)),
		grpc.WithMaxHeaderListSize(memberBytes), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
	if err != nil {
		return nil, &UnknownError{Reason: "its etcd cannot be asked"}
	}
	defer func() { _ = etcd.Close() }()
	// A linearizable answer is that of the majority, and not what one member remembers.
	answer, err := etcdserverpb.NewClusterClient(etcd).MemberList(ctx,
		&etcdserverpb.MemberListRequest{Linearizable: true})
	switch {
	case otherCA.Load():
		return nil, &UnknownError{Reason: "its etcd has a certificate of another CA than the one in " +
			"the snapshot"}
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, &UnknownError{Reason: fmt.Sprintf("no answer of its etcd within %s", AnswerWithin)}
	case err != nil:
		return nil, &UnknownError{Reason: fmt.Sprintf("its etcd gives no answer (%s)", status.Code(err))}
	}
	return membersOf(answer)
}

// membersOf reads an answer of etcd. A member that has not started has no name, so that its Machine
// cannot be known, and is left out.
func membersOf(answer *etcdserverpb.MemberListResponse) ([]EtcdMember, error) {
	var list []EtcdMember
	for _, m := range answer.GetMembers() {
		if m.GetName() != "" {
			list = append(list, EtcdMember{Name: printable(m.GetName()), Learner: m.GetIsLearner()})
		}
	}
	if len(list) == 0 || len(list) > mostMembers {
		return nil, &UnknownError{Reason: "its etcd does not name its members"}
	}
	return list, nil
}

// clientCertificate makes a certificate for a client of etcd, which accepts each of its CA.
func (a *EtcdCA) clientCertificate(now time.Time) (tls.Certificate, error) {
	if a == nil {
		return tls.Certificate{}, &UnknownError{Reason: "the snapshot has no CA of its etcd with a key"}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial,
		Subject: pkix.Name{CommonName: "mgmtd"}, NotBefore: now.Add(-clientValid),
		NotAfter: now.Add(clientValid), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a.certificates[0], key.Public(),
		a.signer)
	if err != nil {
		return tls.Certificate{}, &UnknownError{Reason: "the CA of its etcd signs no certificate"}
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
