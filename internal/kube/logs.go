package kube

import (
	"log/slog"

	"k8s.io/klog/v2"
)

// DiscardLogs keeps client-go from writing the errors that it also returns to stderr, in the whole
// process. klog would write them there whatever its output is. A program calls it once, first.
func DiscardLogs() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) }
