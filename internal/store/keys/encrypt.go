package keys

import (
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/mgmtd/mgmtd/internal/store/bucket"
)

// Encrypt returns a writer that encrypts into dst to all recipients; its Close ends the stream and
// leaves dst open.
func (k *Keys) Encrypt(dst io.Writer) (io.WriteCloser, error) {
	w, err := age.Encrypt(dst, k.recipients...)
	if err != nil {
		return nil, fmt.Errorf("begin encryption: %w", err)
	}
	return w, nil
}

// Decrypt returns a reader of what is encrypted in src, which is stored under key. *Error when no
// identity fits, bucket.DamageError when it is no age file.
func (k *Keys) Decrypt(key string, src io.Reader) (io.Reader, error) {
	if !k.CanRead() {
		return nil, &Error{Object: key, Reason: "identity missing: it is encrypted"}
	}
	plain, err := age.Decrypt(src, k.identities...)
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return nil, &Error{Object: key, Reason: "identity wrong: it is encrypted to other recipients"}
	}
	if err != nil {
		return nil, bucket.DamageError("decrypt: " + err.Error())
	}
	return plain, nil
}
