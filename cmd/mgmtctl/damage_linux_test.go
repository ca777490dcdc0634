package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"
)

var peakText = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// watchMemory samples a process until it ends and returns its peak memory in bytes. Its rusage
// does not serve: that includes the memory of the process that started it.
func watchMemory(pid int, ended <-chan struct{}) (peak int64) {
	for {
		// Of the process that is to become the program, too, for an instant: the last reading counts.
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
			if m := peakText.FindSubmatch(text); m != nil {
				kib, _ := strconv.ParseInt(string(m[1]), 10, 64)
				peak = kib << 10
			}
		}
		select {
		case <-ended:
			return peak
		case <-time.After(2 * time.Millisecond):
		}
	}
}
