package step

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A process is one under ptrace.
type process struct {
	pid     int
	threads map[int]*tracee
}

type tracee struct {
	*Thread
	at  Regs // before the instruction that it executes now
	sig int  // that was delivered with it, or 0
	raw unix.PtraceRegs
}

// DWARF numbers of what system calls have their number and arguments in (System V ABI for AMD64, figure 3.36 and A.2.1).
const (
	rax = 0
	rdx = 1
	rdi = 5
)

// Trace runs a program and follows it until it ends, or has made the steps that were asked for: then it is killed.
// With the report comes the program's exit status, or 128 and the number of the signal that has ended it. After an
// error, the report is nil if the program could not be started.
func Trace(cmd *exec.Cmd, opt Options) (*Report, int, error) {
	unpin, err := pin(opt.CPU)
	if err != nil {
		return nil, 0, err
	}
	defer unpin()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	defer cmd.Process.Release()
	p := &process{pid: cmd.Process.Pid, threads: make(map[int]*tracee)}
	w := newWalk(opt)
	w.mem = newMemory(p.pid, 0, binary.LittleEndian)
	w.remap = func() ([]mapping, error) { return readMaps(p.pid) }
	status, err := p.run(w)
	return w.finish(), status, err
}

// run makes the steps.
func (p *process) run(w *Walk) (int, error) {
	var ws unix.WaitStatus
	if _, err := wait(p.pid, &ws); err != nil {
		return 0, fmt.Errorf("wait4: %w", err)
	}
	if !ws.Stopped() {
		return 0, fmt.Errorf("the program ended before its first instruction (status %#x)", uint32(ws))
	}
	err := unix.PtraceSetOptions(p.pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACEEXEC|unix.PTRACE_O_EXITKILL)
	if err == nil && w.opt.From != "" {
		err = toEntry(p.pid, w.opt.From)
	}
	if err == nil {
		err = p.begin(w, p.pid)
	}
	status, killed := 0, false
	for len(p.threads) > 0 || err != nil {
		if !killed && (err != nil || w.enough()) {
			killed = true
			unix.Kill(p.pid, unix.SIGKILL)
		}
		pid, e := wait(-1, &ws)
		if e != nil {
			return status, errors.Join(err, fmt.Errorf("wait4: %w", e))
		}
		if !ws.Stopped() {
			if pid == p.pid && !killed {
				status = ws.ExitStatus()
				if ws.Signaled() {
					status = 128 + int(ws.Signal())
				}
			}
			if t := p.threads[pid]; t != nil {
				w.end(t.Thread)
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
		e = p.stopped(w, pid, ws)
		if e == unix.ESRCH { // it was killed meanwhile
			continue
		}
		err = e
	}
	return status, err
}

// wait waits for a thread, in a way that Go's scheduler takes no part in.
func wait(pid int, ws *unix.WaitStatus) (int, error) {
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_WAIT4, uintptr(pid), uintptr(unsafe.Pointer(ws)), unix.WALL, 0, 0, 0)
		if e == 0 {
			return int(n), nil
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

// ptrace makes a request whose argument is a number.
func ptrace(request, pid int, data int) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), 0, uintptr(data), 0, 0); e != 0 {
		return e
	}
	return nil
}

// read reads the registers.
func (t *tracee) read(pid int) error {
	r := &t.raw
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGS, uintptr(pid), 0, uintptr(unsafe.Pointer(r)), 0, 0); e != 0 {
		return e
	}
	// System V ABI for AMD64, figure 3.36.
	d := &t.at.R
	d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = r.Rax, r.Rdx, r.Rcx, r.Rbx, r.Rsi, r.Rdi, r.Rbp, r.Rsp
	d[8], d[9], d[10], d[11], d[12], d[13], d[14], d[15] = r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15
	t.at.PC = r.Rip
	return nil
}

// begin starts with a new image.
func (p *process) begin(w *Walk, pid int) error {
	for _, t := range p.threads {
		w.end(t.Thread)
	}
	clear(p.threads)
	w.stacks = nil
	maps, err := w.remap()
	if err != nil {
		return err
	}
	if w.mapped(maps); w.m == nil {
		return errors.New("the program is no 64-bit ELF file of a machine that SFrame is for")
	}
	return p.thread(w, pid)
}

// thread starts with a new thread.
func (p *process) thread(w *Walk, pid int) error {
	t := &tracee{}
	if err := t.read(pid); err != nil {
		return err
	}
	t.Thread = w.start(&t.at, true)
	p.threads[pid] = t
	w.Threads++
	w.Step(t.Thread, &t.at)
	return ptrace(unix.PTRACE_SINGLESTEP, pid, 0)
}

// stopped looks at a thread that has stopped, and lets it go on.
func (p *process) stopped(w *Walk, pid int, ws unix.WaitStatus) error {
	t := p.threads[pid]
	sig := int(ws.StopSignal())
	switch event := int(ws) >> 16; {
	case event == unix.PTRACE_EVENT_EXEC:
		return p.begin(w, pid)
	case event != 0:
		return ptrace(unix.PTRACE_SINGLESTEP, pid, 0)
	case t == nil:
		return p.thread(w, pid)
	case sig != int(unix.SIGTRAP) || t.last != nil && t.last.class >= kernel && !stepped(pid):
		return t.deliver(pid, sig)
	}
	from := t.at
	if err := t.read(pid); err != nil {
		return err
	}
	if t.sig != 0 {
		t.handler(w, &from)
		t.sig = 0
	}
	if t.last != nil && t.last.class == kernel {
		switch n := from.R[rax]; {
		case n == unix.SYS_MUNMAP || n == unix.SYS_MREMAP,
			(n == unix.SYS_MMAP || n == unix.SYS_MPROTECT) && from.R[rdx]&unix.PROT_EXEC != 0:
			w.stale = true
		}
	}
	w.Step(t.Thread, &t.at)
	return ptrace(unix.PTRACE_SINGLESTEP, pid, 0)
}

// siginfo is how the kernel fills a siginfo_t of SIGTRAP.
type siginfo struct {
	signo, errno, code int32
	_                  [116]byte
}

func getSiginfo(pid int) (siginfo, error) {
	var s siginfo
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(pid), 0, uintptr(unsafe.Pointer(&s)), 0, 0); e != 0 {
		return s, e
	}
	return s, nil
}

// stepped reports whether a SIGTRAP is that of a step (TRAP_BRKPT after a system call, or TRAP_TRACE), and not one that
// the program wants.
func stepped(pid int) bool {
	s, err := getSiginfo(pid)
	return err == nil && (s.code == 1 || s.code == 2)
}

// deliver gives a thread its signal.
func (t *tracee) deliver(pid, sig int) error {
	if _, err := getSiginfo(pid); err != nil {
		sig = 0 // it was stopped by one that it has got already
	}
	t.sig = sig
	return ptrace(unix.PTRACE_SINGLESTEP, pid, sig)
}

// handler notes that a signal handler begins, if one does. The kernel has put a struct rt_sigframe on the stack.
func (t *tracee) handler(w *Walk, from *Regs) {
	const (
		rbpAt = 128
		rspAt = 168
		ripAt = 176
	)
	sp := t.at.R[w.m.sp]
	if t.at.R[rdi] != uint64(t.sig) || sp == from.R[w.m.sp] {
		return
	}
	rsp, rip, err := w.mem.Words(sp+rspAt, sp+ripAt)
	// A system call that is made again begins with its instruction, of 2 bytes.
	if err != nil || rsp != from.R[w.m.sp] || rip != from.PC && rip+2 != from.PC {
		return
	}
	rbp, _, err := w.mem.Words(sp+rbpAt, sp)
	if err == nil {
		w.signal(t.Thread, &t.at, caller{rsp, rip, rbp})
	}
}

// toEntry lets a program run to the entry point of a file: either the kernel or the loader has it in memory by then.
func toEntry(pid int, file string) error {
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	f.Close()
	var entry uint64
	for entry == 0 {
		// At the end of a system call that was to map it, or of execve.
		err := eachMap(pid, func(m mapping, perms string) {
			if m.path != file || perms[2] != 'x' {
				return
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_LOAD && m.off < p.Off+p.Filesz && m.off+(m.hi-m.lo) > p.Off && f.Entry-p.Vaddr < p.Memsz {
					entry = m.lo - m.off + p.Off + f.Entry - p.Vaddr
				}
			}
		})
		if err != nil {
			return err
		}
		if entry == 0 {
			if err := until(pid, unix.PTRACE_SYSCALL); err != nil {
				return fmt.Errorf("%s: the program does not load it: %w", file, err)
			}
		}
	}
	var old [1]byte
	if _, err := unix.PtracePeekText(pid, uintptr(entry), old[:]); err != nil {
		return fmt.Errorf("entry point %#x: %w", entry, err)
	}
	if _, err := unix.PtracePokeText(pid, uintptr(entry), []byte{0xcc}); err != nil {
		return fmt.Errorf("entry point %#x: %w", entry, err)
	}
	if err := until(pid, unix.PTRACE_CONT); err != nil {
		return err
	}
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &r); err != nil {
		return err
	}
	if r.Rip != entry+1 {
		return fmt.Errorf("the program stopped at %#x, before its entry point", r.Rip)
	}
	r.Rip = entry
	if err := unix.PtraceSetRegs(pid, &r); err != nil {
		return err
	}
	_, err = unix.PtracePokeText(pid, uintptr(entry), old[:])
	return err
}

// until lets a program run until its next SIGTRAP. It gets other signals.
func until(pid, request int) error {
	for sig := 0; ; {
		if err := ptrace(request, pid, sig); err != nil {
			return err
		}
		var ws unix.WaitStatus
		if _, err := wait(pid, &ws); err != nil {
			return err
		}
		if !ws.Stopped() {
			return errors.New("it ended before")
		}
		if ws.StopSignal() == unix.SIGTRAP {
			return nil
		}
		sig = int(ws.StopSignal())
	}
}
