package restore

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
)

func decodeBase64(s string) ([]byte, error) { return base64.StdEncoding.DecodeString(s) }

// keysMatch reports whether a public and a private key in PEM belong together. The service account
// pair is keys, not certificates.
func keysMatch(publicPEM, privatePEM []byte) bool {
	pub, _ := pem.Decode(publicPEM)
	priv, _ := pem.Decode(privatePEM)
	if pub == nil || priv == nil {
		return false
	}
	public, err := x509.ParsePKIXPublicKey(pub.Bytes)
	if err != nil {
		if public, err = x509.ParsePKCS1PublicKey(pub.Bytes); err != nil {
			return false
		}
	}
	private, err := parsePrivateKey(priv.Bytes)
	if err != nil {
		return false
	}
	equal, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && equal.Equal(public)
}

func parsePrivateKey(der []byte) (crypto.Signer, error) {
	if k, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return k, nil
	}
	if k, err := x509.ParseECPrivateKey(der); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	if signer, ok := k.(crypto.Signer); ok {
		return signer, nil
	}
	return nil, fmt.Errorf("key of type %T cannot sign", k)
}
