//go:build !unix

package directory

import (
	"context"
	"errors"
	"os"
)

func lock(context.Context, *os.File) error {
	return errors.New("ownership records in a directory need file locks of Unix: use an S3 store")
}
