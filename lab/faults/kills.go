package faults

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// largeScenarios have files that take some time. The first ones are those of power failures.
var largeScenarios = []*scenario{
	{name: "in place", make: "cp mlarge p; chmod 750 p", args: "-q --in-place p"},
	{name: "existing output", make: "echo old >out; chmod 640 out", args: "-q mlarge -o out"},
	{name: "three files, two names of one", make: "cp mlarge p; ln p q; cp mgaps r; cp marchive s",
		args: "-q --in-place p q r s"},
	{name: "report file", make: "cp mgaps p; echo old >report",
		args: "--report html --report-file report --in-place p"},
	{name: "new output", args: "-q mlarge -o out"},
	{name: "archive", make: "cp marchive p", args: "-q --in-place p"},
	{name: "pipe", make: "mkfifo mpipe", args: "-q mprog -o mpipe", endless: true},
}

// killSignals end a run.
type killSignals struct {
	name    string
	signals []syscall.Signal
	clean   bool // cfi2sframe can remove temporary names
}

// signals are the ways to end a run. A second signal must not wait for what the first one began.
var signals = []killSignals{
	{"SIGKILL", []syscall.Signal{syscall.SIGKILL}, false},
	{"SIGINT", []syscall.Signal{syscall.SIGINT}, true},
	{"SIGINT twice", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, true},
	{"SIGTERM and SIGHUP", []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}, true},
	{"SIGPIPE", []syscall.Signal{syscall.SIGPIPE}, true},
}

// maxLeft is how many of a thousand kills may leave a second name: those between two system calls.
const maxLeft = 20

// kills ends runs at random times. Nothing traces them, and so they run at full speed.
func (h *harness) kills() error {
	each := 60
	if h.quick {
		each = 12
	}
	if err := h.prepare(largeScenarios); err != nil {
		return err
	}
	killed, left := 0, 0
	for _, s := range largeScenarios {
		took, err := h.time(s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for i := range signals {
			n := each
			if signals[i].clean { // most of them are
				n /= 3
			}
			for range n {
				k, l, err := h.kill(s, &signals[i], took)
				if err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
				killed, left = killed+k, left+l
			}
		}
	}
	fmt.Printf("%d runs killed at random times; %d left a second name\n", killed, left)
	if left*1000 > killed*maxLeft+2000 {
		h.failures++
		h.tell(fmt.Sprintf("%d of %d kills left a second name, more than %d of a thousand", left, killed, maxLeft))
	}
	return nil
}

// time measures a run of the scenario.
func (h *harness) time(s *scenario) (time.Duration, error) {
	if s.endless {
		return 20 * time.Millisecond, nil
	}
	var took time.Duration
	for range 3 {
		dir, err := h.copy(s)
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(dir)
		start := time.Now()
		if out, err := h.command(s, dir).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, out)
		}
		took = max(took, time.Since(start))
	}
	return took, nil
}

// kill ends a run. It returns 1 if SIGKILL did that, and how many second names are left.
func (h *harness) kill(s *scenario, how *killSignals, took time.Duration) (killed, left int, err error) {
	dir, err := h.copy(s)
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	var stderr bytes.Buffer
	cmd := h.command(s, dir)
	cmd.Stderr = &stderr
	for _, sig := range how.signals {
		if signal.Ignored(sig) { // as by nohup; children inherit that, unless the signal is caught here
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	delay := rand.N(took + took/10)
	time.Sleep(delay)
	for _, sig := range how.signals {
		_ = cmd.Process.Signal(sig) // it may have ended
		time.Sleep(rand.N(time.Millisecond))
	}
	var exit *exec.ExitError
	if err := s.await(cmd, how.signals); err != nil && !errors.As(err, &exit) {
		return 0, 0, err
	}
	h.runs++
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() && status.Signal() == syscall.SIGKILL {
		killed = 1
	}
	now, err := snapshot(dir)
	if err != nil {
		return 0, 0, err
	}
	left, err = s.allWhole(now, !how.clean)
	if err == nil && status.Exited() {
		err = s.honest(&outcome{status: status, stderr: stderr.String(), signals: how.signals}, now)
	}
	if err != nil {
		h.fail(s, fmt.Sprintf("%s after %v: %v", how.name, delay, status), err)
	}
	return killed, left, nil
}

// await waits for the end of a run that got signals. Two signals at once may arrive as one, so the second one is sent
// again; an endless run is killed.
func (s *scenario) await(cmd *exec.Cmd, sent []syscall.Signal) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 100 {
		select {
		case err := <-ended:
			return err
		case <-time.After(50 * time.Millisecond):
			switch {
			case len(sent) > 1:
				_ = cmd.Process.Signal(sent[1])
			case s.endless:
				_ = cmd.Process.Kill()
			}
		}
	}
	_ = cmd.Process.Kill()
	return fmt.Errorf("it did not end within 5 s and was killed: %v", <-ended)
}
