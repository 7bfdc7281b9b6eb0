package step

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/elffile"
)

// A remote is a program under QEMU, which is spoken to by GDB's remote protocol (Debugging with GDB, appendix E).
type remote struct {
	conn  *os.File
	in    *bufio.Reader
	order binary.ByteOrder
	name  string // of the machine
	pid   int    // of QEMU
	base  uint64 // where the program's address 0 is in QEMU's memory
	exe   string // QEMU
	ack   string // of the last reply, which goes out with the next packet
}

// Remote runs a program for another machine under QEMU's user mode emulation, and follows it as Trace does. Args are QEMU, its
// arguments, the program and its arguments; file is the ELF file that is executed. Programs with threads cannot be followed.
func Remote(ctx context.Context, file string, args []string, opt Options) (*Report, int, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	e, err := elffile.New(f, info.Size())
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", file, err)
	}
	w := newWalk(opt)
	if w.m, err = machineOf(e); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", file, err)
	}
	unpin, err := pin(opt.CPU)
	if err != nil {
		return nil, 0, err
	}
	defer unpin()
	dir, err := os.MkdirTemp("", "step-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	sock := filepath.Join(dir, "gdb")
	cmd := exec.CommandContext(ctx, args[0], append([]string{"-g", sock}, args[1:]...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	r := &remote{order: e.Order, name: w.m.Name, pid: cmd.Process.Pid}
	var conn *net.UnixConn
	for range 1000 {
		if conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: sock, Net: "unix"}); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", args[0], err)
	}
	// As a file, reading blocks this thread, and does not go through Go's poller, which takes longer.
	r.conn, err = conn.File()
	conn.Close()
	if err != nil {
		return nil, 0, err
	}
	defer r.conn.Close()
	r.in = bufio.NewReader(r.conn)
	status, err := r.run(w)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return w.finish(), status, err
}

// run makes the steps.
func (r *remote) run(w *Walk) (int, error) {
	if _, err := r.ask("qSupported:multiprocess+"); err != nil {
		return 0, err
	}
	if _, err := r.ask("?"); err != nil {
		return 0, err
	}
	if err := r.findBase(); err != nil {
		return 0, err
	}
	w.mem = newMemory(r.pid, r.base, r.order)
	w.remap = r.maps
	maps, err := r.maps()
	if err != nil {
		return 0, err
	}
	w.mapped(maps)
	var at Regs
	if err := r.read(&at); err != nil {
		return 0, err
	}
	// Floating-point registers are asked for where a rule names one.
	w.more = r.floats
	th := w.start(&at, true)
	w.Threads++
	w.Step(th, &at)
	for step := "s"; !w.enough(); step = "s" {
		reply, err := r.ask(step)
		if err != nil {
			return 0, err
		}
		for reply[0] == 'T' && !strings.HasPrefix(reply, "T05") {
			from := at
			if err := r.read(&from); err != nil {
				return 0, err
			}
			if reply, err = r.ask("vCont;S" + reply[1:3]); err != nil {
				return 0, err
			}
			if reply[0] != 'T' {
				break
			}
			if err := r.read(&at); err != nil {
				return 0, err
			}
			sp, before := at.R[w.m.sp], from.R[w.m.sp]
			if at.PC-from.PC > 16 && sp < before && before-sp > 256 {
				w.signal(th, &at, caller{before - uint64(w.m.caller), from.PC, from.R[w.m.fp]})
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
			return 0, fmt.Errorf("%s: %q", step, reply)
		}
		if th.last != nil && th.last.class == kernel {
			w.stale = true
		}
		if err := r.read(&at); err != nil {
			return 0, err
		}
		w.Step(th, &at)
	}
	return 0, nil
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
	if _, err := r.in.ReadString('$'); err != nil { // acknowledgements are in front
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
		return "", fmt.Errorf("%s: QEMU does not know this", packet)
	}
	return s, nil
}

// layouts say where registers are in the reply to g: in words of 8 bytes, by DWARF number, and the pc.
var layouts = map[string]struct{ regs, first, pc int }{
	"aarch64": {32, 0, 32},
	"s390x":   {16, 2, 1},
}

func (r *remote) read(at *Regs) error {
	s, err := r.ask("g")
	if err != nil {
		return err
	}
	l := layouts[r.name]
	var b [8]byte
	word := func(i int) uint64 {
		if len(s) < 16*(i+1) {
			err = fmt.Errorf("registers: %d digits are too few", len(s))
			return 0
		}
		if _, e := hex.Decode(b[:], []byte(s[16*i:16*i+16])); e != nil {
			err = e
		}
		return r.order.Uint64(b[:])
	}
	for i := range l.regs {
		at.R[i] = word(l.first + i)
	}
	at.PC = word(l.pc)
	return err
}

// floats reads those registers of s390x that functions keep others in: f0 and so on, in the order of their DWARF numbers.
func (r *remote) floats(at *Regs) bool {
	if r.name != "s390x" {
		return false
	}
	const first = 35 // of f0 in QEMU's list of all registers: 18 of the core, 16 access registers, fpc
	for i, n := range []int{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15} {
		s, err := r.ask(fmt.Sprintf("p%x", first+n))
		b, e := hex.DecodeString(s)
		if err != nil || e != nil || len(b) != 8 {
			return false
		}
		at.R[16+i] = r.order.Uint64(b)
	}
	return true
}

// findBase finds out where in QEMU's memory the program is: there is a file that it has mapped, and the auxiliary
// vector says where the program headers of that are.
func (r *remote) findBase() error {
	s, err := r.ask("qXfer:auxv:read::0,1000")
	if err != nil {
		return err
	}
	if s[0] != 'l' && s[0] != 'm' {
		return fmt.Errorf("auxiliary vector: %q", s)
	}
	var b []byte
	for i := 1; i < len(s); i++ { // } escapes
		if s[i] == '}' && i+1 < len(s) {
			i++
			b = append(b, s[i]^0x20)
			continue
		}
		b = append(b, s[i])
	}
	var phdr uint64
	for ; len(b) >= 16; b = b[16:] {
		if r.order.Uint64(b) == 3 { // AT_PHDR
			phdr = r.order.Uint64(b[8:])
		}
	}
	if r.exe, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", r.pid)); err != nil {
		return err
	}
	found := false
	err = eachMap(r.pid, func(m mapping, perms string) {
		if !found && m.off == 0 && strings.HasPrefix(m.path, "/") && m.path != r.exe {
			if f, err := elf.Open(m.path); err == nil {
				if f.Type == elf.ET_EXEC || f.Type == elf.ET_DYN {
					found = true
					r.base = m.lo - phdr&^0xfff
				}
				f.Close()
			}
		}
	})
	if err == nil && !found {
		err = errors.New("QEMU has no ELF file in memory")
	}
	return err
}

// maps returns where code is. QEMU does not execute it, and so it is not in executable memory.
func (r *remote) maps() ([]mapping, error) {
	var maps []mapping
	err := eachMap(r.pid, func(m mapping, perms string) {
		if strings.HasPrefix(m.path, "/") && m.path != r.exe && perms[0] == 'r' && r.code(m) {
			m.lo, m.hi = m.lo-r.base, m.hi-r.base
			maps = append(maps, m)
		}
	})
	return maps, err
}

// code reports whether a mapping has code of its file.
func (r *remote) code(m mapping) bool {
	f, err := elf.Open(m.path)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && m.off < p.Off+p.Filesz && m.off+(m.hi-m.lo) > p.Off {
			return true
		}
	}
	return false
}
