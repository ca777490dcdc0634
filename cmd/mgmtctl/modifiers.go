package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/mgmtd/mgmtd/internal/modify"
	"github.com/mgmtd/mgmtd/internal/service"
)

const modifiersFlagName = "resource-modifiers"

// modifiersFlag names the file of resource modifiers.
type modifiersFlag struct{ file string }

func (f *modifiersFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, modifiersFlagName, "", "`FILE` of Velero resource modifiers, or a "+
		"ConfigMap of them, for what differs by design on the target, such as credentials; it is sent "+
		"with the request and never stored")
}

// read returns the document, nil without the flag. An empty file is an error: it would mean none.
func (f *modifiersFlag) read() ([]byte, error) {
	if f.file == "" {
		return nil, nil
	}
	refused := func(why any) error {
		return &service.Error{Reason: service.ReasonUsage,
			Message: fmt.Sprintf("read --%s: %v", modifiersFlagName, why)}
	}
	file, err := os.Open(f.file)
	if err != nil {
		return nil, refused(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, modify.MaxSize+1))
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s is empty", f.file)
	}
	if err != nil {
		return nil, refused(err)
	}
	if _, err := modify.Parse(text); err != nil {
		return nil, err
	}
	return text, nil
}
