package elfwrite

import (
	"debug/elf"
	"encoding/binary"
	"maps"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
)

// TestReferences finds references to the code of a program from symbols, the entry point, dynamic entries, and sections
// of pointers.
func TestReferences(t *testing.T) {
	const leaf, once, start = 0x3a7, 0x3aa, 0x402 // functions, from readelf -s
	arrayAt := func(addr, size uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			replaceDebug(elf.DT_FINI_ARRAY, addr)(p)
			null := dynamicEntry(p, elf.DT_NULL)
			p.Put64(null, uint64(elf.DT_FINI_ARRAYSZ))
			p.Put64(null+8, size)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		more   uint64 // target of an additional reference, or 0
		err    string
	}{
		{"symbols", func(*elftest.Patcher) {}, 0, ""},
		{"the entry point", func(p *elftest.Patcher) { p.Put64(elftest.EhEntry, once+3) }, once + 3, ""},
		{"DT_INIT", replaceDebug(elf.DT_INIT, once+5), once + 5, ""},
		{"DT_FINI_ARRAY", func(p *elftest.Patcher) {
			arrayAt(0x448, 8)(p) // .eh_frame
			p.Put64(0x448, once+7)
		}, once + 7, ""},
		{"a section of pointers", func(p *elftest.Patcher) {
			p.AddSection(".ctors", uint64(elf.SHF_ALLOC), binary.LittleEndian.AppendUint64(nil, once+9))
		}, once + 9, ""},
		{"an array outside the file", arrayAt(1<<40, 8), 0,
			"DT_FINI_ARRAY refers to 8 bytes at address 0x10000000000, which are not in a loaded segment"},
		{"a large section of pointers", func(p *elftest.Patcher) {
			p.AddSection(".ctors", uint64(elf.SHF_ALLOC), make([]byte, 17<<20))
		}, 0, "section .ctors has 17825792 bytes, more than the limit of 16777216"},
		{"dynamic entries outside the file", func(p *elftest.Patcher) {
			p.Put64(p.Segment(elf.PT_DYNAMIC, 0)+elftest.PhOff, 1<<40)
		}, 0, "PT_DYNAMIC at file offset 0x10000000000: 208 bytes do not fit in the file"},
		{"dynamic symbols without section headers", bare, 0, "without section headers, the symbols are unknown"},
		{"unsupported relocations", func(p *elftest.Patcher) {
			addRelocations(p, shtCREL, elf.SHF_ALLOC, 4, 0, make([]byte, 8))
		}, 0, "has unsupported relocations of type 0x40000014"},
	} {
		f := elftest.Parse(t, patched(t, "alloca", tt.change))
		found, planned := make(map[uint64]bool), make(map[uint64]bool)
		into := func(all map[uint64]bool) func(first, last uint64) {
			return func(first, last uint64) {
				for at := first; at <= last; at++ {
					all[at] = true
				}
			}
		}
		err := References(f, into(found))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		p := must.Get(NewProgram(f, Options{Refers: into(planned)}))(t)
		must.Get(p.Plan(100))(t)
		if err := p.References(into(planned)); err != nil || !maps.Equal(planned, found) {
			t.Errorf("%s: the layout reports different references, error %v", tt.name, err)
		}
		for pc := uint64(leaf); pc < start; pc++ {
			if got, want := found[pc], pc == leaf || pc == once || pc == 0x3d2 || pc == tt.more; got != want {
				t.Errorf("%s: %#x is referred to: %t", tt.name, pc, got)
			}
		}
	}
}
