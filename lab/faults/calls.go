package faults

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A fault is an action that is injected into matching system calls: one call per run, until all are covered.
type fault struct {
	name string
	action
	calls    []string // nil: all
	only     func(*call) bool
	harmless bool // the run must have the same result as without the fault
}

var faults = []fault{
	{name: "EIO", action: action{fail: unix.EIO}},
	{name: "ENOSPC", action: action{fail: unix.ENOSPC}, calls: []string{
		"openat", "write", "pwrite64", "copy_file_range", "ftruncate", "fsync", "close", "linkat", "renameat",
		"fsetxattr",
	}},
	{name: "EPERM", action: action{fail: unix.EPERM}, calls: []string{
		"openat", "linkat", "renameat", "unlinkat", "fchmod", "fchown", "fsetxattr", "fgetxattr",
		"lgetxattr", "llistxattr",
	}},
	{name: "EMFILE", action: action{fail: unix.EMFILE}, calls: []string{"openat", "fcntl"}},
	{name: "EINTR", action: action{fail: unix.EINTR}, harmless: true, calls: []string{"openat", "read", "pread64",
		"write", "pwrite64", "copy_file_range", "ftruncate", "fsync", "close", "fstat", "newfstatat", "lseek", "linkat",
		"renameat", "unlinkat", "readlinkat", "fchmod", "fchown", "fsetxattr", "fgetxattr", "lgetxattr", "llistxattr",
	}, only: func(c *call) bool { return c.name != "lseek" || isHoleSearch(c) }}, // lseek transfers no data
	{name: "half of the bytes", action: action{short: true}, harmless: true,
		calls: []string{"read", "pread64", "write", "pwrite64"}},
	{name: "end of file", action: action{empty: true}, calls: []string{"pread64"}},
	{name: "no O_TMPFILE", action: action{fail: unix.EOPNOTSUPP}, harmless: true, calls: []string{"openat"},
		only: func(c *call) bool { return c.args[2]&unix.O_TMPFILE == unix.O_TMPFILE }},
	{name: "no holes", action: action{fail: unix.EINVAL}, harmless: true, calls: []string{"lseek"}, only: isHoleSearch},
	{name: "no copying in the kernel", action: action{fail: unix.EXDEV}, harmless: true,
		calls: []string{"copy_file_range"}},
	{name: "SIGINT", action: action{signals: []syscall.Signal{syscall.SIGINT}}},
	// The second signal must not wait for the handler of the first.
	{name: "SIGTERM and SIGHUP", action: action{signals: []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}}},
}

// isHoleSearch reports whether a call searches for holes.
func isHoleSearch(c *call) bool { return c.args[2] == unix.SEEK_DATA || c.args[2] == unix.SEEK_HOLE }

// appliesTo reports whether a fault can occur at a call.
func (f *fault) appliesTo(c *call) bool {
	return (f.calls == nil || slices.Contains(f.calls, c.name)) && (f.only == nil || f.only(c))
}

// failCalls makes each system call fail, and interrupts and kills cfi2sframe at each of them.
func (h *harness) failCalls() error {
	list := scenarios
	if h.quick {
		list = []*scenario{named("existing output"), named("report file")}
	}
	if err := h.prepare(list); err != nil {
		return err
	}
	for _, s := range list {
		runs := h.runs
		for i := range faults {
			if err := h.failEach(s, &faults[i]); err != nil {
				return err
			}
		}
		failed := h.runs - runs
		kills, left, err := h.killEach(s)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d faults at system calls; killed at %d; %d of the kills leave a second name\n",
			s.name, failed, kills, left)
	}
	return nil
}

// runWithFault runs cfi2sframe with a fault at the nth matching call, and returns that call as text, or "" for none.
func (h *harness) runWithFault(s *scenario, nth int, f *fault, after func(*call)) (
	hit string, out *outcome, now map[string]string, err error,
) {
	out, now, err = h.run(s, func(c *call) action {
		if !f.appliesTo(c) {
			return action{}
		}
		if nth--; nth != -1 {
			return action{}
		}
		hit = c.String()
		return f.action
	}, after)
	return hit, out, now, err
}

// failEach runs the scenario once for each of its system calls, with the fault at that call.
func (h *harness) failEach(s *scenario, f *fault) error {
	for nth := 0; ; nth++ {
		hit, out, now, err := h.runWithFault(s, nth, f, nil)
		if err != nil || hit == "" {
			return err
		}
		h.runs++
		if err := s.judge(f, out, now); err != nil {
			h.fail(s, fmt.Sprintf("%s at %s (call %d)", f.name, hit, nth), err)
		}
	}
}

// killEach kills cfi2sframe at each system call on files. It returns the numbers of kills and of leftover names.
func (h *harness) killEach(s *scenario) (kills, left int, err error) {
	kill := &fault{action: action{signals: []syscall.Signal{syscall.SIGKILL}}}
	for nth := 0; ; nth++ {
		second := false // a file has a second name
		hit, out, now, err := h.runWithFault(s, nth, kill, func(c *call) {
			temporary := func(arg int) bool { return strings.HasPrefix(c.text(arg), prefix) }
			switch {
			case c.ret < 0:
			case c.name == "linkat" && temporary(3), c.name == "openat" && temporary(1):
				second = true
			case c.name == "unlinkat" && temporary(1), c.name == "renameat" && temporary(1):
				second = false
			}
		})
		if err != nil {
			return 0, 0, err
		}
		if hit == "" {
			return nth, left, nil
		}
		h.runs++
		if out.status.Signal() != syscall.SIGKILL {
			return 0, 0, fmt.Errorf("%s: status %v after SIGKILL", s.name, out.status)
		}
		names, err := s.checkFiles(now)
		if err == nil && len(names) > 0 && !second {
			err = fmt.Errorf("%s remains", names[0])
		}
		if err != nil {
			h.fail(s, fmt.Sprintf("killed before %s (call %d)", hit, nth), err)
		}
		left += len(names)
	}
}
