package s3test

import (
	"os/exec"
	"syscall"
)

// endWithParent prevents that a killed test binary leaves its server behind.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
