package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Home is the folder of built programs and manifests, <repository>/.lab:
//
//	bin/        programs
//	crds/       one CustomResourceDefinition a file, without conversion webhooks
//	webhooks/   webhook configurations, one provider a file, as published
//	crds-1.10/, webhooks-1.10/  those of Cluster API 1.10
//	providers/  the same for each provider of AddProviders
//	crds-providers/  CRDs of the providers of clouds, one folder each
//	keys/       RSA keys for bare fleets, made once
type Home string

// FindHome finds the Home of this program. A program in .lab/bin has that .lab, any other one that
// of the repository of the current folder.
func FindHome() (Home, error) {
	if self, err := os.Executable(); err == nil {
		if bin := filepath.Dir(self); filepath.Base(bin) == "bin" &&
			filepath.Base(filepath.Dir(bin)) == ".lab" {
			return Home(filepath.Dir(bin)), nil
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "e2e", "go.mod")); err == nil {
			return Home(filepath.Join(dir, ".lab")), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find repository: no e2e/go.mod in this folder or above it")
		}
		dir = parent
	}
}

func (h Home) bin(name string) string { return filepath.Join(string(h), "bin", name) }

// Keys is the folder of RSA keys for bare fleets.
func (h Home) Keys() string { return filepath.Join(string(h), "keys") }

// source is the folder of the e2e module.
func (h Home) source() string { return filepath.Join(filepath.Dir(string(h)), "e2e") }
