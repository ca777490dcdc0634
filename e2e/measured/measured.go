// Package measured has figures of make bench that others print, with the date of the measurement:
// what takes too long to be measured wherever it is of interest.
package measured

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Moves are the figures of moves of one live fleet, in turns with clusterctl and with mgmtctl.
type Moves struct {
	Date string `json:"date"`
	// Clusterctl is its version, which is that of Cluster API on both management clusters.
	Clusterctl string `json:"clusterctl"`
	Workloads  int    `json:"workloads"`
	Machines   int    `json:"machines"`
	// Times is how often the fleet was moved with each.
	Times             int     `json:"times"`
	ClusterctlFigures Figures `json:"clusterctlFigures"`
	MgmtctlFigures    Figures `json:"mgmtctlFigures"`
}

// Figures of one program. Command and Pause are medians, Pause and LongestPause are those of a
// workload cluster.
type Figures struct {
	Command      metav1.Duration `json:"command"`
	Pause        metav1.Duration `json:"pause"`
	LongestPause metav1.Duration `json:"longestPause"`
}

//go:embed clusterctl.json
var recorded []byte

// Recorded returns the figures that are checked in.
func Recorded() (m Moves, err error) {
	if err := json.Unmarshal(recorded, &m); err != nil {
		return m, fmt.Errorf("read measured moves: %w", err)
	}
	return m, nil
}

// Write writes the figures to a file: clusterctl.json of this folder is what Recorded returns.
func (m Moves) Write(path string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("marshal measured moves: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write measured moves: %w", err)
	}
	return nil
}
