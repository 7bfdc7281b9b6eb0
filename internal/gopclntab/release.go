package gopclntab

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// pinned is the first minor release whose garbage collector does not shrink the stack of a goroutine in systemstack
// (isShrinkStackSafe in runtime/stack.go). In earlier releases, the frame pointer in systemstack may point into a freed
// stack.
const pinned = 26

// injectedIDs lists the function IDs of asyncPreempt, debugCallV2 and sigpanic (cmd/internal/objabi/funcid.go).
var injectedIDs = [...]struct {
	first, last int // minor releases
	ids         [3]byte
}{
	{18, 21, [...]byte{3, 5, 18}},
	{22, 24, [...]byte{3, 6, 19}},
	{25, 27, [...]byte{3, 6, 20}},
}

// injectedNames lists the names of the functions in injectedIDs, and of the wrapper through which signal handlers call
// sigpanic on amd64.
var injectedNames = []string{"runtime.asyncPreempt", "runtime.debugCallV2", "runtime.sigpanic", "runtime.sigpanic0"}

// injected reports whether signal handlers inject calls to the function.
func (t *Table) injected(id byte, name string) bool {
	for _, r := range injectedIDs {
		if r.first <= t.minor && t.minor <= r.last && slices.Contains(r.ids[:], id) {
			return true
		}
	}
	return slices.Contains(injectedNames, name)
}

// Layout of build information (debug/buildinfo): magic and flags; after the header, the length and text of the version.
const (
	infoMagic  = "\xff Go buildinf:"
	infoFlags  = 15
	infoHeader = 32
	inline     = 2       // flag: the version is stored inline
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
		for n := uint64(maxVersion); n > infoHeader && err == nil; n /= 2 { // fewer bytes may be left in the segment
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

// minorOf returns the minor release of a version such as go1.26.8, or 0 for pre-releases and other strings.
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
