package faults

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// files are the system calls that have to do with files, by their numbers. The others are those of
// the Go runtime (memory, threads, signals, time), which stand and fall with it: futex, mmap and
// its like, clone, epoll, signals, sched and clock calls, getrandom, exit.
var files = map[uint64]string{
	unix.SYS_OPENAT: "openat", unix.SYS_OPEN: "open", unix.SYS_CLOSE: "close", unix.SYS_FCNTL: "fcntl", unix.SYS_DUP: "dup",
	unix.SYS_READ: "read", unix.SYS_PREAD64: "pread64", unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_LSEEK: "lseek",
	unix.SYS_COPY_FILE_RANGE: "copy_file_range", unix.SYS_SENDFILE: "sendfile", unix.SYS_SPLICE: "splice", unix.SYS_IOCTL: "ioctl",
	unix.SYS_STAT: "stat", unix.SYS_LSTAT: "lstat", unix.SYS_FSTAT: "fstat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STATX: "statx",
	unix.SYS_STATFS: "statfs", unix.SYS_FSTATFS: "fstatfs", unix.SYS_READLINK: "readlink", unix.SYS_READLINKAT: "readlinkat", unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_ACCESS: "access", unix.SYS_FACCESSAT: "faccessat", unix.SYS_FACCESSAT2: "faccessat2",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_FALLOCATE: "fallocate", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_SYNC_FILE_RANGE: "sync_file_range", unix.SYS_SYNCFS: "syncfs",
	unix.SYS_LINKAT: "linkat", unix.SYS_LINK: "link", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_UNLINK: "unlink", unix.SYS_MKDIRAT: "mkdirat",
	unix.SYS_RENAME: "rename", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_SYMLINKAT: "symlinkat",
	unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHMODAT: "fchmodat", unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat",
	unix.SYS_LLISTXATTR: "llistxattr", unix.SYS_LGETXATTR: "lgetxattr", unix.SYS_FGETXATTR: "fgetxattr",
	unix.SYS_FSETXATTR: "fsetxattr", unix.SYS_FREMOVEXATTR: "fremovexattr", unix.SYS_UTIMENSAT: "utimensat",
}

// changing are those that change a file system.
var changing = []string{
	"write", "pwrite64", "copy_file_range", "ioctl", "ftruncate", "fallocate", "fsync", "linkat", "link", "unlinkat", "unlink",
	"rename", "renameat", "renameat2", "fchmod", "fchmodat", "fchown", "fchownat", "fsetxattr", "fremovexattr", "mkdirat",
}

// A call is a system call that a program is about to make, or has made.
type call struct {
	name string
	args [6]uint64
	pid  int
	ret  int64 // of one that was made
}

// text returns the string that an argument points to.
func (c *call) text(arg int) string {
	b := make([]byte, 256)
	n, err := unix.ProcessVMReadv(c.pid, []unix.Iovec{iovec(b)}, []unix.RemoteIovec{{Base: uintptr(c.args[arg]), Len: len(b)}}, 0)
	if err != nil {
		// The page after it may not be there.
		n = 0
		for n < len(b) {
			if k, err := unix.ProcessVMReadv(c.pid, []unix.Iovec{iovec(b[n : n+1])}, []unix.RemoteIovec{{Base: uintptr(c.args[arg]) + uintptr(n), Len: 1}}, 0); err != nil || k == 0 || b[n] == 0 {
				break
			}
			n++
		}
	}
	s, _, _ := bytes.Cut(b[:n], []byte{0})
	return string(s)
}

func iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: &b[0]}
	v.SetLen(len(b))
	return v
}

// String is for messages.
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

// A deed is what is done to a program at a system call.
type deed struct {
	fail  syscall.Errno // it is not made, and fails
	short bool          // it is made for half of the bytes
	empty bool          // it is made for no bytes
	kill  bool
}

// A program is what is run, and how.
type program struct {
	path  string
	args  []string
	dir   string
	stdin string // a file, or "" for none
}

// An outcome is how a program ended.
type outcome struct {
	status         syscall.WaitStatus
	stdout, stderr string
	signals        []syscall.Signal // that it got
}

// tooLong is how long a program may take.
const tooLong = 60 * time.Second

// run runs a program, and asks what to do before each of its system calls that have to do with files,
// and tells of each afterwards.
func (p *program) run(before func(*call) deed, after func(*call)) (*outcome, error) {
	runtime.LockOSThread() // ptrace knows its tracer by the thread
	defer runtime.UnlockOSThread()
	stdout, err := os.CreateTemp("", "stdout")
	if err != nil {
		return nil, err
	}
	defer remove(stdout)
	stderr, err := os.CreateTemp("", "stderr")
	if err != nil {
		return nil, err
	}
	defer remove(stderr)
	cmd := exec.Command(p.path, p.args...)
	cmd.Args[0] = "cfi2sframe"
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, stdout, stderr
	cmd.Env = p.environment()
	if p.stdin != "" {
		in, err := os.Open(p.stdin)
		if err != nil {
			return nil, err
		}
		defer in.Close()
		cmd.Stdin = in
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("it cannot be traced: %w", err)
	}
	pid := cmd.Process.Pid
	late := time.AfterFunc(tooLong, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	defer late.Stop()
	t := &tracer{pid: pid, before: before, after: after, made: make(map[int]*call), known: make(map[int]bool)}
	status, err := t.follow()
	if err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return nil, err
	}
	out, err1 := os.ReadFile(stdout.Name())
	errs, err2 := os.ReadFile(stderr.Name())
	return &outcome{status: status, stdout: string(out), stderr: string(errs)}, errors.Join(err1, err2)
}

func remove(f *os.File) {
	f.Close()
	os.Remove(f.Name())
}

// environment makes runs alike.
func (p *program) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GO") || strings.HasPrefix(s, "TMPDIR=") })
	return append(env, "GOMAXPROCS=1", "TMPDIR="+p.dir, "LC_ALL=C")
}

// A tracer follows all threads of a program.
type tracer struct {
	pid    int
	before func(*call) deed
	after  func(*call)
	made   map[int]*call // by thread, that it is in
	failed map[int]syscall.Errno
	known  map[int]bool // threads that have begun
	killed bool
}

const (
	allChildren  = unix.WALL
	traceOptions = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
)

// follow lets the program run to its end.
func (t *tracer) follow() (syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	t.failed = make(map[int]syscall.Errno)
	for started := false; ; {
		tid, err := syscall.Wait4(-t.pid, &status, allChildren, nil)
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
		case s == syscall.SIGTRAP && status.TrapCause() > 0: // a thread begins
		case s == syscall.SIGSTOP && !t.known[tid]: // this one
			t.known[tid] = true
		default:
			signal = int(s)
		}
		if err := syscall.PtraceSyscall(tid, signal); err != nil && err != syscall.ESRCH {
			return status, fmt.Errorf("ptrace: %w", err)
		}
	}
}

// A syscallInfo is what the kernel says of a stop (struct ptrace_syscall_info).
type syscallInfo struct {
	op    uint8
	_     [3]uint8
	arch  uint32
	ip    uint64
	sp    uint64
	first uint64 // the number, or the result
	args  [6]uint64
	_     [2]uint64
}

// stop is called at the begin and at the end of a system call.
func (t *tracer) stop(tid int) error {
	var info syscallInfo
	if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
		return errno
	}
	if info.op == unix.PTRACE_SYSCALL_INFO_ENTRY {
		name, ok := files[info.first]
		if !ok || t.killed {
			return nil
		}
		c := &call{name: name, args: info.args, pid: t.pid}
		if t.internal(c) {
			return nil
		}
		t.made[tid] = c
		return t.do(tid, c, t.before(c))
	}
	c := t.made[tid]
	delete(t.made, tid)
	if c == nil || t.killed {
		return nil
	}
	c.ret = int64(info.first)
	if errno := t.failed[tid]; errno != 0 {
		delete(t.failed, tid)
		var regs syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
			return err
		}
		c.ret = -int64(errno)
		regs.Rax = uint64(c.ret)
		if err := syscall.PtraceSetRegs(tid, &regs); err != nil {
			return err
		}
	}
	t.after(c)
	return nil
}

// do does something to a call that is about to be made.
func (t *tracer) do(tid int, c *call, d deed) error {
	if d.kill {
		t.killed = true
		return syscall.Kill(t.pid, syscall.SIGKILL)
	}
	if d.fail == 0 && !d.short && !d.empty {
		return nil
	}
	var regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	switch {
	case d.short:
		regs.Rdx = max(1, regs.Rdx/2)
	case d.empty:
		regs.Rdx = 0
	default:
		regs.Orig_rax = ^uint64(0) // none
		t.failed[tid] = d.fail
	}
	return syscall.PtraceSetRegs(tid, &regs)
}

// internal reports whether a call is the Go runtime's own: it makes sure that the first three
// files are open, or ends, and threads wake each other through what is no file.
func (t *tracer) internal(c *call) bool {
	if c.name == "fcntl" && c.args[0] < 3 && c.args[1] == unix.F_GETFD {
		return true
	}
	switch c.name {
	case "read", "write", "close", "fcntl":
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, c.args[0]))
		return err == nil && strings.HasPrefix(to, "anon_inode:")
	}
	return false
}
