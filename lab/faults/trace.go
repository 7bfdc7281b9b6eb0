package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileCalls are the system calls on files. All other system calls are made by the Go runtime, which aborts if they
// fail: futex, mmap, clone, epoll, signals, clocks, getrandom, exit.
var fileCalls = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_OPEN: "open", unix.SYS_CLOSE: "close", unix.SYS_FCNTL: "fcntl",
	unix.SYS_DUP: "dup", unix.SYS_READ: "read", unix.SYS_PREAD64: "pread64", unix.SYS_WRITE: "write",
	unix.SYS_PWRITE64: "pwrite64", unix.SYS_LSEEK: "lseek", unix.SYS_COPY_FILE_RANGE: "copy_file_range",
	unix.SYS_SENDFILE: "sendfile", unix.SYS_SPLICE: "splice", unix.SYS_IOCTL: "ioctl", unix.SYS_STAT: "stat",
	unix.SYS_LSTAT: "lstat", unix.SYS_FSTAT: "fstat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STATX: "statx",
	unix.SYS_STATFS: "statfs", unix.SYS_FSTATFS: "fstatfs", unix.SYS_READLINK: "readlink",
	unix.SYS_READLINKAT: "readlinkat", unix.SYS_GETDENTS64: "getdents64", unix.SYS_ACCESS: "access",
	unix.SYS_FACCESSAT: "faccessat", unix.SYS_FACCESSAT2: "faccessat2", unix.SYS_FTRUNCATE: "ftruncate",
	unix.SYS_FALLOCATE: "fallocate", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_SYNC_FILE_RANGE: "sync_file_range", unix.SYS_SYNCFS: "syncfs", unix.SYS_LINKAT: "linkat",
	unix.SYS_LINK: "link", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_UNLINK: "unlink", unix.SYS_MKDIRAT: "mkdirat",
	unix.SYS_RENAME: "rename", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHMODAT: "fchmodat",
	unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_LLISTXATTR: "llistxattr",
	unix.SYS_LGETXATTR: "lgetxattr", unix.SYS_FGETXATTR: "fgetxattr",
	unix.SYS_FSETXATTR: "fsetxattr", unix.SYS_FREMOVEXATTR: "fremovexattr", unix.SYS_UTIMENSAT: "utimensat",
}

// modifyingCalls lists the system calls that modify a file system.
var modifyingCalls = []string{
	"write", "pwrite64", "copy_file_range", "ioctl", "ftruncate", "fallocate", "fsync", "linkat", "link", "unlinkat",
	"unlink", "rename", "renameat", "renameat2", "fchmod", "fchmodat", "fchown", "fchownat", "fsetxattr",
	"fremovexattr", "mkdirat",
}

// A call is a system call, before or after the kernel executes it.
type call struct {
	name string
	args [6]uint64
	tid  int
	ret  int64 // after it
}

// text returns the string that an argument points to.
func (c *call) text(arg int) string {
	b := make([]byte, 256)
	n, _ := syscall.PtracePeekData(c.tid, uintptr(c.args[arg]), b) // reads fewer bytes at the end of mapped memory
	s, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(s)
}

func (c *call) String() string {
	s := c.name
	switch c.name {
	case "openat", "newfstatat", "unlinkat", "readlinkat":
		s += fmt.Sprintf("(%q)", c.text(1))
	case "linkat", "renameat", "renameat2":
		s += fmt.Sprintf("(%q, %q)", c.text(1), c.text(3))
	}
	return s
}

// An action is what to do at a system call.
type action struct {
	fail  syscall.Errno // skip it, and return this error
	short bool          // process half of the bytes
	empty bool          // process no bytes
	// signals are sent to the program before the call; SIGKILL ends it there.
	signals []syscall.Signal
}

// An outcome is the result of a run.
type outcome struct {
	status         syscall.WaitStatus
	stdout, stderr string
}

// timeout ends a run that hangs.
const timeout = 10 * time.Minute

// trace runs cfi2sframe in a directory. It calls one callback (before) to get the action for each system call on files,
// and another (after) when the call has returned. Both may be nil.
func (h *harness) trace(s *scenario, dir string, before func(*call) action, after func(*call)) (*outcome, error) {
	runtime.LockOSThread() // ptrace works per thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command(h.tool, strings.Fields(s.args)...)
	cmd.Args[0] = "cfi2sframe"
	cmd.Dir = dir
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "GO") })
	cmd.Env = append(env, "TMPDIR="+dir, "LC_ALL=C", "GOMAXPROCS=1") // for reproducible runs
	stdout, err1 := os.Create(filepath.Join(h.dir, "stdout"))
	stderr, err2 := os.Create(filepath.Join(h.dir, "stderr"))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	defer stdout.Close()
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if s.stdin != "" {
		in, err := os.Open(filepath.Join(dir, s.stdin))
		if err != nil {
			return nil, err
		}
		defer in.Close()
		cmd.Stdin = in
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot trace cfi2sframe: %w", err)
	}
	pid := cmd.Process.Pid
	late := time.AfterFunc(timeout, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	defer late.Stop()
	t := &tracer{
		pid: pid, before: before, after: after,
		current: make(map[int]*call), failed: make(map[int]syscall.Errno), known: make(map[int]bool),
	}
	status, err := t.follow()
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return nil, err
	}
	out, err1 := os.ReadFile(stdout.Name())
	errs, err2 := os.ReadFile(stderr.Name())
	return &outcome{status: status, stdout: string(out), stderr: string(errs)}, errors.Join(err1, err2)
}

// A tracer follows all threads of a program.
type tracer struct {
	pid     int
	before  func(*call) action
	after   func(*call)
	current map[int]*call // by thread
	failed  map[int]syscall.Errno
	known   map[int]bool // threads that have started
	begun   bool         // the program has accessed a file outside of /sys and /proc
	killed  bool
}

const traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL

// follow lets the program run to its end.
func (t *tracer) follow() (syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	for started := false; ; {
		tid, err := syscall.Wait4(-t.pid, &status, unix.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return status, fmt.Errorf("wait: %w", err)
		}
		switch {
		case status.Exited() || status.Signaled():
			if tid == t.pid {
				return status, nil
			}
			continue
		case !status.Stopped():
			continue
		}
		signal := 0
		switch s := status.StopSignal(); {
		case !started:
			started = true
			t.known[tid] = true
			if err := syscall.PtraceSetOptions(tid, traceOptions); err != nil {
				return status, fmt.Errorf("ptrace: %w", err)
			}
		case s == syscall.SIGTRAP|0x80:
			if err := t.stop(tid); err != nil && err != syscall.ESRCH {
				return status, err
			}
		case s == syscall.SIGTRAP && status.TrapCause() > 0: // a thread starts
		case s == syscall.SIGSTOP && !t.known[tid]: // that thread
			t.known[tid] = true
		default:
			signal = int(s)
		}
		if err := syscall.PtraceSyscall(tid, signal); err != nil && err != syscall.ESRCH {
			return status, fmt.Errorf("ptrace: %w", err)
		}
	}
}

// A syscallInfo is the struct ptrace_syscall_info of the kernel.
type syscallInfo struct {
	op    uint8
	_     [3]uint8
	arch  uint32
	ip    uint64
	sp    uint64
	first uint64 // the call's number on entry, its result on exit
	args  [6]uint64
	_     [2]uint64
}

// stop is called on entry to and exit from a system call.
func (t *tracer) stop(tid int) error {
	var info syscallInfo
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return errno
	}
	if info.op == unix.PTRACE_SYSCALL_INFO_ENTRY {
		c := &call{name: fileCalls[info.first], args: info.args, tid: tid}
		if c.name == "" || t.killed || t.internal(c) {
			return nil
		}
		t.current[tid] = c
		if t.before == nil {
			return nil
		}
		return t.act(tid, t.before(c))
	}
	c := t.current[tid]
	delete(t.current, tid)
	if c == nil || t.killed {
		return nil
	}
	c.ret = int64(info.first)
	if errno := t.failed[tid]; errno != 0 {
		delete(t.failed, tid)
		c.ret = -int64(errno)
		if err := change(tid, func(regs *syscall.PtraceRegs) { regs.Rax = uint64(c.ret) }); err != nil {
			return err
		}
	}
	if t.after != nil {
		t.after(c)
	}
	return nil
}

// change changes the registers of a thread.
func change(tid int, fn func(*syscall.PtraceRegs)) error {
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	fn(&regs)
	return syscall.PtraceSetRegs(tid, &regs)
}

// act takes an action before a system call.
func (t *tracer) act(tid int, a action) error {
	switch {
	case len(a.signals) > 0:
		t.killed = a.signals[0] == syscall.SIGKILL
		for _, sig := range a.signals {
			if err := syscall.Kill(t.pid, sig); err != nil {
				return err
			}
		}
	case a.short:
		return change(tid, func(regs *syscall.PtraceRegs) { regs.Rdx = max(1, regs.Rdx/2) })
	case a.empty:
		return change(tid, func(regs *syscall.PtraceRegs) { regs.Rdx = 0 })
	case a.fail != 0:
		t.failed[tid] = a.fail
		return change(tid, func(regs *syscall.PtraceRegs) { regs.Orig_rax = ^uint64(0) }) // skip the system call
	}
	return nil
}

// internal reports whether a call comes from the Go runtime. At startup, before main calls signal.Notify, the runtime
// reads resource limits and the flags of the standard file descriptors; a signal that arrives during signal.Notify can
// end the program with SIGSEGV (go.dev/issue/20748). Later, its threads wake each other through anonymous inodes.
func (t *tracer) internal(c *call) bool {
	switch c.name {
	case "openat", "newfstatat":
		path := c.text(1)
		t.begun = t.begun || !strings.HasPrefix(path, "/sys/") && !strings.HasPrefix(path, "/proc/")
	case "fcntl", "read", "write", "close":
		return !t.begun || t.anonymous(c.args[0])
	}
	return !t.begun
}

func (t *tracer) anonymous(fd uint64) bool {
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, fd))
	return err == nil && strings.HasPrefix(to, "anon_inode:")
}
