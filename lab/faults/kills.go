package faults

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// killScenes are those of which runs are killed at moments that nobody chooses. The tool is alone
// then: no tracer slows it down.
var killScenes = []*scene{
	{name: "in place", make: "cp mlarge p", args: "-q --in-place p"},
	{name: "existing output", make: "cp mlarge out", args: "-q mlarge -o out"},
	{name: "new output", args: "-q mlarge -o out"},
	{name: "three files", make: "cp mlarge p; cp mprog q; cp mgaps r", args: "--in-place p q r"},
	{name: "archive", make: "cp marchive p", args: "-q --in-place p"},
	{name: "pipe", make: "mkfifo mpipe", args: "-q mprog -o mpipe", endless: true},
}

// killSignals are a way to end a run.
type killSignals struct {
	name    string
	signals []syscall.Signal
	clean   bool // the tool can remove what is left
}

// signals are the ways to end a run. With a second one it must not wait for what the first one began.
var signals = []killSignals{
	{"SIGKILL", []syscall.Signal{syscall.SIGKILL}, false},
	{"SIGINT", []syscall.Signal{syscall.SIGINT}, true},
	{"SIGINT twice", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, true},
	{"SIGTERM and SIGHUP", []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}, true},
	{"SIGPIPE", []syscall.Signal{syscall.SIGPIPE}, true},
}

// kills ends runs at random moments, so many for each scene and way, and returns how many of those by
// SIGKILL left a second name.
func kills(tool, dir string, each int, n *counter) (killed, left int, err error) {
	if err := makeScenes(tool, dir, killScenes); err != nil {
		return 0, 0, err
	}
	for _, s := range killScenes {
		took, err := s.time(tool, dir)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", s.name, err)
		}
		for k := range signals {
			for i := range each {
				if i%3 > 0 && signals[k].clean { // there are many of these
					continue
				}
				k, l, err := s.kill(tool, dir, k, took, n)
				if err != nil {
					return 0, 0, fmt.Errorf("%s: %w", s.name, err)
				}
				killed, left = killed+k, left+l
			}
		}
	}
	return killed, left, nil
}

// time finds out how long the tool takes for the scene.
func (s *scene) time(tool, dir string) (time.Duration, error) {
	if s.endless {
		return 20 * time.Millisecond, nil
	}
	var took time.Duration
	for range 3 {
		place, err := s.copy(dir)
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(place)
		start := time.Now()
		cmd, stderr := s.command(tool, place)
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, stderr)
		}
		took = max(took, time.Since(start))
	}
	return took, nil
}

// command makes the command of the scene, and where it says what is wrong.
func (s *scene) command(tool, place string) (*exec.Cmd, *bytes.Buffer) {
	var stderr bytes.Buffer
	cmd := exec.Command(tool, strings.Fields(s.args)...)
	cmd.Args[0] = "cfi2sframe"
	cmd.Dir, cmd.Stderr = place, &stderr
	cmd.Env = append(os.Environ(), "TMPDIR="+place)
	return cmd, &stderr
}

// kill ends one run. It returns whether that was by the signal, and how many second names are left.
func (s *scene) kill(tool, dir string, way int, took time.Duration, n *counter) (killed, left int, err error) {
	place, err := s.copy(dir)
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(place)
	cmd, stderr := s.command(tool, place)
	how := &signals[way]
	for _, sig := range how.signals {
		if signal.Ignored(sig) { // as by nohup; the tool inherits that, but not that this program catches it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	delay := time.Duration(rand.Int64N(int64(took + took/10)))
	time.Sleep(delay)
	for _, sig := range how.signals {
		_ = cmd.Process.Signal(sig) // it may have ended
		time.Sleep(time.Duration(rand.Int64N(int64(time.Millisecond))))
	}
	err = s.await(cmd, how.signals)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, 0, err
	}
	n.runs++
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() && status.Signal() == syscall.SIGKILL {
		killed = 1
	}
	now, err := snapshot(place)
	if err != nil {
		return 0, 0, err
	}
	err = s.whole(now, func(name string) bool {
		ok := strings.HasPrefix(name, prefix) && !how.clean
		if ok {
			left++
		}
		return ok
	})
	if err == nil && status.Exited() {
		err = s.honest(&outcome{status: status, stderr: stderr.String(), signals: how.signals}, now)
	}
	if err != nil {
		n.fail(&finding{s.name, fmt.Sprintf("%s after %v: %v", how.name, delay, status), err.Error()})
	}
	return killed, left, nil
}

// await waits for the end of a run that got signals. Two that come at once may be one to it, and a
// run that waits for a pipe waits for the second one, or for ever.
func (s *scene) await(cmd *exec.Cmd, got []syscall.Signal) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 100 {
		select {
		case err := <-ended:
			return err
		case <-time.After(50 * time.Millisecond):
			switch {
			case len(got) > 1:
				_ = cmd.Process.Signal(got[1])
			case s.endless:
				_ = cmd.Process.Kill()
			}
		}
	}
	_ = cmd.Process.Kill()
	return fmt.Errorf("it does not end; it was killed: %v", <-ended)
}
