package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mgmtd/mgmtd/internal/object"
	"github.com/mgmtd/mgmtd/internal/store"
)

// CheckedKeys is what a check of keys found of one snapshot.
type CheckedKeys struct {
	Snapshot store.Signed
	// Opens: an identity opens its content, or it is not encrypted.
	Opens bool
}

// CheckKeys tries the keys of a store on snapshots: whether a trusted key signed each, and whether
// an identity opens its content, of which it decrypts the beginning of one shard. It also reports
// when what will be written will not open with the identities. It writes nothing. The error is
// about the check itself: a cancelled context, the store gone or not answering.
func CheckKeys(ctx context.Context, st *store.Store, snapshots []store.Signed) ([]CheckedKeys,
	[]object.Finding, error) {
	findings := checkRecipients(st)
	list := make([]CheckedKeys, 0, len(snapshots))
	for _, e := range snapshots {
		c := CheckedKeys{Snapshot: e}
		trusted := checkSigner(st, e)
		findings = append(findings, trusted...)
		if len(trusted) == 0 || trusted[0].Severity < object.Error { // signature first (I8)
			f, err := checkOpens(ctx, st, e)
			if err != nil {
				return nil, nil, err
			}
			findings, c.Opens = append(findings, f...), len(f) == 0
		}
		list = append(list, c)
	}
	return list, findings, nil
}

// checkRecipients compares the recipients of what will be written with the identities.
func checkRecipients(st *store.Store) []object.Finding {
	recipients, identities := st.Recipients(), st.Identities()
	fits := func(r string) bool { return slices.Contains(identities, r) }
	if len(recipients) == 0 || len(identities) == 0 || slices.ContainsFunc(recipients, fits) {
		return nil
	}
	return []object.Finding{{Severity: object.Error, Code: object.CodeRecipientMissing,
		Message: fmt.Sprintf("the next snapshots are encrypted to %s, and the identity belongs to %s",
			strings.Join(recipients, ", "), strings.Join(identities, ", ")),
		Hint: "add the recipient of the identity to the configuration, or check the identity of one " +
			"of the configured recipients"}}
}

// checkSigner returns the finding about a snapshot that no trusted key signed. Without trusted keys
// it is a warning, and in a plain store nobody has to sign.
func checkSigner(st *store.Store, e store.Signed) []object.Finding {
	err := e.RequireTrusted()
	if err == nil || !st.Encrypted() && e.Trust == store.Unsigned {
		return nil
	}
	f := object.Finding{Severity: object.Error, Code: object.CodeSignature,
		Message: about(e) + ": " + err.Error(), Hint: "give the public key of the mgmtd that wrote " +
			"it, after checking that it is the right one, or use another snapshot"}
	if e.Trust == store.Unchecked {
		f.Severity = object.Warning
	}
	return []object.Finding{f}
}

// checkOpens returns the finding about a snapshot that cannot be read.
func checkOpens(ctx context.Context, st *store.Store, e store.Signed) ([]object.Finding, error) {
	err := st.CheckOpens(ctx, e.Envelope)
	switch {
	case err == nil:
		return nil, nil
	case as[*store.KeyError](err):
		written := "an earlier version, which did not record its recipients, wrote it"
		if len(e.Recipients) > 0 {
			written = "it is encrypted to " + strings.Join(e.Recipients, ", ")
		}
		return []object.Finding{{Severity: object.Error, Code: object.CodeIdentityWrong,
			Message: fmt.Sprintf("%s does not open with the identity of %s: %s", about(e),
				strings.Join(st.Identities(), ", "), written),
			Hint: "find the identity of one of its recipients"}}, nil
	case ctx.Err() != nil || !store.IsUnusable(err) && !store.IsMissing(err):
		return nil, err
	}
	return []object.Finding{{Severity: object.Error, Code: object.CodeDamaged,
		Message: about(e) + ": " + err.Error(), Hint: "verify it, and restore the key from a copy of " +
			"the store"}}, nil
}

// about names a snapshot in a message.
func about(e store.Signed) string {
	return fmt.Sprintf("snapshot %s of %s", e.ID, e.Source.Name)
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
