package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What is done to a system call. Each is done to every call that it can be done to, one in a run.
type fault struct {
	name  string
	deed  deed
	calls []string // nil: all
	only  func(*call) bool
	// harmless: the tool copes with it, and the result is the same.
	harmless bool
}

var faults = []fault{
	{name: "EIO", deed: deed{fail: unix.EIO}},
	{name: "ENOSPC", deed: deed{fail: unix.ENOSPC}, calls: []string{
		"openat", "write", "pwrite64", "copy_file_range", "ftruncate", "fsync", "close", "linkat", "renameat2", "fsetxattr",
	}},
	{name: "EPERM", deed: deed{fail: unix.EPERM}, calls: []string{
		"openat", "linkat", "renameat2", "renameat", "unlinkat", "fchmod", "fchown", "fsetxattr", "fgetxattr", "lgetxattr", "llistxattr",
	}},
	{name: "EMFILE", deed: deed{fail: unix.EMFILE}, calls: []string{"openat", "fcntl"}},
	{name: "EINTR", deed: deed{fail: unix.EINTR}, harmless: true, calls: []string{
		"openat", "read", "pread64", "write", "pwrite64", "copy_file_range", "ftruncate", "fsync", "close",
		"fstat", "newfstatat", "lseek", "linkat", "renameat2", "unlinkat", "readlinkat", "fchmod", "fchown", "fsetxattr", "fgetxattr", "lgetxattr", "llistxattr",
	}, only: func(c *call) bool { return c.name != "lseek" || holes(c) }}, // to set a position asks no file system
	{name: "half of the bytes", deed: deed{short: true}, harmless: true, calls: []string{"read", "pread64", "write", "pwrite64"}},
	{name: "end of file", deed: deed{empty: true}, calls: []string{"pread64"}},
	{name: "no files without names", deed: deed{fail: unix.EOPNOTSUPP}, harmless: true, calls: []string{"openat"}, only: unnamed},
	{name: "no exchange", deed: deed{fail: unix.EINVAL}, harmless: true, calls: []string{"renameat2"}},
	{name: "no holes", deed: deed{fail: unix.EINVAL}, harmless: true, calls: []string{"lseek"}, only: holes},
	{name: "no copying in the kernel", deed: deed{fail: unix.EXDEV}, harmless: true, calls: []string{"copy_file_range"}},
}

// unnamed reports whether a call opens a file without a name.
func unnamed(c *call) bool { return c.args[2]&unix.O_TMPFILE == unix.O_TMPFILE }

// holes reports whether a call looks for holes.
func holes(c *call) bool { return c.args[2] == unix.SEEK_DATA || c.args[2] == unix.SEEK_HOLE }

// fits reports whether a fault can be done to a call.
func (f *fault) fits(c *call) bool {
	return (f.calls == nil || slices.Contains(f.calls, c.name)) && (f.only == nil || f.only(c))
}

// A counter tells how far things are.
type counter struct {
	runs, failures int
	tell           func(error)
}

// fail counts a failure.
func (n *counter) fail(err error) {
	n.failures++
	n.tell(err)
}

// each has every system call of the scene fail once, in the given way.
func (s *scene) each(tool, dir string, f *fault, n *counter) error {
	for nth := 0; ; nth++ {
		left, hit := nth, ""
		out, now, err := s.run(tool, dir, func(c *call) deed {
			if !f.fits(c) {
				return deed{}
			}
			if left--; left != -1 {
				return deed{}
			}
			hit = c.String()
			return f.deed
		}, ignore)
		if err != nil {
			return err
		}
		if hit == "" {
			return nil
		}
		n.runs++
		if err := s.judge(f, out, now); err != nil {
			n.fail(&finding{s.name, fmt.Sprintf("%s at %s (call %d)", f.name, hit, nth), err.Error()})
		}
	}
}

// judge looks at what a run with a fault has done.
func (s *scene) judge(f *fault, out *outcome, now map[string]string) error {
	allowed := nothing
	if out.status.Exited() && strings.Contains(out.stderr, prefix) {
		// What could not be removed has to be named, and then it is no secret.
		allowed = func(name string) bool { return strings.HasPrefix(name, prefix) && strings.Contains(out.stderr, name) }
	}
	if err := s.whole(now, allowed); err != nil {
		return err
	}
	if err := s.honest(out, now); err != nil {
		return err
	}
	if f.harmless && (out.status.ExitStatus() != 0 || !maps.Equal(now, s.after)) {
		return fmt.Errorf("status %d, and stderr %q", out.status.ExitStatus(), out.stderr)
	}
	return nil
}

// prefix begins the temporary names.
const prefix = ".cfi2sframe-"

// window follows the calls of a run, and knows when a file has a second name.
type window struct{ open bool }

// after looks at a call that was made.
func (w *window) after(c *call) {
	if c.ret < 0 {
		return
	}
	switch {
	case c.name == "linkat" && strings.HasPrefix(c.text(3), prefix), c.name == "openat" && strings.HasPrefix(c.text(1), prefix):
		w.open = true
	case c.name == "unlinkat" && strings.HasPrefix(c.text(1), prefix), strings.HasPrefix(c.name, "renameat") && strings.HasPrefix(c.text(1), prefix) && c.args[4]&unix.RENAME_EXCHANGE == 0:
		w.open = false
	}
}

// eachKill kills the tool at every system call of the scene that has to do with files. It returns how
// many of these moments are such that a second name is left.
func (s *scene) eachKill(tool, dir string, n *counter) (moments, left int, err error) {
	for nth := 0; ; nth++ {
		todo, hit := nth, ""
		w := &window{}
		out, now, err := s.run(tool, dir, func(c *call) deed {
			if todo--; todo != -1 {
				return deed{}
			}
			hit = c.String()
			return deed{kill: true}
		}, w.after)
		if err != nil {
			return 0, 0, err
		}
		if hit == "" {
			return nth, left, nil
		}
		n.runs++
		second := 0
		allowed := func(name string) bool {
			ok := strings.HasPrefix(name, prefix) && w.open
			if ok {
				second++
			}
			return ok
		}
		if out.status.Signal() != syscall.SIGKILL {
			return 0, 0, fmt.Errorf("%s: it ended with %v, and not by the signal", s.name, out.status)
		}
		if err := s.whole(now, allowed); err != nil {
			n.fail(&finding{s.name, fmt.Sprintf("killed before %s (call %d)", hit, nth), err.Error()})
		}
		left += second
	}
}
