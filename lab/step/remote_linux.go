package step

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A remote is a program under QEMU, controlled by GDB's remote protocol (Debugging with GDB, appendix E).
type remote struct {
	*walk
	conn *os.File
	in   *bufio.Reader
	ack  string // acknowledgement of the last reply, sent with the next packet
}

// guestBase is where QEMU maps the program's address 0.
const guestBase = 1 << 40

// Remote runs a program for another machine under QEMU's user mode emulation, and follows it as Trace does. Args are
// QEMU, the program, and its arguments. Threads are not supported.
func Remote(ctx context.Context, args []string, opt Options) (*Report, int, error) {
	f, err := elf.Open(args[1])
	if err != nil {
		return nil, 0, err
	}
	f.Close()
	m, err := newMachine(f.Machine, f.ByteOrder)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", args[1], err)
	}
	dir, err := os.MkdirTemp("", "step-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	sock := filepath.Join(dir, "gdb")
	cmd := exec.CommandContext(ctx, args[0], append([]string{"-g", sock, "-B", fmt.Sprint(guestBase)}, args[1:]...)...)
	cmd.Env = []string{"LC_ALL=C"} // at startup, libc reads each environment variable many times
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var conn *net.UnixConn
	for range 10_000 {
		if conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: sock, Net: "unix"}); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", args[0], err)
	}
	// Reading from a file blocks this thread, which is faster than Go's poller.
	file, err := conn.File()
	conn.Close()
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := newWalk(ctx, m, &procMemory{cmd.Process.Pid, guestBase}, opt)
	r := &remote{walk: w, conn: file, in: bufio.NewReader(file)}
	// QEMU translates the code, so it is not in executable memory.
	w.maps = func() ([]mapping, error) {
		all, err := readMaps(cmd.Process.Pid, "r")
		var maps []mapping
		for _, m := range all {
			if m.lo >= guestBase {
				m.lo, m.hi = m.lo-guestBase, m.hi-guestBase
				maps = append(maps, m)
			}
		}
		return maps, err
	}
	status, err := r.run()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return w.finish(), status, err
}

// run steps through the program.
func (r *remote) run() (int, error) {
	for _, packet := range []string{"qSupported:multiprocess+", "?"} {
		if _, err := r.ask(packet); err != nil {
			return 0, err
		}
	}
	if err := r.mapped(); err != nil {
		return 0, err
	}
	var at registers
	if err := r.readRegisters(&at); err != nil {
		return 0, err
	}
	if r.m.Machine == elf.EM_S390 {
		r.floats = r.readFloats
	}
	th := r.newThread(&at)
	r.step(th, &at)
	for !r.mustStop() {
		reply, err := r.ask("s")
		if err != nil {
			return 0, err
		}
		for reply[0] == 'T' && !strings.HasPrefix(reply, "T05") {
			if reply, err = r.deliver(th, &at, reply[1:3]); err != nil {
				return 0, err
			}
		}
		switch reply[0] {
		case 'W', 'X':
			n, _ := strconv.ParseUint(strings.SplitN(reply[1:], ";", 2)[0], 16, 8)
			if reply[0] == 'X' {
				n += 128
			}
			return int(n), nil
		case 'T':
		default:
			return 0, fmt.Errorf("QEMU replies %q to a step", reply)
		}
		if th.last != nil && th.last.class == kernel {
			r.stale = true
		}
		if err := r.readRegisters(&at); err != nil {
			return 0, err
		}
		r.step(th, &at)
	}
	return 0, nil
}

// deliver sends the program a signal, and returns QEMU's reply.
func (r *remote) deliver(th *thread, at *registers, sig string) (string, error) {
	from := *at
	if err := r.readRegisters(&from); err != nil {
		return "", err
	}
	reply, err := r.ask("vCont;S" + sig)
	if err != nil || reply[0] != 'T' {
		return reply, err
	}
	if err := r.readRegisters(at); err != nil {
		return "", err
	}
	sp, before := at.r[r.m.SP], from.r[r.m.SP]
	if at.pc-from.pc > maxSkip && sp < before && before-sp > 256 {
		r.enterSignal(th, at, caller{before - uint64(r.m.CallerSP), from.pc, from.r[r.m.FP]})
	}
	return reply, nil
}

// ask sends a packet and returns the reply.
func (r *remote) ask(packet string) (string, error) {
	var sum byte
	for i := range len(packet) {
		sum += packet[i]
	}
	if _, err := fmt.Fprintf(r.conn, "%s$%s#%02x", r.ack, packet, sum); err != nil {
		return "", err
	}
	if _, err := r.in.ReadString('$'); err != nil { // preceded by an acknowledgement
		return "", fmt.Errorf("QEMU has closed the connection: %w", err)
	}
	s, err := r.in.ReadString('#')
	if err != nil {
		return "", err
	}
	if _, err := r.in.Discard(2); err != nil {
		return "", err
	}
	r.ack = "+"
	if s = s[:len(s)-1]; s == "" {
		return "", fmt.Errorf("QEMU does not know the packet %s", packet)
	}
	return s, nil
}

// words sends a request for registers, and returns at most the given number of them.
func (r *remote) words(packet string, most int) ([]uint64, error) {
	s, err := r.ask(packet)
	if err != nil {
		return nil, err
	}
	b, err := hex.DecodeString(s[:min(len(s), 16*most)])
	var words []uint64
	for ; len(b) >= 8; b = b[8:] {
		words = append(words, r.m.order.Uint64(b))
	}
	if err == nil && len(words) < most {
		err = fmt.Errorf("QEMU has too few registers: %q", s)
	}
	return words, err
}

// readRegisters reads the pc and the general registers.
func (r *remote) readRegisters(at *registers) error {
	const regs, s390xRegs = 32, 16
	if r.m.Machine == elf.EM_S390 {
		words, err := r.words("g", 2+s390xRegs)
		if err == nil {
			at.pc = words[1]
			copy(at.r[:], words[2:])
		}
		return err
	}
	words, err := r.words("g", regs+1)
	if err == nil {
		at.pc = words[regs]
		copy(at.r[:], words[:regs])
	}
	return err
}

// readFloats reads the floating-point registers of s390x in DWARF order: functions save general registers there.
func (r *remote) readFloats(at *registers) bool {
	const first = 35 // index of f0 in QEMU's registers, after 18 core registers, 16 access registers and fpc
	for i, n := range []int{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15} {
		words, err := r.words(fmt.Sprintf("p%x", first+n), 1)
		if err != nil {
			return false
		}
		at.r[firstFloat+i] = words[0]
	}
	return true
}

// procMemory is the memory of another process.
type procMemory struct {
	pid  int
	base uint64 // added to addresses
}

func (m *procMemory) read(addr uint64, b []byte) error {
	n, err := unix.ProcessVMReadv(m.pid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(m.base + addr), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

// readMaps returns those mappings of a process that have the permissions in perm (proc(5), "/proc/[pid]/maps").
func readMaps(pid int, perm string) ([]mapping, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	var maps []mapping
	for line := range strings.Lines(string(b)) {
		var m mapping
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s %x", &m.lo, &m.hi, &perms, &m.off); n < 4 {
			continue
		}
		if i := strings.IndexAny(line, "/["); i >= 0 {
			m.path = strings.TrimSuffix(line[i:], "\n")
		}
		if strings.Contains(perms, perm) && m.path != "[vsyscall]" {
			maps = append(maps, m)
		}
	}
	return maps, err
}
