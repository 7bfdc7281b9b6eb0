package gopclntab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// pinned is the first minor release whose collector does not shrink the stack of a goroutine that is in systemstack
// (isShrinkStackSafe in runtime/stack.go). Before, the frame pointer there may lead into a stack that was freed.
const pinned = 26

// injectedIDs are the function IDs of asyncPreempt, debugCallV2 and sigpanic (cmd/internal/objabi/funcid.go).
var injectedIDs = [...]struct {
	first, last int // minor releases
	ids         [3]byte
}{
	{18, 21, [...]byte{3, 5, 18}},
	{22, 24, [...]byte{3, 6, 19}},
	{25, 27, [...]byte{3, 6, 20}},
}

// injectedNames are the same functions, and the one through which signal handlers call sigpanic on amd64.
var injectedNames = []string{"runtime.asyncPreempt", "runtime.debugCallV2", "runtime.sigpanic", "runtime.sigpanic0"}

// pushed are the bytes that a signal handler pushes before it injects a call: the link register, which the call
// overwrites (pushCall and preparePanic in runtime/signal_arm64.go and signal_linux_s390x.go).
var pushed = map[elf.Machine]uint32{elf.EM_AARCH64: 16, elf.EM_S390: 8}

// injected reports whether signal handlers inject calls of the function.
func (t *Table) injected(id byte, name string) bool {
	for _, r := range injectedIDs {
		if r.first <= t.minor && t.minor <= r.last && slices.Contains(r.ids[:], id) {
			return true
		}
	}
	return slices.Contains(injectedNames, name)
}

// The build information (debug/buildinfo): magic, flags, and after the header the length and text of the version.
const (
	infoMagic  = "\xff Go buildinf:"
	infoFlags  = 15
	infoHeader = 32
	inline     = 2       // the flag that the version is there
	maxVersion = 1 << 10 // bytes
)

// release returns the minor release of Go that built the file, or 0 if it is unknown.
func (s *search) release() (minor int, err error) {
	f := s.file
	magic := f.Order.Uint64([]byte(infoMagic))
	var places []uint64
	err = s.words(elf.PF_W, func(w, addr uint64) {
		if w == magic && len(places) < maxFound {
			places = append(places, addr)
		}
	})
	for _, addr := range places {
		for n := uint64(maxVersion); n > infoHeader && err == nil; n /= 2 { // the end of the segment may be near
			off, ok := f.FileOffset(addr, n)
			if !ok {
				continue
			}
			b, err := f.ReadAt("build information", off, n)
			if err != nil {
				return 0, err
			}
			if bytes.HasPrefix(b, []byte(infoMagic)) && b[infoFlags]&inline != 0 {
				b = b[infoHeader:]
				if size, n := binary.Uvarint(b); n > 0 && size <= uint64(len(b)-n) {
					return minorOf(string(b[n:][:size])), nil
				}
			}
			break
		}
	}
	return 0, err
}

// minorOf returns the minor release of a version such as go1.26.8, or 0 for versions before a release, and others.
func minorOf(version string) int {
	rest, ok := strings.CutPrefix(version, "go1.")
	end := strings.TrimLeft(rest, "0123456789")
	if !ok || end != "" && end[0] != '.' && end[0] != ' ' {
		return 0
	}
	minor, err := strconv.Atoi(rest[:len(rest)-len(end)])
	if err != nil {
		return 0
	}
	return minor
}
