package corpus

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// maxCalls is how many system calls of a program are looked at.
const maxCalls = 64

// harmless are the system calls that a traced program may make: those by which a C
// library starts, which change nothing outside the process.
var harmless = map[uint64]bool{
	syscall.SYS_READ: true, syscall.SYS_PREAD64: true, syscall.SYS_CLOSE: true, syscall.SYS_LSEEK: true,
	syscall.SYS_FSTAT: true, syscall.SYS_STAT: true, syscall.SYS_LSTAT: true, syscall.SYS_NEWFSTATAT: true,
	syscall.SYS_ACCESS: true, syscall.SYS_READLINK: true, syscall.SYS_READLINKAT: true, syscall.SYS_GETCWD: true,
	syscall.SYS_BRK: true, syscall.SYS_MMAP: true, syscall.SYS_MUNMAP: true, syscall.SYS_MPROTECT: true,
	syscall.SYS_MREMAP: true, syscall.SYS_MADVISE: true, syscall.SYS_ARCH_PRCTL: true,
	syscall.SYS_SET_TID_ADDRESS: true, syscall.SYS_SET_ROBUST_LIST: true, sysRSEQ: true,
	syscall.SYS_RT_SIGACTION: true, syscall.SYS_RT_SIGPROCMASK: true, syscall.SYS_SIGALTSTACK: true,
	sysGETRANDOM: true, syscall.SYS_UNAME: true, syscall.SYS_SYSINFO: true, syscall.SYS_GETRLIMIT: true,
	syscall.SYS_SCHED_GETAFFINITY: true, syscall.SYS_CLOCK_GETTIME: true, syscall.SYS_FUTEX: true,
	syscall.SYS_GETPID: true, syscall.SYS_GETTID: true, syscall.SYS_GETUID: true, syscall.SYS_GETEUID: true,
	syscall.SYS_GETGID: true, syscall.SYS_GETEGID: true,
}

// System calls that package syscall does not know.
const (
	sysPRLIMIT64 = 302
	sysGETRANDOM = 318
	sysRSEQ      = 334
)

// trace runs a program that cannot be preloaded, because it has no loader, up to the
// first system call that is not harmless, and kills it before that is carried out. What
// it says of the run is the sequence of system calls: a program whose start-up code did
// not find its program headers, thread-local storage or relocations has another one.
func trace(root, dir, program string) outcome {
	runtime.LockOSThread() // ptrace knows its tracer by the thread
	defer runtime.UnlockOSThread()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return outcome{why: err.Error()}
	}
	defer null.Close()
	sys := &syscall.SysProcAttr{Ptrace: true, Setpgid: true}
	if root != "/" {
		sys.Chroot = root
	}
	fd := null.Fd()
	pid, err := syscall.ForkExec(program, []string{program}, &syscall.ProcAttr{
		Dir: dir, Env: []string{}, Files: []uintptr{fd, fd, fd}, Sys: sys,
	})
	if err != nil {
		return outcome{why: err.Error()}
	}
	late := time.AfterFunc(timeout, func() { syscall.Kill(pid, syscall.SIGKILL) })
	calls, end := follow(pid)
	late.Stop()
	if len(calls) == 0 {
		return outcome{why: end}
	}
	return outcome{mark: strings.Join(append(calls, end), " ")}
}

// follow returns the system calls that a process makes, and why there are no more. The
// process, which is stopped at its first instruction, is gone afterwards.
func follow(pid int) (calls []string, end string) {
	var status syscall.WaitStatus
	wait := func() bool {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		return err == nil && status.Stopped()
	}
	defer func() {
		if !status.Exited() && !status.Signaled() {
			syscall.Kill(pid, syscall.SIGKILL)
			for wait() {
			}
		}
	}()
	if !wait() {
		return nil, ended(status)
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACESYSGOOD|ptraceExitKill); err != nil {
		return nil, "ptrace: " + err.Error()
	}
	for entering := true; len(calls) < maxCalls; entering = !entering {
		if err := syscall.PtraceSyscall(pid, 0); err != nil {
			return calls, "ptrace: " + err.Error()
		}
		if !wait() {
			return calls, ended(status)
		}
		if status.StopSignal() != syscall.SIGTRAP|callStop {
			return calls, status.StopSignal().String()
		}
		if !entering {
			continue
		}
		var regs syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
			return calls, "ptrace: " + err.Error()
		}
		calls = append(calls, fmt.Sprint(regs.Orig_rax))
		if !harmlessCall(&regs) {
			return calls, "stopped"
		}
	}
	return calls, "enough"
}

// What package syscall does not know of ptrace(2).
const (
	callStop       = 0x80 // in the signal of a stop at a system call
	ptraceExitKill = 1 << 20
)

func harmlessCall(r *syscall.PtraceRegs) bool {
	switch r.Orig_rax {
	case syscall.SYS_OPENAT:
		return r.Rdx&(syscall.O_ACCMODE|syscall.O_CREAT|syscall.O_TRUNC) == syscall.O_RDONLY
	case sysPRLIMIT64:
		return r.Rdi == 0 // of the process itself
	}
	return harmless[r.Orig_rax]
}

func ended(s syscall.WaitStatus) string {
	if s.Exited() {
		return fmt.Sprintf("exit status %d", s.ExitStatus())
	}
	return s.Signal().String()
}
