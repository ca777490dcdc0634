package s3test

import (
	"os/exec"
	"syscall"
)

// endWithParent keeps a test binary that was killed from leaving its server behind.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
