package object

import "errors"

// CodeOf returns the code of the finding that an error is; otherwise for one that names none.
func CodeOf(err error, otherwise Code) Code {
	var coder interface {
		error
		Code() Code
	}
	if errors.As(err, &coder) {
		return coder.Code()
	}
	return otherwise
}

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
