package step

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A process is a program that runs under ptrace.
type process struct {
	*walk
	pid     int
	threads map[int]*tracee
}

type tracee struct {
	*thread
	at  registers // before the current instruction
	sig int       // signal to deliver with the next step, or 0
}

// DWARF numbers of the registers that hold the number and the arguments of a system call (System V ABI for AMD64,
// figure 3.36 and A.2.1).
const (
	rax = 0
	rdx = 1
	rdi = 5
)

// Trace runs a program and follows it until it exits, or kills it after the number of steps in opt. It returns the
// report and the exit status, or 128 plus the signal that ended the program. After an error, the report is nil if the
// program did not start.
func Trace(ctx context.Context, cmd *exec.Cmd, opt Options) (*Report, int, error) {
	m, err := newMachine(elf.EM_X86_64, binary.LittleEndian)
	if err != nil {
		return nil, 0, err
	}
	runtime.LockOSThread() // ptrace works per thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	pid := cmd.Process.Pid
	defer cmd.Process.Release()
	p := &process{walk: newWalk(ctx, m, &procMemory{pid: pid}, opt), pid: pid, threads: make(map[int]*tracee)}
	p.maps = func() ([]mapping, error) { return readMaps(pid, "x") }
	status, err := p.run()
	return p.finish(), status, err
}

// run steps through the program.
func (p *process) run() (int, error) {
	var ws unix.WaitStatus
	_, err := wait(p.pid, &ws)
	if err == nil && !ws.Stopped() {
		err = fmt.Errorf("the program ended before its first instruction (status %#x)", uint32(ws))
	}
	if err != nil {
		return 0, err
	}
	err = unix.PtraceSetOptions(p.pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_EXITKILL)
	if err == nil && p.opt.Entry {
		err = toEntry(p.pid)
	}
	if err == nil {
		err = p.startImage(p.pid)
	}
	status, killed := 0, false
	for len(p.threads) > 0 || err != nil {
		if !killed && (err != nil || p.mustStop()) {
			killed = true
			unix.Kill(p.pid, unix.SIGKILL)
		}
		pid, e := wait(-1, &ws)
		if e != nil {
			return status, errors.Join(err, e)
		}
		if !ws.Stopped() {
			if pid == p.pid && !killed {
				status = ws.ExitStatus()
				if ws.Signaled() {
					status = 128 + int(ws.Signal())
				}
			}
			if t := p.threads[pid]; t != nil {
				t.stack.owner = nil
				delete(p.threads, pid)
			}
			if pid == p.pid {
				break
			}
			continue
		}
		if killed {
			continue
		}
		if e = p.handleStop(pid, ws); e != unix.ESRCH { // not killed meanwhile
			err = e
		}
	}
	return status, err
}

// wait waits for a child of this thread, or for a thread of the child. The raw system call bypasses Go's scheduler.
func wait(pid int, ws *unix.WaitStatus) (int, error) {
	for {
		const options = unix.WALL | unix.WNOTHREAD
		n, _, e := unix.RawSyscall6(unix.SYS_WAIT4, uintptr(pid), uintptr(unsafe.Pointer(ws)), options, 0, 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != unix.EINTR {
			return 0, fmt.Errorf("wait4: %w", e)
		}
	}
}

// ptrace makes a request.
func ptrace(request, pid int, data uintptr) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), 0, data, 0, 0); e != 0 {
		return e
	}
	return nil
}

// read reads the registers (System V ABI for AMD64, figure 3.36).
func (t *tracee) read(pid int) error {
	var r unix.PtraceRegs
	err := ptrace(unix.PTRACE_GETREGS, pid, uintptr(unsafe.Pointer(&r)))
	copy(t.at.r[:], []uint64{
		r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
	})
	t.at.pc = r.Rip
	return err
}

// startImage handles a new program image.
func (p *process) startImage(pid int) error {
	clear(p.threads)
	p.stacks = nil
	if err := p.mapped(); err != nil {
		return err
	}
	if err := p.addThread(pid); err != nil {
		return err
	}
	if s := p.threads[pid].last; s.module == nil || s.module.file == nil {
		return errors.New("not a 64-bit ELF file for amd64")
	}
	return nil
}

// addThread starts to follow a new thread.
func (p *process) addThread(pid int) error {
	t := &tracee{}
	if err := t.read(pid); err != nil {
		return err
	}
	t.thread = p.newThread(&t.at)
	p.threads[pid] = t
	p.step(t.thread, &t.at)
	return ptrace(unix.PTRACE_SINGLESTEP, pid, 0)
}

// handleStop handles a stopped thread, and resumes it.
func (p *process) handleStop(pid int, ws unix.WaitStatus) error {
	t := p.threads[pid]
	sig := int(ws.StopSignal())
	switch event := int(ws) >> 16; {
	case event == unix.PTRACE_EVENT_EXEC:
		return p.startImage(pid)
	case event != 0:
		return ptrace(unix.PTRACE_SINGLESTEP, pid, 0)
	case t == nil:
		return p.addThread(pid)
	case sig != int(unix.SIGTRAP) || t.last != nil && t.last.class >= kernel && !stepped(pid):
		return t.deliver(pid, sig)
	}
	from := t.at
	if err := t.read(pid); err != nil {
		return err
	}
	if t.sig != 0 {
		p.enterHandler(t, &from)
		t.sig = 0
	}
	if t.last != nil && t.last.class == kernel {
		switch n := from.r[rax]; {
		case n == unix.SYS_MUNMAP || n == unix.SYS_MREMAP,
			(n == unix.SYS_MMAP || n == unix.SYS_MPROTECT) && from.r[rdx]&unix.PROT_EXEC != 0:
			p.stale = true
		}
	}
	p.step(t.thread, &t.at)
	return ptrace(unix.PTRACE_SINGLESTEP, pid, 0)
}

// siginfo is the kernel's siginfo_t for SIGTRAP.
type siginfo struct {
	signo, errno, code int32
	_                  [116]byte
}

func readSiginfo(pid int) (s siginfo, err error) {
	err = ptrace(unix.PTRACE_GETSIGINFO, pid, uintptr(unsafe.Pointer(&s)))
	return s, err
}

// stepped reports whether a step, not the program, caused a SIGTRAP (TRAP_BRKPT after a system call, or TRAP_TRACE).
func stepped(pid int) bool {
	s, err := readSiginfo(pid)
	return err == nil && (s.code == 1 || s.code == 2)
}

// deliver delivers a pending signal to a thread.
func (t *tracee) deliver(pid, sig int) error {
	if _, err := readSiginfo(pid); err != nil {
		sig = 0 // the thread was stopped by its signal
	}
	t.sig = sig
	return ptrace(unix.PTRACE_SINGLESTEP, pid, uintptr(sig))
}

// enterHandler records the start of a signal handler, if there is one. The kernel has pushed a struct rt_sigframe.
func (p *process) enterHandler(t *tracee, from *registers) {
	const (
		rbpAt = 128
		rspAt = 168
		ripAt = 176
	)
	sp, before := t.at.r[p.m.SP], from.r[p.m.SP]
	if t.at.r[rdi] != uint64(t.sig) || sp == before {
		return
	}
	rbp, _ := p.word(sp + rbpAt)
	rsp, _ := p.word(sp + rspAt)
	// A restarted system call starts again at its 2-byte instruction.
	if rip, ok := p.word(sp + ripAt); ok && rsp == before && (rip == from.pc || rip+2 == from.pc) {
		p.enterSignal(t.thread, &t.at, caller{rsp, rip, rbp})
	}
}

// toEntry lets the program run to its entry point.
func toEntry(pid int) error {
	const atEntry = 9 // AT_ENTRY
	entry := uintptr(auxv(pid, atEntry))
	var old [1]byte
	if _, err := unix.PtracePeekText(pid, entry, old[:]); err != nil {
		return fmt.Errorf("entry point %#x: %w", entry, err)
	}
	if _, err := unix.PtracePokeText(pid, entry, []byte{0xcc}); err != nil {
		return fmt.Errorf("entry point %#x: %w", entry, err)
	}
	var ws unix.WaitStatus
	for sig := 0; ; sig = int(ws.StopSignal()) {
		if err := ptrace(unix.PTRACE_CONT, pid, uintptr(sig)); err != nil {
			return err
		}
		if _, err := wait(pid, &ws); err != nil {
			return err
		}
		if !ws.Stopped() {
			return errors.New("the program ended before its entry point")
		}
		if ws.StopSignal() == unix.SIGTRAP {
			break
		}
	}
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &r); err != nil {
		return err
	}
	r.Rip = uint64(entry)
	if err := unix.PtraceSetRegs(pid, &r); err != nil {
		return err
	}
	_, err := unix.PtracePokeText(pid, entry, old[:])
	return err
}

// auxv returns an entry of the auxiliary vector of a process of this machine, or 0.
func auxv(pid int, typ uint64) uint64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	for ; len(b) >= 16; b = b[16:] {
		if binary.LittleEndian.Uint64(b) == typ {
			return binary.LittleEndian.Uint64(b[8:])
		}
	}
	return 0
}
