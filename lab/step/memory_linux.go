package step

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procMemory is memory of another process.
type procMemory struct {
	pid   int
	base  uint64 // is added to addresses
	order binary.ByteOrder
	words [16]byte
	local unix.Iovec
	far   [2]unix.RemoteIovec
}

func newMemory(pid int, base uint64, order binary.ByteOrder) *procMemory {
	m := &procMemory{pid: pid, base: base, order: order}
	m.local = unix.Iovec{Base: &m.words[0], Len: 16}
	m.far[0].Len, m.far[1].Len = 8, 8
	return m
}

func (m *procMemory) Read(addr uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := unix.ProcessVMReadv(m.pid, []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(m.base + addr), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	return err
}

func (m *procMemory) Words(a, b uint64) (uint64, uint64, error) {
	m.far[0].Base, m.far[1].Base = uintptr(m.base+a), uintptr(m.base+b)
	n, _, e := unix.RawSyscall6(unix.SYS_PROCESS_VM_READV, uintptr(m.pid), uintptr(unsafe.Pointer(&m.local)), 1,
		uintptr(unsafe.Pointer(&m.far)), 2, 0)
	if e != 0 {
		return 0, 0, e
	}
	if n < 16 {
		return 0, 0, unix.EFAULT
	}
	return m.order.Uint64(m.words[:8]), m.order.Uint64(m.words[8:]), nil
}

// readMaps returns what files a process has in executable memory, and other executable memory.
func readMaps(pid int) ([]mapping, error) {
	var maps []mapping
	err := eachMap(pid, func(m mapping, perms string) {
		if perms[2] == 'x' && m.path != "[vsyscall]" {
			maps = append(maps, m)
		}
	})
	return maps, err
}

// eachMap calls fn for what is mapped in a process (proc(5), "/proc/[pid]/maps").
func eachMap(pid int, fn func(m mapping, perms string)) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		var m mapping
		var perms, dev string
		var inode uint64
		line = bytes.TrimSuffix(line, []byte("\n"))
		n, _ := fmt.Sscanf(string(line), "%x-%x %s %x %s %d", &m.lo, &m.hi, &perms, &m.off, &dev, &inode)
		if n < 6 || len(perms) < 3 {
			continue
		}
		if i := bytes.IndexAny(line, "/["); i >= 0 {
			m.path = string(line[i:])
		}
		fn(m, perms)
	}
	return nil
}

// pin keeps the goroutine on this thread, and the thread and processes that it starts on a processor if that is not negative, until it is
// undone: the program and who follows it run by turns, and to wake another processor takes longer.
func pin(cpu int) (undo func(), err error) {
	runtime.LockOSThread()
	if cpu < 0 {
		return runtime.UnlockOSThread, nil
	}
	var before, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("processor %d: %w", cpu, err)
	}
	return func() {
		unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}, nil
}
