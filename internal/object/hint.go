package object

import "errors"

// HintOf returns the hint of an error.
func HintOf(err error) string {
	var hinter interface {
		error
		Hint() string
	}
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return "mend the cause, then resume the operation"
}
