package cfi

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/must"
)

// TestSources converts sources to names and back.
func TestSources(t *testing.T) {
	for s, name := range map[Source]string{Auto: "auto", EHFrame: "eh_frame", DebugFrame: "debug_frame"} {
		if got, err := ParseSource(name); err != nil || got != s || s.String() != name {
			t.Errorf("%s: %v, error %v", name, got, err)
		}
	}
	if _, err := ParseSource(".eh_frame"); err == nil ||
		err.Error() != `unknown source ".eh_frame"; use auto, eh_frame, debug_frame or gopclntab` {
		t.Errorf("error %v", err)
	}
	if s := Source(4).String(); s != "Source(4)" {
		t.Error(s)
	}
}

// TestParseErrors passes unsupported sections to Parse.
func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		machine elf.Machine
		source  Source
		want    string
	}{
		{elf.EM_RISCV, EHFrame, "machine EM_RISCV: SFrame is defined for "},
		{elf.EM_X86_64, Auto, "section with source auto; use EHFrame or DebugFrame"},
		{elf.EM_X86_64, Source(7), "section with source Source(7); use EHFrame or DebugFrame"},
	} {
		if table, err := Parse(tt.machine, binary.LittleEndian, Section{Source: tt.source}); err == nil ||
			!strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%v, error %v, want %q", table, err, tt.want)
		} else if is := errors.Is(err, arch.ErrABI); is != (tt.machine == elf.EM_RISCV) {
			t.Errorf("%v: is ErrABI: %t", err, is)
		}
	}
}

// TestBothSections parses .debug_frame and two sections .eh_frame in memory. .eh_frame takes precedence where both
// describe code.
func TestBothSections(t *testing.T) {
	for _, tg := range targets {
		for _, wide := range []bool{false, true} {
			eh, debug := ehFrame(tg), debugFrame(tg)
			eh.Wide, debug.Wide = wide, wide
			first := eh.Entry(eh.Shared(plainCIE), eh.Addresses(0, 0x10), []byte{0x0e, 24}) // address 0 is not special
			third := eh.Entry(0, eh.Addresses(0x30, 0x10), []byte{0x0e, 24})
			cie := debug.Shared([]byte{4, 0, 8, 0, 1, 0x78, 0x90, 0x80, 0, 0x0c, 7, 8, 0x90, 1}) // column 16
			// rows at 8 and 32
			second := debug.Entry(cie, debug.Addresses(0x20, 0x40), []byte{0x48, 0x0e, 32, 0x58, 0x0e, 40})
			more := ehFrame(tg)
			last := more.Entry(more.Shared(plainCIE), more.Addresses(0x100, 0x10))
			table, err := Parse(tg.machine, tg.order, Section{Source: EHFrame, Data: more.B},
				Section{Source: EHFrame, Data: eh.B}, Section{Source: DebugFrame, Data: debug.B})
			if err != nil || table.NumErrors > 0 {
				t.Fatalf("%v: errors %v %v", tg.machine, table.Errors, err)
			}
			var got []string
			for fn := range table.Functions() {
				for r := range fn.Rows() {
					got = append(got, fmt.Sprintf("%s+%#x %#x-%#x %d r%d", fn.Section(), fn.Offset(), r.Begin, r.End,
						r.CFA.Offset, r.RAReg))
				}
			}
			want := []string{
				fmt.Sprintf(".eh_frame+%#x 0x0-0x10 24 r16", first),
				fmt.Sprintf(".debug_frame+%#x 0x20-0x28 8 r16", second),
				fmt.Sprintf(".debug_frame+%#x 0x28-0x30 32 r16", second),
				fmt.Sprintf(".eh_frame+%#x 0x30-0x40 24 r16", third),
				fmt.Sprintf(".debug_frame+%#x 0x40-0x60 40 r16", second),
				fmt.Sprintf(".eh_frame+%#x 0x100-0x110 8 r16", last),
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v, 64-bit DWARF %t:\n got %q\nwant %q", tg.machine, wide, got, want)
			}
			// FDE returns the same for two functions if and only if they are parts of one FDE.
			if a, b := table.Find(0x20), table.Find(0x50); a == b || a.FDE() != b.FDE() || a.Program() != -1 ||
				b.Program() != -1 {
				t.Errorf("%v: pieces %+v and %+v", tg.machine, a, b)
			}
			if a, b := table.Find(0), table.Find(0x30); a.FDE() == b.FDE() || a.FDE() == table.Find(0x20).FDE() ||
				a.Program() != b.Program() {
				t.Errorf("%v: functions %+v and %+v", tg.machine, a, b)
			}
			info := []SourceInfo{{".eh_frame", uint64(len(more.B)), 1}, {".eh_frame", uint64(len(eh.B)), 2},
				{".debug_frame", uint64(len(debug.B)), 1}}
			if !slices.Equal(table.Sources, info) {
				t.Errorf("%v: sources %+v", tg.machine, table.Sources)
			}
		}
	}
}

// tableAt returns a table with functions of size 0x10 at the given addresses, with two rows each.
func tableAt(t *testing.T, starts ...uint64) *Table {
	t.Helper()
	w := ehFrame(amd64)
	cie := w.Shared(plainCIE)
	for _, s := range starts {
		// rows at 4 and 36, the latter after the end of the function
		w.Entry(cie, w.Addresses(s, 0x10), []byte{0x44, 0x0e, 16, 0x60, 0x0e, 24})
	}
	return parse(t, w)
}

// TestFind looks up addresses at the boundaries of functions and rows.
func TestFind(t *testing.T) {
	table := tableAt(t, 0x1000, 0x1010, 0x2000)
	for _, tt := range []struct {
		pc    uint64
		begin uint64 // start of the function, or 0
		row   uint64
	}{
		{0, 0, 0}, {0xfff, 0, 0}, {0x1000, 0x1000, 0x1000}, {0x1003, 0x1000, 0x1000}, {0x1004, 0x1000, 0x1004},
		{0x100f, 0x1000, 0x1004},
		{0x1010, 0x1010, 0x1010}, {0x101f, 0x1010, 0x1014}, {0x1020, 0, 0}, {0x1fff, 0, 0}, {0x2000, 0x2000, 0x2000},
		{0x200f, 0x2000, 0x2004}, {0x2010, 0, 0}, {math.MaxUint64, 0, 0},
	} {
		fn := table.Find(tt.pc)
		row, ok := table.Lookup(tt.pc)
		if (fn == nil) != (tt.begin == 0) || fn != nil && fn.Begin != tt.begin || ok != (tt.begin != 0) ||
			row.Begin != tt.row {
			t.Errorf("%#x: function %+v, row %+v", tt.pc, fn, row)
		}
	}
	if steps := table.At(0).Steps(); len(steps) != 3 || steps[2].Off != 36 {
		t.Errorf("steps %v", steps)
	}
}

// TestPart splits a table.
func TestPart(t *testing.T) {
	table := tableAt(t, 0x1000, 0x1010, 0x1020, 0x1030)
	for i := range table.Len() + 1 {
		a, b := table.Part(0, i), table.Part(i, table.Len())
		if a.Len() != i || b.Len() != table.Len()-i || (a.Find(0x1000) != nil) != (i > 0) ||
			b.NumRules() != table.NumRules() || i < 4 && b.At(0).Begin != table.At(i).Begin {
			t.Errorf("%d and %d functions of %d", a.Len(), b.Len(), table.Len())
		}
	}
	for n := range 7 {
		next := uint64(0x1000)
		parts := table.Split(n)
		if len(parts) != max(n, 1) {
			t.Errorf("%d parts instead of %d", len(parts), n)
		}
		for _, p := range parts {
			for fn := range p.Functions() {
				if fn.Begin != next {
					t.Errorf("%d parts: function at %#x; want %#x", n, fn.Begin, next)
				}
				next += 0x10
			}
			if n := max(n, 1); p.Len() > (4+n-1)/n {
				t.Errorf("%d parts: one has %d functions", n, p.Len())
			}
		}
		if next != 0x1040 {
			t.Errorf("%d parts: the functions end at %#x", n, next)
		}
	}
	odd := table.Only(func(fn *Function) bool { return fn.Begin&0x10 != 0 })
	if odd.Len() != 2 || odd.At(0).Begin != 0x1010 || odd.At(1).Begin != 0x1030 || table.Len() != 4 {
		t.Errorf("%d functions of %d", odd.Len(), table.Len())
	}
}

// TestLarge parses an FDE that covers 4 GiB, and one that covers a byte less.
func TestLarge(t *testing.T) {
	w := ehFrame(s390x)
	cie := w.Shared(plainCIE)
	w.Entry(cie, w.Addresses(1<<40, math.MaxUint32))
	at := w.Entry(cie, w.Addresses(2<<40, math.MaxUint32+1))
	table := parse(t, w)
	if table.Len() != 2 || table.At(0).Err() != nil {
		t.Fatalf("%d functions, error %v", table.Len(), table.At(0).Err())
	}
	want := Error{".eh_frame", uint64(at), "FDE covers 4294967296 bytes of code; at most 4 GiB - 1 are supported"}
	if e, ok := table.At(1).Err().(*Error); !ok || *e != want {
		t.Errorf("error %v, want %v", table.At(1).Err(), &want)
	}
}

// TestBadRecords parses malformed records after a valid function, and expects the function to be kept.
func TestBadRecords(t *testing.T) {
	raw := func(b string) func(*writer) { return func(w *writer) { w.B = append(w.B, b...) } }
	cie := func(body ...[]byte) func(*writer) { // plus an FDE
		return func(w *writer) { w.Entry(w.Shared(body...), w.Addresses(textAddr, 0x10), []byte{0x20, 0}) }
	}
	pointer := func(p uint64) func(*writer) { return func(w *writer) { w.Record(int(p), w.Addresses(textAddr, 0x10)) } }
	long := append(bytes.Repeat([]byte{0x80}, 99), 1)
	const zeros, max = "\x00\x00\x00\x00", "\xff\xff\xff\xff"
	for _, tt := range []struct {
		name string
		add  func(w *writer)
		off  uint64
		want string
	}{
		{"length truncated", raw("\x01\x00\x00"), 0, "operand of 4 bytes, but the record has only 3 left"},
		{"64-bit length cut off", raw(max + "\x01\x00"), 4, "operand of 8 bytes, but the record has only 2 left"},
		{"reserved length", raw("\xf0\xff\xff\xff"), 0, "length 0xfffffff0 is reserved"},
		{"length 2^64-1", raw(max + max + max + zeros), 0,
			"record of 18446744073709551615 bytes, but the section has only 4 left"},
		{"length 2^32-17", raw("\xef\xff\xff\xff" + zeros), 0,
			"record of 4294967279 bytes, but the section has only 4 left"},
		{"longer than the section", raw("\x05\x00\x00\x00" + zeros), 0,
			"record of 5 bytes, but the section has only 4 left"},
		{"without an id", raw("\x02\x00\x00\x00\x01\x02"), 4, "operand of 4 bytes, but the record has only 2 left"},
		{"CIE pointer before the section", pointer(0x7fffffff), 4,
			"CIE pointer 0x7fffffff points before the start of the section"},
		{"CIE pointer to an FDE", pointer(4), 0, "not a CIE, but an FDE refers to it"},
		{"CIE version", cie([]byte{2, 0, 1, 0x78, 16}), 8, "unknown CIE version 2"},
		{"augmentation not terminated", cie([]byte("\x01zR")), 9, "augmentation"},
		{"long augmentation", cie([]byte{1}, bytes.Repeat([]byte{'z'}, 65), []byte{0}), 9,
			`augmentation "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz" has 65 bytes, more than 64`},
		{"augmentation unknown", cie([]byte("\x01X\x00\x01\x78\x10")), 9, `augmentation "X" is unknown`},
		{"augmentation data of 2^63 bytes", cie([]byte("\x01zR\x00\x01\x78\x10"),
			bytes.Repeat([]byte{0x80}, 9), []byte{1, 0}), 0x19, "augmentation data of 9223372036854775808 bytes"},
		{"augmentation data too short", cie([]byte("\x01zPLR\x00\x01\x78\x10\x01\x00")), 0x13,
			"operand of 8 bytes, but the record has only 0 left"},
		{"augmentation data of an FDE past the end", cie([]byte("\x01zR\x00\x01\x78\x10\x01\x00")), 0x12 + 0x18,
			"augmentation data of 32 bytes, but the record has only 1 left"},
		{"addresses of 4 bytes", cie([]byte{4, 0, 4, 0, 1, 0x78, 16}), 10,
			"CIE with address size 4 and segment size 0; only 8 and 0 are supported"},
		{"segments", cie([]byte{4, 0, 8, 1, 1, 0x78, 16}), 10,
			"CIE with address size 8 and segment size 1; only 8 and 0 are supported"},
		{"no alignments", cie([]byte{1, 0}), 10, "record ends before operand"},
		{"code alignment of 100 bytes", cie([]byte{1, 0}, long), 10, "unsigned LEB128 number exceeds 64 bits"},
		{"data alignment -2^63", cie([]byte{1, 0, 1}, bytes.Repeat([]byte{0x80}, 9), []byte{0x7f, 16, 0x90, 1}), 0x17,
			"offset 1 times the data alignment -9223372036854775808 is too large"},
		{"EH data cut off", cie([]byte("\x01eh\x001234")), 12, "operand of 8 bytes, but the record has only 4 left"},
	} {
		w := ehFrame(amd64)
		w.Entry(w.Shared(plainCIE), w.Addresses(textAddr+0x100, 0x10))
		sound := uint64(len(w.B))
		tt.add(w)
		table := parse(t, w)
		if table.Len() != 1 || table.At(0).Begin != textAddr+0x100 || len(table.Errors) == 0 ||
			table.Errors[0].Off != sound+tt.off || !strings.HasPrefix(table.Errors[0].Msg, tt.want) {
			t.Errorf("%s: %d functions, errors %v, want %#x: %s", tt.name, table.Len(), table.Errors, sound+tt.off,
				tt.want)
		}
	}

	// CIE pointers in .debug_frame are offsets from the start of the section.
	w := debugFrame(amd64)
	w.Shared(plainCIE)
	end := len(w.B) + 24
	w.Entry(end, w.Addresses(textAddr, 0x10))
	if table := parse(t, w); len(w.B) != end || len(table.Errors) != 2 ||
		*table.Errors[0] != (Error{".debug_frame", uint64(end), "CIE pointer points past the end of the section"}) {
		t.Errorf("errors %v", table.Errors)
	}
}

// TestManyErrors parses so many FDEs without a CIE that not all errors are recorded.
func TestManyErrors(t *testing.T) {
	const n = maxErrors + 50
	w := debugFrame(amd64)
	for i := range n {
		w.Entry(i<<20, w.Addresses(textAddr, 0x10))
	}
	table := parse(t, w)
	if table.Len() != 0 || len(table.Errors) != maxErrors || table.NumErrors != 2*n {
		t.Errorf("%d errors, %d of them kept", table.NumErrors, len(table.Errors))
	}
}

// TestOverlappingCIEs parses so many overlapping CIEs that their total size exceeds that of the section.
func TestOverlappingCIEs(t *testing.T) {
	w := debugFrame(amd64)
	// Each pair of words starts a CIE: a length of 0xfff bytes, and the id of CIEs.
	for range 16 {
		w.B = append(w.B, 0xff, 0x0f, 0, 0, 0xff, 0xff, 0xff, 0xff)
	}
	w.B = append(w.B, make([]byte, 0x1003+8-len(w.B))...)
	w.B = append(w.B, make([]byte, 0x100)...)
	for i := range 16 {
		w.Entry(8*i, w.Addresses(textAddr+0x10*uint64(i), 0x10))
	}
	table := parse(t, w)
	found := slices.ContainsFunc(table.Errors, func(e *Error) bool {
		return e.Msg == fmt.Sprintf("CIEs overlap: their total size exceeds the %d bytes of the section", len(w.B))
	})
	if !found || table.Len() != 0 {
		t.Errorf("%d functions, errors %v", table.Len(), table.Errors)
	}
}

// TestLoadNothing loads files without CFI, or without CFI from the requested source.
func TestLoadNothing(t *testing.T) {
	other, malformed := tinyELF(t, amd64, ".data", []byte{1}), tinyELF(t, amd64, ".gopclntab", make([]byte, 128))
	eh := ehFrame(amd64)
	eh.Entry(eh.Shared(plainCIE), eh.Addresses(textAddr, 0x10))
	for _, tt := range []struct {
		f    *elffile.File
		src  Source
		want string
	}{
		{other, Auto, "neither .eh_frame nor .debug_frame"},
		{other, EHFrame, "neither .eh_frame nor a PT_GNU_EH_FRAME that points to it"},
		{other, DebugFrame, "no .debug_frame"},
		{malformed, DebugFrame, "no .debug_frame"},
		{malformed, EHFrame, "neither .eh_frame nor a PT_GNU_EH_FRAME that points to it"},
		{tinyELF(t, amd64, ".eh_frame", eh.B), DebugFrame, "no .debug_frame"},
		{tinyELF(t, amd64, ".debug_frame", eh.B), EHFrame, "neither .eh_frame nor a PT_GNU_EH_FRAME that points to it"},
	} {
		if _, err := Load(tt.f, tt.src, nil); !errors.Is(err, ErrNone) || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%v: error %v, want %q", tt.src, err, tt.want)
		}
	}
	for _, src := range []Source{Auto, GoPCLNTab} {
		if table, err := Load(malformed, src, nil); err != nil || table.NumErrors != 1 {
			t.Errorf("%v: %+v, error %v", src, table, err)
		}
	}
	other.Machine = uint16(elf.EM_386)
	if _, err := Load(other, Auto, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "machine EM_386: SFrame is defined for ") {
		t.Errorf("error %v", err)
	}
}

// TestDebugFile checks that .debug_frame is read from the debug file only if the program has none.
func TestDebugFile(t *testing.T) {
	debug := debugFrame(aarch64)
	debug.Entry(debug.Shared([]byte{1, 0, 1, 0x78, 30, 0x0c, 31, 0}), debug.Addresses(textAddr, 0x10))
	with, without := tinyELF(t, aarch64, ".debug_frame", debug.B), tinyELF(t, aarch64, ".data", []byte{1})
	for _, tt := range []struct {
		f, debug *elffile.File
		want     bool
	}{{without, with, true}, {with, with, false}, {with, without, false}, {with, nil, false}} {
		table, err := Load(tt.f, Auto, tt.debug)
		if err != nil || table.Len() != 1 || table.Debug != tt.want || table.Sources[0].Name != ".debug_frame" {
			t.Errorf("%+v, error %v; from the debug file: %t", table, err, tt.want)
		}
	}
	if _, err := Load(without, EHFrame, with); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	if table, err := Load(tinyELF(t, aarch64, ".eh_frame", nil), Auto, without); err != nil || table.Debug {
		t.Errorf("%+v, error %v", table, err)
	}
}

// TestRewritten loads a program that BOLT has rewritten. Its .debug_frame, and that of its debug file, describes the
// code before that, so it is used on request only.
func TestRewritten(t *testing.T) {
	w := debugFrame(amd64)
	w.Entry(w.Shared(plainCIE), w.Addresses(textAddr, 0x10))
	note := elffile.Section{}
	note.Name = ".note.bolt_info"
	for _, inDebug := range []bool{false, true} {
		f, debug := tinyELF(t, amd64, ".debug_frame", w.B), (*elffile.File)(nil)
		f.Sections = append(f.Sections, note)
		if inDebug {
			f, debug = tinyELF(t, amd64, ".data", []byte{1}), f
		}
		if table, err := Load(f, Auto, debug); !errors.Is(err, ErrNone) {
			t.Errorf("%+v, error %v", table, err)
		}
		if table, err := Load(f, DebugFrame, debug); err != nil || table.Len() != 1 {
			t.Errorf("on request: %+v, error %v", table, err)
		}
	}
}

// TestHeader finds .eh_frame through .eh_frame_hdr in a file without section headers.
func TestHeader(t *testing.T) {
	const off = 64 + 56 // file offset of the section contents in tinyELF
	for _, tg := range targets {
		w := ehFrame(tg)
		w.Entry(w.Shared(plainCIE), w.Addresses(frameAddr, 0x10))
		w.B = append(w.B, 0, 0, 0, 0) // terminator
		w.B = append(w.B, 9, 9, 9, 9, 9)
		header := len(w.B)
		words := func(enc byte, v uint32) []byte { return w.order.AppendUint32([]byte{1, enc, 3, 0x3b}, v) }
		for _, tt := range []struct {
			name string
			b    []byte
			want string
		}{
			{"pc-relative", words(0x1b, uint32(-(header + 4))), ""},
			{"relative to itself", words(0x3b, uint32(-header)), ""},
			{"absolute", words(0x03, frameAddr), ""},
			{"function-relative", words(0x43, frameAddr), ""}, // as in FDEs, relative to 0
			{"aligned", w.order.AppendUint64(append([]byte{1, 0x50, 3, 0x3b}, make([]byte, -(header+4)&7)...),
				frameAddr), ""},
			{"indirect", w.order.AppendUint64(words(0x83, uint32(frameAddr+header+8)), frameAddr), ""},
			{"at the end", words(0x03, uint32(frameAddr+header+8)), fmt.Sprintf("PT_GNU_EH_FRAME+0x0: points to "+
				".eh_frame at address %#x, which is not in a loaded segment", frameAddr+header+8)},
			{"version", append([]byte{2}, words(0x1b, 0)[1:]...),
				"PT_GNU_EH_FRAME+0x0: unknown version 2 of .eh_frame_hdr"},
			{"truncated", []byte{1, 0x1b, 3},
				"PT_GNU_EH_FRAME+0x2: encodings of 2 bytes, but the record has only 1 left"},
			{"omitted", words(0xff, 0), "PT_GNU_EH_FRAME+0x4: required pointer is omitted (encoding 0xff)"},
			{"elsewhere", words(0x03, 0x1234),
				"PT_GNU_EH_FRAME+0x0: points to .eh_frame at address 0x1234, which is not in a loaded segment"},
			{"empty", nil, "no CFI: neither .eh_frame nor a PT_GNU_EH_FRAME that points to it"},
			{"cleared", make([]byte, 12), "no CFI: neither .eh_frame nor a PT_GNU_EH_FRAME that points to it"},
			{"ELF header", words(0x03, frameAddr-off),
				"no CFI: neither .eh_frame nor a PT_GNU_EH_FRAME that points to it"},
		} {
			data := slices.Concat(w.B, tt.b)
			f := tinyELF(t, tg, ".eh_frame", data)
			f.Sections = nil
			p := &f.Progs[0]
			p.Flags |= uint32(elf.PF_X)
			p.Off, p.Vaddr, p.Filesz, p.Memsz = 0, p.Vaddr-off, p.Filesz+off, p.Memsz+off
			f.Progs = append(f.Progs, elf.Prog64{Type: uint32(elf.PT_GNU_EH_FRAME), Off: off + uint64(header),
				Vaddr: frameAddr + uint64(header), Filesz: uint64(len(tt.b))})
			table, err := Load(f, EHFrame, nil)
			switch {
			case tt.want != "":
				if err == nil || err.Error() != tt.want {
					t.Errorf("%v, %s: error %v, want %q", tg.machine, tt.name, err, tt.want)
				}
			case err != nil || table.Len() != 1 || table.NumErrors != 0 || table.At(0).Begin != frameAddr ||
				table.Sources[0].Size != uint64(header)-5:
				t.Errorf("%v, %s: %+v, error %v", tg.machine, tt.name, table, err)
			}
		}
	}
}

// TestHeaderTooMuch loads files with a segment that is larger than the file or the limit on CFI.
func TestHeaderTooMuch(t *testing.T) {
	for size, want := range map[uint64]string{
		anyTotal + 2: "12582913 bytes of CFI, in addition to 0 in other sections, exceed the limit of 12582912",
		anyTotal:     "12582911 bytes do not fit in the file of ",
	} {
		f := tinyELF(t, amd64, ".eh_frame", amd64.order.AppendUint32([]byte{1, 3, 3, 0x3b}, frameAddr+1))
		f.Sections = nil
		p := &f.Progs[0]
		header := *p
		header.Type = uint32(elf.PT_GNU_EH_FRAME)
		p.Filesz, p.Memsz = size, size
		f.Progs = append(f.Progs, header)
		if table, err := Load(f, EHFrame, nil); err == nil ||
			!strings.HasPrefix(err.Error(), ".eh_frame at file offset 0x79: "+want) {
			t.Errorf("%+v, error %v, want %q", table, err, want)
		}
	}
}

// TestUnreadable loads files with a section outside the file, or whose cost exceeds the budget.
func TestUnreadable(t *testing.T) {
	w := debugFrame(amd64)
	cie := w.Shared(plainCIE)
	for i := range 1000 { // distinct programs
		w.Entry(cie, w.Addresses(textAddr, 0x10), w.order.AppendUint32([]byte{4}, uint32(i)))
	}
	reading := costCFI * uint64(len(w.B))
	for _, tt := range []struct {
		name string
		more uint64 // distance by which the section is moved past the end of the file
		left uint64 // rest of the budget
		want string
	}{
		{".eh_frame", 1 << 20, reading, "section .eh_frame at file offset 0x100078: "},
		{".debug_frame", 1 << 20, reading, "section .debug_frame at file offset 0x100078: "},
		{".gopclntab", 1 << 20, reading, "section .gopclntab at file offset 0x100078: "},
		{".debug_frame", 0, reading - 1, "section .debug_frame at file offset 0x78: "},
		{".debug_frame", 0, reading + costProgram*1000, "CFI with 1000 distinct programs: "},
	} {
		f := tinyELF(t, amd64, tt.name, w.B)
		f.Sections[2].Off += tt.more
		must.Do(t, f.Budget().Spend(1, 1_200_000_000+300*f.Size-tt.left))
		if table, err := Load(f, Auto, nil); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v, error %v, want %q", table, err, tt.want)
		}
	}
}

// TestTooMuch checks that the limit on CFI depends on the size of the file.
func TestTooMuch(t *testing.T) {
	r := newReader(&elffile.File{Size: 100}, nil)
	if err := r.take(nil, "section x", 16, anyTotal); err != nil {
		t.Error(err)
	}
	want := "section y at file offset 0x11: 1 bytes of CFI, in addition to 12582912 in other sections, " +
		"exceed the limit of 12582912 for a file of this size"
	if err := r.take(nil, "section y", 17, 1); err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
	for _, tt := range []struct{ size, debug, want uint64 }{
		{anyTotal + 1, 0, anyTotal + 1}, {1, anyTotal + 2, anyTotal + 2}, {maxTotal + 1, 0, maxTotal},
		{1, maxTotal + 1, maxTotal},
	} {
		if got := newReader(&elffile.File{Size: tt.size}, &elffile.File{Size: tt.debug}).limit; got != tt.want {
			t.Errorf("files of %d and %d bytes: %d bytes are read, want %d", tt.size, tt.debug, got, tt.want)
		}
	}
}

// TestSize adds up the sizes of sections from their headers.
func TestSize(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags elf.SectionFlag
		want  uint64
	}{{".eh_frame", 0, 100}, {".debug_frame", 0, 100}, {".debug_frame", elf.SHF_COMPRESSED, 400},
		{".zdebug_frame", 0, 400}, {".data", 0, 0}} {
		f := tinyELF(t, amd64, tt.name, make([]byte, 100))
		f.Sections[2].Flags |= uint64(tt.flags)
		n := Size(f)
		f.Sections[2].Size = f.Size + 1
		large := Size(f)
		f.Sections[2].Size = f.Size
		most := Size(f)
		f.Sections = nil
		if n != tt.want || large != 0 || most != tt.want/100*f.Size || Size(f) != f.Size {
			t.Errorf("%+v: %d bytes, %d of a section larger than the file, %d without headers", tt, n, large, Size(f))
		}
	}
}
