package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one program of a lab. It writes to its own log file and cannot
// outlive the lab.
type process struct {
	role string
	args []string // the program's path first
	env  []string
	log  string
	name string // its argv[0], when that is not the path

	mu   sync.Mutex
	cmd  *exec.Cmd     // of the last start
	done chan struct{} // closed when that has ended
}

// spawner starts processes from one thread that lives as long as the lab.
// Linux sends the parent-death signal when the *thread* that made a process
// ends, so the thread must not be one that the Go runtime may drop.
type spawner struct {
	requests chan func()
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for request := range s.requests {
			request()
		}
	}()
	return s
}

func (s *spawner) close() { close(s.requests) }

// start runs p; a process that runs already is left alone.
func (s *spawner) start(p *process) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runningLocked() {
		return nil
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	fmt.Fprintf(log, "### %s\n", strings.Join(p.args, " "))
	cmd := exec.Command(p.args[0], p.args[1:]...)
	if p.name != "" {
		cmd.Args[0] = p.name
	}
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// Its own group: Ctrl-C on the terminal is for the lab, which then ends its processes in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	s.requests <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.role, err)
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		// How it ended is in its log, or was our signal.
		_ = cmd.Wait()
		close(done)
	}()
	return nil
}

// runningLocked is for callers that hold p.mu.
func (p *process) runningLocked() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// pid is 0 when the process does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runningLocked() {
		return 0
	}
	return p.cmd.Process.Pid
}

// ended is closed when the process has ended; nil before its first start.
func (p *process) ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// kill sends SIGKILL and waits until the process has ended. It only signals a child that has not
// been waited for, so never a foreign process that got the same pid.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runningLocked() {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// wait polls check until it holds. It fails, with the end of the process's
// log, when the process ends or ctx does.
func (p *process) wait(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last: %w)\n%s", what, ctx.Err(), err, p.logTail())
		case <-p.ended():
			return fmt.Errorf("wait for %s: %s ended\n%s", what, p.role, p.logTail())
		case <-ticker.C:
		}
	}
}

// logTail is the end of the process's log, for error messages.
func (p *process) logTail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("--- end of %s:\n%s", filepath.Base(filepath.Dir(p.log))+"/"+
		filepath.Base(p.log), tail(string(data), 15))
}
