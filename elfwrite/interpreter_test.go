package elfwrite

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
)

// TestInterpreter expects what load_elf_interp of old kernels assumes: nothing to clear after the last segment, and no
// .bss before it.
func TestInterpreter(t *testing.T) {
	old := interpreter(t)
	for _, size := range []int{64, 5000 * 8} {
		after := elftest.Parse(t, add(t, old, content(size), Options{}))
		ends := func(at uint64) bool { // a section ends there
			return slices.ContainsFunc(after.Sections, func(s elffile.Section) bool {
				return s.Alloc() && s.HasBytes() && s.Addr+s.Size == at
			})
		}
		last, end0 := lastLoad(after.Progs), uint64(0) // end of the previous segment
		for _, i := range loadsOf(after.Progs) {
			p := &after.Progs[i]
			if p.Filesz != p.Memsz {
				t.Errorf("PT_LOAD at %#x has %#x bytes in the file and %#x in memory", p.Vaddr, p.Filesz, p.Memsz)
			}
			// ld.so uses the rest of the page, and expects zeros there. The rest must belong to a section: strip would
			// truncate bytes after the last section.
			end := p.Vaddr + p.Filesz
			if i == last && p.Vaddr&^0xfff != end0 {
				t.Errorf("the new segment is at %#x; want the page at %#x", p.Vaddr, end0)
			}
			end0 = end
			if (i == last || elf.ProgFlag(p.Flags)&elf.PF_W != 0) && (!ends(end) || end%4096 != 0) {
				t.Errorf("segment at %#x ends at %#x, which is not the end of a section and a page", p.Vaddr, end)
			}
		}
		if s, p := after.Section(".sframe"), &after.Progs[last]; s.Addr+s.Size != p.Vaddr+p.Filesz {
			t.Errorf(".sframe ends at %#x, the last segment at %#x", s.Addr+s.Size, p.Vaddr+p.Filesz)
		}
	}
}

// TestInterpreterReadOnly converts an interpreter without writable segments. It has no .bss to be stored.
func TestInterpreterReadOnly(t *testing.T) {
	p := elftest.Patch(t.Fatalf, interpreter(t))
	p.Put32(p.LastLoad()+elftest.PhFlags, uint32(elf.PF_R))
	if _, without := roundTrip(t, "read-only", p.B, 64, 4096); !bytes.Equal(without, p.B) {
		t.Errorf("%d bytes become %d", len(p.B), len(without))
	}
}

// TestInterpreterRefused expects errors for interpreters without a layout that old kernels can load.
func TestInterpreterRefused(t *testing.T) {
	p := elftest.Patch(t.Fatalf, interpreter(t))
	h := p.LastLoad()
	refused(t, "an odd size", p.B, 1001,
		"interpreter: .sframe of 1001 bytes cannot end at a page boundary: its size is not a multiple of 8")
	p.Put64(h+elftest.PhMemsz, p.U64(h+elftest.PhFilesz)+1<<20+1)
	refused(t, "a large .bss", p.B, 1000, "interpreter: the .bss of 1048577 bytes, which must be stored in the file, "+
		"exceeds the limit of 1048576")
	p.Put64(h+elftest.PhOff, 0x100)
	p.Put64(h+elftest.PhFilesz, 8)
	refused(t, "segments in a different order in the file", p.B, 1000, fmt.Sprintf(
		"interpreter: the last segment, at %#x, is not the last in the file", p.U64(h+elftest.PhVaddr)))
}

// TestSizeMultiple expects a multiple other than 1 only for interpreters.
func TestSizeMultiple(t *testing.T) {
	changed := func(change func(*elftest.Patcher)) []byte {
		p := elftest.Patch(t.Fatalf, interpreter(t))
		change(p)
		return p.B
	}
	// replaceSONAME replaces DT_SONAME with a different dynamic entry.
	replaceSONAME := func(tag elf.DynTag, value uint64) []byte {
		return changed(func(p *elftest.Patcher) {
			off := dynamicEntry(p, elf.DT_SONAME)
			p.Put64(off, uint64(tag))
			p.Put64(off+8, value)
		})
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want uint64
	}{
		{"an interpreter", interpreter(t), 8},
		{"a library with an entry point that needs a library", replaceSONAME(elf.DT_NEEDED, 0), 1},
		{"a static PIE", replaceSONAME(elf.DT_FLAGS_1, uint64(elf.DF_1_PIE)), 1},
		{"an interpreter with other flags", replaceSONAME(elf.DT_FLAGS_1, uint64(elf.DF_1_NOW)), 8},
		{"with an interpreter", changed(replaceStack(elf.PT_INTERP, 0, 0, 8)), 1},
		{"without an entry point", changed(func(p *elftest.Patcher) { p.Put64(elftest.EhEntry, 0) }), 1},
		{"without dynamic entries", changed(func(p *elftest.Patcher) {
			p.Put32(p.Segment(elf.PT_DYNAMIC, 0), uint32(elf.PT_NULL))
		}), 1},
		{"of a different type", changed(func(p *elftest.Patcher) { p.Put16(16, uint16(elf.ET_EXEC)) }), 1},
		{"a library", read(t, "pltlib.so"), 1},
		{"a program", read(t, "plt"), 1},
		{"a static program", read(t, "static"), 1},
	} {
		if got, err := SizeMultiple(elftest.Parse(t, tt.b)); err != nil || got != tt.want {
			t.Errorf("%s: a multiple of %d, error %v; want %d", tt.name, got, err, tt.want)
		}
	}
	large := elftest.Patch(t.Fatalf, interpreter(t))
	large.Put64(large.Segment(elf.PT_DYNAMIC, 0)+elftest.PhFilesz, 1<<21)
	large.Append(make([]byte, 1<<21))
	if got, err := SizeMultiple(elftest.Parse(t, large.B)); err == nil ||
		!strings.Contains(err.Error(), "exceed the limit of 1048576") {
		t.Errorf("with many dynamic entries: %d, error %v", got, err)
	}
}

// TestInterpreterInPlace replaces a linker's .sframe, the last section of an interpreter, with a smaller one that must
// end at the same offset.
func TestInterpreterInPlace(t *testing.T) {
	p := elftest.Patch(t.Fatalf, interpreter(t))
	s := linkersSection(t, p)
	for _, n := range []uint64{s.Size &^ 7, 41, 40, 8} {
		f := elftest.Parse(t, add(t, p.B, content(int(n)), Options{Force: true}))
		all := typedSections(f)
		if want := s.Addr + (s.Size-n)&^7; len(all) != 1 || all[0].Addr != want || want%8 != 0 || all[0].Size != n ||
			all[0].Off-s.Off != want-s.Addr {
			t.Errorf("%d bytes in the place of %d at %#x: sections %+v; want address %#x", n, s.Size, s.Addr, all, want)
		}
	}
}
