package modify

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"golang.org/x/crypto/scrypt"
)

// The cost of a digest: about 0.1 s and 32 MiB (the parameters that golang.org/x/crypto/scrypt
// recommends for interactive use).
const (
	digestN = 1 << 15
	digestR = 8
	digestP = 1
)

// Digest identifies what the document says, whatever its comments and its layout. It is stored in
// plans, which hold no secret: a plain hash would confirm a guess at a password in the document, so
// it is one that makes guesses expensive, and that differs by target. The digest of no document is
// "".
func (d *Document) Digest(target string) string {
	if d == nil {
		return ""
	}
	text, err := json.Marshal(d.text)
	if err != nil {
		panic(fmt.Sprintf("encode resource modifiers: %v", err)) // plain data always encodes
	}
	key, err := scrypt.Key(text, []byte("mgmtd resource modifiers "+target), digestN, digestR, digestP,
		32)
	if err != nil {
		panic(fmt.Sprintf("hash resource modifiers: %v", err)) // the parameters are constants
	}
	return hex.EncodeToString(key)
}
