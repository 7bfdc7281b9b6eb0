package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestLoadAddresses expects the load addresses of the new segment to be after all contents of other segments, not to
// overlap their .bss, and to have the same offset in a page as its run-time addresses.
func TestLoadAddresses(t *testing.T) {
	const (
		vaddr = 0x400000     // address of the first segment (0x4ec bytes); the second (0x130 bytes) is at 0x401ed0
		first = 0x10_0000    // load address of the first segment
		data  = 0x20_0000_00 // load address of the second segment
	)
	type load struct{ paddr, memsz uint64 } // of the second segment; memsz == 0 stands for the size in the file
	for _, tt := range []struct {
		name string
		load
		bss  []elffile.Span // load addresses of additional segments without contents
		want uint64         // page of the new segment's load address
	}{
		{"after the data", load{data, 0}, nil, data + 0x1000},
		{"after the first segment", load{first - 0x8000, 0}, nil, first + 0x1000},
		{"after the .bss of the data", load{data, 0x2345}, nil, data + 0x3000},
		{"a distant .bss", load{data, 0}, []elffile.Span{span(data+0x1000_0000, data+0x1000_0100)}, data + 0x1000},
		{"a .bss at the same addresses", load{data, 0}, []elffile.Span{span(data+0x1200, data+0x7001)}, data + 0x8000},
		{"one .bss after the other", load{data, 0x1800}, []elffile.Span{span(data+0x2000, data+0x4001)}, data + 0x5000},
		{"one .bss before the other", load{data, 0},
			[]elffile.Span{span(data+0x5000, data+0x6000), span(data+0x1200, data+0x4801)}, data + 0x6000},
	} {
		b := patched(t, "undefra", func(p *elftest.Patcher) {
			p.Put64(p.Segment(elf.PT_LOAD, 0)+elftest.PhVaddr+8, first)
			h := p.Segment(elf.PT_LOAD, 1)
			p.Put64(h+elftest.PhVaddr+8, tt.paddr)
			if tt.memsz > 0 {
				p.Put64(h+elftest.PhMemsz, tt.memsz)
			}
			for i, bss := range tt.bss {
				h := p.Segment([]elf.ProgType{elf.PT_GNU_STACK, elf.PT_GNU_RELRO}[i], 0)
				p.Prog(h, elf.PT_LOAD, 1<<40*uint64(i), 0x500000+0x100000*uint64(i), 0)
				p.Put64(h+elftest.PhVaddr+8, bss.Begin)
				p.Put64(h+elftest.PhMemsz, bss.End-bss.Begin)
			}
		})
		out := add(t, b, content(1000), Options{})
		f := elftest.Parse(t, out)
		h := f.Progs[lastLoad(elftest.Parse(t, out).Progs)]
		if want := tt.want + h.Vaddr%0x1000; h.Paddr != want {
			t.Errorf("%s: load address %#x; want %#x", tt.name, h.Paddr, want)
		}
		if g := f.Prog(elf.ProgType(sframe.PTGNUSFrame)); g.Paddr-h.Paddr != g.Vaddr-h.Vaddr {
			t.Errorf("%s: PT_GNU_SFRAME %+v, segment %+v", tt.name, g, h)
		}
		// Units that moved within the first segment keep their distance from its start.
		if g := f.Prog(elf.PT_INTERP); g.Vaddr-vaddr < 0x1000 && g.Paddr != first+(g.Vaddr-vaddr) ||
			g.Vaddr == vaddr+0x238 {
			t.Errorf("%s: PT_INTERP %+v", tt.name, g)
		}
	}

	load1 := func(off, vaddr, paddr, filesz, memsz uint64) elf.Prog64 {
		return elf.Prog64{Type: uint32(elf.PT_LOAD), Off: off, Vaddr: vaddr, Paddr: paddr, Filesz: filesz, Memsz: memsz}
	}
	plain := load1(0x1000, 0x11000, 0x11000, 8, 16)
	note := elf.Prog64{Type: uint32(elf.PT_NOTE), Vaddr: 0x10100, Paddr: 0x20100, Memsz: 8}
	const headers = elffile.HeaderSize + 2*elffile.ProgSize
	for _, tt := range []struct {
		first, second elf.Prog64
		want          loadAddrs
	}{
		{plain, plain, virtual},
		{plain, note, virtual}, // only segments that are loaded count
		{load1(0, 0x10000, 0xf000, headers, headers), plain, virtual},
		{load1(0, 0x10000, 0xf000, headers+1, headers+1), plain, physical},
		{load1(0, 0x10000, 0xf000, headers, headers+1), plain, physical},
		{load1(8, 0x10000, 0xf000, headers, headers), plain, physical},
		{load1(8, 0x10000, 0xf000, 0, 0), plain, virtual},
		{load1(0, 0x10000, 0, 8, 8), load1(0x1000, 0x11000, 0, 8, 16), absent},
		{load1(0, 0x10000, 0, 8, 8), plain, virtual}, // the first contains only headers
		{load1(0, 0x10000, 0, 0x800, 0x800), plain, physical},
	} {
		f := &elffile.File{Progs: []elf.Prog64{tt.first, tt.second}}
		f.Phoff = elffile.HeaderSize
		if got := loadAddrsOf(f); got != tt.want {
			t.Errorf("%+v, %+v: %d, want %d", tt.first, tt.second, got, tt.want)
		}
	}
	one := elf.Prog64{Type: uint32(elf.PT_LOAD), Paddr: 0x10000, Filesz: 1, Memsz: 1}
	p := &Program{f: &elffile.File{Progs: []elf.Prog64{one}}, page: 0x1000, loadAddrs: physical}
	if got, err := p.physicalAddr(&segment{addr: 0x7123}); err != nil || got != 0x11123 {
		t.Errorf("after one byte: load address %#x, error %v", got, err)
	}
	if got := p.loadAddrIn(&segment{addr: 0x7000, load: 0x1000}, 0x7010); got != 0x1010 {
		t.Errorf("in the new segment: load address %#x", got)
	}
	none := patched(t, "undefra", func(p *elftest.Patcher) {
		for i := range int(p.U16(elftest.EhPhnum)) {
			p.Put64(int(p.U64(elftest.EhPhoff))+i*elffile.ProgSize+elftest.PhVaddr+8, 0)
		}
	})
	for i, h := range elftest.Parse(t, add(t, none, content(1000), Options{})).Progs {
		if h.Paddr != 0 {
			t.Errorf("program header %d has load address %#x in a file without any", i, h.Paddr)
		}
	}
	high := patched(t, "undefra", func(p *elftest.Patcher) {
		p.Put64(p.Segment(elf.PT_LOAD, 1)+elftest.PhVaddr+8, math.MaxUint64-0x2000)
	})
	refused(t, "at the end", high, 1000,
		fmt.Sprintf("program header 3: no load addresses left after %#x for another segment",
			uint64(math.MaxUint64-0x2000)))
}

// static returns a static program without code in its head. Its program header table cannot grow: it is followed by
// notes and then by .rela.plt, which cannot move.
func static(t *testing.T, options ...string) []byte {
	t.Helper()
	options = append([]string{"-static", "--build-id", "--eh-frame-hdr", "-z", "separate-code"}, options...)
	return assembleFile(t, "../testdata/asm/amd64/static.s", nil, "ld", options...)
}

// TestNotesStay converts programs with hash tables of several sizes after a note, which must stay in the head: the
// difference between its file offset and address must be that of the ELF header.
func TestNotesStay(t *testing.T) {
	const source = `.globl _start
_start: .irp n, 1, 2, 3, 4, 5, 6, 7, 8, 9
.if \n <= N
.globl f\n
f\n: ret
.endif
.endr
.section .note.ABI-tag,"a",@note
.balign 4
.long 4, 16, 1
.asciz "GNU"
.long 0, 3, 2, 0
`
	for n := range 10 {
		old := assemble(t, fmt.Sprintf("N = %d\n", n)+source, "ld.lld", "-pie", "--build-id=none", "--hash-style=gnu",
			"-E", "-dynamic-linker", "/lib64/ld-linux-x86-64.so.2", "-z", "max-page-size=0x10000")
		b, _ := roundTrip(t, fmt.Sprint(n), old, 1000, 1000)
		f := elftest.Parse(t, b)
		head, note := f.Prog(elf.PT_LOAD), f.Prog(elf.PT_NOTE)
		if note.Off-note.Vaddr != head.Off-head.Vaddr || !bytes.Contains(b[note.Off:][:note.Filesz], []byte("GNU")) {
			t.Errorf("%d: PT_NOTE is %+v, the segment with the ELF header %+v", n, note, head)
		}
	}
}

// TestPropertyMoves converts a program with a private note, which must not move. There is room for the program
// headers only if .note.gnu.property moves, and with it PT_GNU_PROPERTY; the PT_NOTE for the same note is dropped.
func TestPropertyMoves(t *testing.T) {
	peer.Binutils(t, "2.40") // other versions of ld sort the notes differently
	const source = `.globl _start
_start: ret
.section .note.gnu.property,"a",@note
.balign 8
.long 4, 16, 5
.asciz "GNU"
.long 0xc0000002, 4, 3, 0
.section .note.own,"a",@note
.balign 4
.long 4, 4, 1
.asciz "App"
.long 7
`
	old := assemble(t, source, "ld", "-pie", "--build-id", "-dynamic-linker", "/lib64/ld-linux-x86-64.so.2")
	before, after := elftest.Parse(t, old), elftest.Parse(t, add(t, old, content(1000), Options{}))
	property, stays := after.Prog(elf.PT_GNU_PROPERTY),
		after.Section(".note.own").Addr == before.Section(".note.own").Addr
	if a, b := countNotes(before), countNotes(after); a != 2 || b != 1 ||
		property.Vaddr == before.Prog(elf.PT_GNU_PROPERTY).Vaddr || !stays {
		t.Errorf("%d PT_NOTEs become %d, PT_GNU_PROPERTY is %+v, and .note.own stays: %t", a, b, property, stays)
	}
}

// TestRestore removes the .sframe of an executable whose .interp moved to the new segment, and whose note moved within
// the head. Both must return to their old places.
func TestRestore(t *testing.T) {
	const source = `.globl _start
_start: ret
.section .interp,"a"
.fill 99, 1, 'x'
.byte 0
.section .note.abi,"a",@note
.balign 4
.long 4, 20, 1
.asciz "GNU"
.fill 20, 1, 7
.section .next,"a"
.quad 1
`
	script := filepath.Join(t.TempDir(), "script")
	testfile.Write(t, script, `PHDRS { interp PT_INTERP; load PT_LOAD FILEHDR PHDRS; note PT_NOTE; }
SECTIONS { . = 0x400000 + SIZEOF_HEADERS;
.interp : { *(.interp) } :load :interp
.note.abi : { *(.note.abi) } :load :note
.next : ALIGN(64) { *(.next) } :load
.text : { *(.text) } :load }`)
	old := assemble(t, source, "ld", "-T", script)
	b, without := roundTrip(t, "long .interp", old, 1000, 64)
	if before, after := elftest.Parse(t, old), elftest.Parse(t, b); before.Prog(elf.PT_INTERP).Off ==
		after.Prog(elf.PT_INTERP).Off || before.Prog(elf.PT_NOTE).Off == after.Prog(elf.PT_NOTE).Off {
		t.Errorf("the segments %+v are unchanged", after.Progs)
	}
	if !bytes.Equal(without, old) {
		t.Errorf("%d bytes become %d", len(old), len(without))
	}
}

// TestNotRestored removes the .sframe of a library in which two sections moved. The alignment of the second is now so
// large that it does not fit into the head, so both must stay in their segment: .gnu.hash is where the first was.
func TestNotRestored(t *testing.T) {
	b := add(t, testfile.Read(t, "../testdata/bin/amd64/drap2.so"), content(100), Options{})
	moved := must.Get(NewProgram(elftest.Parse(t, b), Options{Force: true}))(t).returned
	if len(moved) != 2 {
		t.Fatalf("%d units moved", len(moved))
	}
	e := elftest.Patch(t.Fatalf, b)
	const addralign = 48 // in a section header
	e.Put64(int(elftest.Parse(t, b).Shoff)+moved[1].section*elffile.SectionSize+addralign, 0x1000)
	if err := image.Contents(elftest.Parse(t, e.B), elftest.Parse(t, remove(t, e.B))); err != nil {
		t.Error(err)
	}
}

// TestPlansAreIndependent plans twice for the same library, in which sections moved to the new segment. The removal
// moves them back, but the first plan, from which the layout is made only then, must not change.
func TestPlansAreIndependent(t *testing.T) {
	b := add(t, testfile.Read(t, "../testdata/bin/amd64/drap2.so"), content(100), Options{})
	p := must.Get(NewProgram(elftest.Parse(t, b), Options{Force: true}))(t)
	table := must.Get(p.extendTable())(t)
	segment := must.Get(p.newSegment(table, 200))(t)
	want := write(t, must.Get(p.layout(table, segment))(t), b, content(200))
	must.Get(p.withoutSFrame())(t)
	if got := write(t, must.Get(p.layout(table, segment))(t), b, content(200)); !bytes.Equal(got, want) {
		t.Error("the removal changed the first plan")
	}
}

// TestFewBytesMove converts a library with many symbols. The smallest sufficient section must move, not the large ones
// before it: they would leave read-only holes in which patchelf --set-rpath places .dynamic, which is writable.
func TestFewBytesMove(t *testing.T) {
	var source strings.Builder
	for i := range 200 {
		fmt.Fprintf(&source, "call name%d@PLT\n", i)
	}
	source.WriteString(".data\n.quad name1, name2, name3, name4, name5, name6\n")
	old := assemble(t, source.String(), "ld", "-shared", "--build-id", "--hash-style=gnu")
	b, _ := roundTrip(t, "many symbols", old, 1000, 64)
	f := elftest.Parse(t, b)
	load := f.Progs[lastLoad(f.Progs)]
	for i := range f.Sections {
		s := &f.Sections[i]
		if moves := s.Addr >= load.Vaddr; s.Alloc() && moves != (s.Name == ".sframe" || s.Name == ".rela.dyn") {
			t.Errorf("%s is at %#x, the new segment at %#x", s.Name, s.Addr, load.Vaddr)
		}
	}
	if n := len(b) - len(old) - 1000; n > 300 {
		t.Errorf("the file grows by %d bytes in addition to .sframe", n)
	}
}

// TestSectionAfterHeaders replaces an .sframe that lld placed directly after the program headers: its bytes become
// space for headers.
func TestSectionAfterHeaders(t *testing.T) {
	// lld leaves space for one program header. The old section is smaller than a second program header,
	// the same size, or larger.
	for _, size := range []int{40, elffile.ProgSize, 400} {
		old := assemble(t, fmt.Sprintf(".globl f\nf: ret\n.section .sframe,\"a\",@%#x\n.balign 8\n.short %#x\n"+
			".fill %d, 1, 0x5a\n", sframe.SHTGNUSFrame, sframe.Magic, size-2), "ld.lld", "-shared", "--build-id=none")
		before := elftest.Parse(t, old)
		at := before.Section(".sframe")
		if end := before.Phoff + uint64(len(before.Progs)+1)*elffile.ProgSize; at.Off > end || at.Size != uint64(size) {
			t.Fatalf(".sframe has %d bytes at file offset %#x; want %d at %#x", at.Size, at.Off, size, end)
		}
		plain := remove(t, old)
		for _, n := range []int{40, 1000} {
			b := add(t, old, content(n), Options{Force: true})
			if bytes.Contains(b, []byte{0x5a, 0x5a}) {
				t.Errorf("%d bytes, now %d: bytes of the old section remain", size, n)
			}
			if again := add(t, b, content(n), Options{Force: true}); !bytes.Equal(again, b) {
				t.Errorf("%d bytes, now %d: a second run gives a different file", size, n)
			}
			if err := image.Compare(elftest.Parse(t, plain), elftest.Parse(t, b)); err != nil {
				t.Errorf("%d bytes, now %d: %v", size, n, err)
			}
			if other := add(t, plain, content(n), Options{}); !bytes.Equal(other, b) {
				t.Errorf("%d bytes, now %d: a different file if the old section was removed before", size, n)
			}
		}
	}
}

// TestFrontAgain converts executables in which a gap of a few bytes separates the data from contents that are not
// loaded. The head moves into this gap, which changes the padding there. Padding must not accumulate.
func TestFrontAgain(t *testing.T) {
	whole := static(t)
	for _, c := range []struct {
		gap    uint64
		filler byte
		kept   bool // the bytes in between are not padding
	}{{0, 0, false}, {4, 0, false}, {4, 0xaa, true}, {24, 0, true}} {
		p := elftest.Patch(t.Fatalf, whole)
		data, load := p.Section(".got.plt"), p.LastLoad()
		end := p.U64(data+elftest.ShOff) + p.U64(data+elftest.ShSize)
		for _, field := range []int{data + elftest.ShSize, load + elftest.PhFilesz, load + elftest.PhMemsz} {
			p.Put64(field, p.U64(field)-c.gap)
		}
		p.Put64(p.Segment(elf.PT_GNU_RELRO, 0)+elftest.PhFilesz, 8)
		copy(p.B[end-c.gap:end], bytes.Repeat([]byte{c.filler}, int(c.gap)))
		for _, size := range []int{1000, 1003, 996} {
			first := add(t, p.B, content(size), Options{})
			f := elftest.Parse(t, first)
			section, next := f.Section(".sframe"), f.Section(".symtab")
			between := first[section.Off+section.Size : next.Off]
			if kept := bytes.HasSuffix(between, p.B[end-c.gap:end]); c.kept && !kept || !c.kept && len(between) > 7 {
				t.Errorf("%+v: the bytes between .sframe and contents that are not loaded are % x", c, between)
			}
			if again := add(t, first, content(size), Options{Force: true}); !bytes.Equal(again, first) {
				t.Errorf("%+v, %d bytes: a second run gives a different file", c, size)
			}
			if again := add(t, remove(t, first), content(size), Options{}); !c.kept && !bytes.Equal(again, first) {
				t.Errorf("%+v, %d bytes: removed and added again, the file has %d bytes; it had %d", c, size,
					len(again), len(first))
			}
		}
	}
}

// TestHeadMoves converts an executable whose head moves to the end of the loaded contents to make room for an inserted
// page. The file offset of code must not change.
func TestHeadMoves(t *testing.T) {
	old := static(t)
	before := elftest.Parse(t, old)
	head := before.Progs[0]
	if head.Off != 0 || elf.ProgFlag(head.Flags)&elf.PF_X != 0 {
		t.Fatalf("the head is %+v", head)
	}
	b, _ := roundTrip(t, "static", old, 1000, 64)
	after := elftest.Parse(t, b)
	// The inserted page contains the headers and the build-id at the expected addresses.
	page := after.Progs[0]
	if page.Off != 0 || page.Vaddr != head.Vaddr-0x1000 || page.Filesz > 0x1000 || page.Filesz != page.Memsz ||
		page.Flags != head.Flags || page.Align != 0x1000 {
		t.Errorf("the first PT_LOAD is %+v", page)
	}
	checkBuildID(t, "static", after)
	var end uint64
	for i := range before.Progs {
		if h := &before.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD {
			end = max(end, h.Off+h.Filesz)
		}
	}
	// The head is in the next page after the loaded contents.
	other := after.Progs[1]
	if want := (end + 0xfff) &^ 0xfff; other.Vaddr != head.Vaddr || other.Off != want || other.Filesz != head.Filesz {
		t.Errorf("the head is %+v; want file offset %#x", other, want)
	}
	if !bytes.Equal(b[other.Off:][:elffile.HeaderSize], old[:elffile.HeaderSize]) {
		t.Error("there is no copy of the ELF header where it was loaded")
	}
	moved, _ := movedCode(before, after, 0x1000)
	if l, err := Plan(before, 1000, Options{}); err != nil || moved != 0 || l.MovedCode != 0 {
		t.Errorf("%d bytes of code have moved; layout %+v, error %v", moved, l, err)
	}

	// Nor does code move if the head ends where the next segment starts in the file, and the offset of a segment
	// without contents (.bss) is within the head.
	next := elftest.Patch(t.Fatalf, old)
	bss := next.Segment(elf.PT_GNU_STACK, 0)
	next.Prog(bss, elf.PT_LOAD, 0x100, 0x7000100, 0)
	next.Put64(bss+elftest.PhMemsz, 8)
	next.Put64(next.Segment(elf.PT_LOAD, 1)+elftest.PhAlign, 2<<20) // still holds
	setSize(next, next.Segment(elf.PT_LOAD, 0), before.Progs[1].Off)
	before = elftest.Parse(t, next.B)
	after = elftest.Parse(t, add(t, next.B, content(1000), Options{}))
	aligned := slices.ContainsFunc(after.Progs, func(h elf.Prog64) bool { return h.Align == 2<<20 })
	if moved, _ := movedCode(before, after, 0x1000); moved != 0 || !aligned {
		t.Errorf("%d bytes of code have moved if the next segment is adjacent; aligned: %t", moved, aligned)
	}

	// The head cannot move if sections cross its end, or something overlaps it. Then everything moves up.
	for name, change := range map[string]func(*elftest.Patcher){
		"a section across its end": func(p *elftest.Patcher) { p.SectionIn(elf.SHT_PROGBITS, 0, head.Filesz-8, 0, 16) },
		"a segment across its end": replaceStack(unknownType, head.Filesz-8, 0, 16),
		"a segment overlaps it":    replaceStack(elf.PT_LOAD, 0x100, 0x7000000, 8),
		"it has a .bss": func(p *elftest.Patcher) {
			p.Put64(p.Segment(elf.PT_LOAD, 0)+elftest.PhMemsz, head.Memsz+1)
		},
	} {
		p := elftest.Patch(t.Fatalf, old)
		change(p)
		before := elftest.Parse(t, p.B)
		l, err := Plan(before, 1000, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		after := elftest.Parse(t, write(t, l, p.B, content(1000)))
		if moved, all := movedCode(before, after, 0x1000); moved != all || l.MovedCode != all {
			t.Errorf("%s: %d of %d bytes of code moved by a page, but MovedCode is %d", name, moved, all, l.MovedCode)
		}
		if err := image.Compare(before, after); err != nil && name != "a segment overlaps it" { // loaded twice
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLargeHead converts static executables with 3 MB of data in the head, where lld and mold link it. The file must
// not grow by the head, neither with .sframe nor without it.
func TestLargeHead(t *testing.T) {
	const source = ".globl _start\n_start: ret\n.section .rodata\n.fill 3000000, 1, 1"
	for _, linker := range []string{"ld.lld", "mold"} {
		old := assemble(t, source, linker, "-static")
		with, without := roundTrip(t, linker, old, 1000, 64)
		const most = 100_000
		if len(with) > len(old)+most || len(without) > len(old)+most {
			t.Errorf("%s: %d bytes became %d with .sframe, and %d without it", linker, len(old), len(with),
				len(without))
		}
	}
}

// movedCode returns the size of the code that moved by the given distance in the file, and the size of all code.
func movedCode(before, after *elffile.File, by uint64) (moved, all uint64) {
	for i := range before.Sections {
		s := &before.Sections[i]
		if s.Flags&uint64(elf.SHF_EXECINSTR) == 0 {
			continue
		}
		all += s.Size
		if off, ok := after.FileOffset(s.Addr, s.Size); !ok || off != s.Off && off != s.Off+by {
			moved += 1 << 40
		} else if off != s.Off {
			moved += s.Size
		}
	}
	return moved, all
}

// TestFrontRefused expects errors for executables that need an inserted page but cannot have one.
func TestFrontRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		want   string
	}{
		{"the ELF header is not loaded", func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_LOAD, 0)
			for _, field := range []int{elftest.PhOff, elftest.PhVaddr, elftest.PhVaddr + 8} {
				p.Put64(h+field, p.U64(h+field)+0x40)
			}
			setSize(p, h, p.U64(h+elftest.PhFilesz)-0x40)
		}, "no segment starts with the ELF header, so a page before it would not be loaded"},
		{"a segment is lower", func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_GNU_STACK, 0)
			p.Prog(h, elf.PT_LOAD, 0, 0x100000, 0)
			p.Put64(h+elftest.PhMemsz, 0x1000)
		}, "cannot insert a page: the segment with the ELF header is not the lowest segment"},
		{"load addresses", func(p *elftest.Patcher) { p.Put64(p.Segment(elf.PT_LOAD, 0)+elftest.PhVaddr+8, 0x100000) },
			"cannot insert a page: load addresses differ from run-time addresses"},
	} {
		b := patched(t, "static", tt.change)
		refused(t, tt.name, b, 1000, ".rela.plt at file offset 0x1b8 cannot be moved")
		refused(t, tt.name, b, 1000, "; and "+tt.want)
	}
	low := func(p *elftest.Patcher) { p.Put64(p.Segment(elf.PT_LOAD, 0)+elftest.PhVaddr, 0x10000) }
	refused(t, "a low address", patched(t, "static", low), 1000, "; and no page is free before address 0x10000")
	refused(t, "any address", patched(t, "static", func(p *elftest.Patcher) { p.Put16(16, uint16(elf.ET_DYN)) }), 1000,
		".rela.plt at file offset 0x1b8 cannot be moved")
	large := static(t, "--build-id=0x"+strings.Repeat("ab", 4096))
	refused(t, "a build-id of more than a page", large, 1000, "; and the build-id does not fit in the inserted page")
	p := elftest.Patch(t.Fatalf, large) // a note other than the build-id can be elsewhere
	p.Put32(int(p.U64(p.Section(".note.gnu.build-id")+elftest.ShOff))+8, 4)
	add(t, p.B, content(1000), Options{})
}

// TestRenumber updates symbols whose sections were renumbered, moved or removed.
func TestRenumber(t *testing.T) {
	f := elftest.Parse(t, read(t, "alloca"))
	s, fixed := f.Sections[3], f.Sections[5].Addr
	l := &Layout{f: f, index: []uint32{0, 2, 1, 4, 0, 5}, values: map[uint32]uint64{3: 0x1000}}
	type symbol struct {
		shndx elf.SectionIndex
		value uint64
	}
	for _, tt := range []struct {
		name          string
		before, after symbol
		changed       bool
	}{
		{"a different index", symbol{1, 7}, symbol{2, 7}, true},
		{"the same index", symbol{5, fixed}, symbol{5, fixed}, false},
		{"undefined", symbol{0, 7}, symbol{0, 7}, false},
		{"absolute", symbol{elf.SHN_ABS, s.Addr}, symbol{elf.SHN_ABS, s.Addr}, false},
		{"index in SHT_SYMTAB_SHNDX", symbol{elf.SHN_XINDEX, s.Addr}, symbol{elf.SHN_XINDEX, s.Addr}, false},
		{"first invalid section", symbol{6, 7}, symbol{6, 7}, false},
		{"no such section", symbol{100, 7}, symbol{100, 7}, false},
		{"moved", symbol{3, s.Addr + 8}, symbol{4, s.Addr + 0x1008}, true},
		{"moved, at its end", symbol{3, s.Addr + s.Size}, symbol{4, s.Addr + s.Size + 0x1000}, true},
		{"outside the moved section", symbol{3, s.Addr - 1}, symbol{4, s.Addr - 1}, true},
		{"removed", symbol{4, 7}, symbol{elf.SHN_ABS, 7}, true},
	} {
		b := elftest.Symbol(1, tt.before.value, 2, uint16(tt.before.shndx))
		changed := l.renumber(b)
		if want := elftest.Symbol(1, tt.after.value, 2, uint16(tt.after.shndx)); !bytes.Equal(b, want) ||
			changed != tt.changed {
			t.Errorf("%s: % x, changed is %t; want % x, %t", tt.name, b, changed, want, tt.changed)
		}
	}
}

// TestHeadGrows converts a file without section headers whose program headers end 56 bytes before the end of a page.
// If their segment is read-only and has no .bss, it can grow up to the first page of the next segment in memory,
// regardless of the space in the file.
func TestHeadGrows(t *testing.T) {
	const num = 71
	for _, tt := range []struct {
		addr  uint64 // of the next segment
		flags elf.ProgFlag
		bss   uint64
		fits  bool
	}{{0x1000, elf.PF_R, 0, false}, {0x2000, elf.PF_R, 0, true}, {0x2000, elf.PF_R | elf.PF_W, 0, false},
		{0x2000, elf.PF_R, 8, false}} {
		addr := tt.addr
		progs := [num]elf.Prog64{
			{Type: uint32(elf.PT_LOAD), Flags: uint32(tt.flags), Align: 0x1000},
			{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Align: 0x1000, Off: 0x2000, Filesz: 16,
				Memsz: 16},
		}
		progs[1].Vaddr, progs[1].Paddr = addr, addr
		for i := 2; i < num; i++ {
			progs[i].Type = uint32(unknownType)
		}
		progs[0].Filesz = elffile.HeaderSize + num*elffile.ProgSize
		progs[0].Memsz = progs[0].Filesz + tt.bss
		b := elftest.Encode(append(make([]byte, 0x2000), bytes.Repeat([]byte{0x90}, 16)...), binary.LittleEndian,
			elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Phoff: elffile.HeaderSize,
				Phentsize: elffile.ProgSize, Phnum: num}, nil)
		copy(b[elffile.HeaderSize:], elftest.Append(nil, binary.LittleEndian, progs))
		before := elftest.Parse(t, b)
		if !tt.fits {
			if _, err := Plan(before, 100, Options{}); !errors.Is(err, ErrNoRoom) {
				t.Errorf("%+v: error %v, want %v", tt, err, ErrNoRoom)
			}
			continue
		}
		after := elftest.Parse(t, add(t, b, content(100), Options{}))
		if got, want := after.Progs[0].Filesz, progs[0].Filesz+newHeaders*elffile.ProgSize; got != want {
			t.Errorf("next segment at %#x: the first one has %d bytes, want %d", addr, got, want)
		}
	}
}

// TestFits checks whether the table can grow into zeros after it: not if a symbol points into them, or, without section
// headers, if they may be data.
func TestFits(t *testing.T) {
	const begin, end = 0x1c8, 0x238 // two program headers in the fixture alloca, which are unused here
	for value, fits := range map[uint64]bool{begin - 1: true, begin: false, end - 1: false, end: true} {
		for _, sections := range []bool{true, false} {
			b := patched(t, "alloca", func(p *elftest.Patcher) {
				p.Put16(elftest.EhPhnum, p.U16(elftest.EhPhnum)-2)
				clear(p.B[begin:end])
				h := p.Segment(elf.PT_LOAD, 0) // the ELF header is not loaded
				p.Put64(h+elftest.PhOff, 0x40)
				p.Put64(h+elftest.PhVaddr, 0x40)
				setSize(p, h, p.U64(h+elftest.PhFilesz)-0x40)
				setSymbol(t, p.B, value, 6, elf.STT_OBJECT)
				if !sections {
					bare(p)
				}
			})
			p := must.Get(NewProgram(elftest.Parse(t, b), Options{}))(t)
			table := p.newTable()
			table.added = newHeaders
			if got := p.fits(table); got != (fits && sections) {
				t.Errorf("symbol at %#x, with section headers: %t: it fits: %t", value, sections, got)
			}
		}
	}
}

// TestSectionNames expects the original bytes to be restored in a library from lld, which places the section names
// before other sections.
func TestSectionNames(t *testing.T) {
	const source = ".globl f, g, h\nf: g: h: .cfi_startproc\nret\n.cfi_endproc\n.data\n.quad 1\n"
	old := assemble(t, source, "ld.lld", "-shared", "--eh-frame-hdr")
	if f := elftest.Parse(t, old); f.Section(".shstrtab").Off >= f.Section(".strtab").Off {
		t.Error("the section names come last")
	}
	if _, without := roundTrip(t, "lld", old, 1000, 1000); !bytes.Equal(without, old) {
		t.Errorf("%d bytes become %d", len(old), len(without))
	}
}

// TestUnusualNames converts files whose section names are not terminated, or missing.
func TestUnusualNames(t *testing.T) {
	for _, size := range []uint64{0, 1} { // size of .shstrtab
		old := patched(t, "alloca", func(p *elftest.Patcher) {
			h := p.Header(int(p.U16(elftest.EhShstrndx)))
			p.B[p.U64(h+elftest.ShOff)] = 'x'
			p.Put64(h+elftest.ShSize, size)
		})
		l := must.Get(Plan(elftest.Parse(t, old), 100, Options{}))(t)
		f := elftest.Parse(t, write(t, l, old, content(100)))
		if s := f.Section(".sframe"); s == nil || s.Type != sframe.SHTGNUSFrame {
			t.Errorf("%d bytes of names: .sframe is %+v", size, s)
		}
	}
}

// TestContentsOfSegment converts a file with contents at its end that only a program header describes.
func TestContentsOfSegment(t *testing.T) {
	contents := []byte("described by a program header")
	p := elftest.Patch(t.Fatalf, read(t, "alloca"))
	off := p.Append(contents)
	replaceStack(unknownType, uint64(off), 0, uint64(len(contents)))(p)
	with, without := roundTrip(t, "segment", p.B, 1000, 64)
	for _, b := range [][]byte{with, without} {
		h := elftest.Parse(t, b).Prog(unknownType)
		if got := b[h.Off:][:h.Filesz]; !bytes.Equal(got, contents) {
			t.Errorf("the segment at %#x contains %q", h.Off, got)
		}
	}
}

// TestSymbolOfSection replaces an .sframe that a symbol refers to. The symbol must follow it.
func TestSymbolOfSection(t *testing.T) {
	b := add(t, read(t, "alloca"), content(100), Options{})
	f := elftest.Parse(t, b)
	at := must.Get(FindSFrame(f))(t)
	setSymbol(t, b, f.Sections[at.Section].Addr+4, at.Section, elf.STT_OBJECT)
	f = elftest.Parse(t, add(t, b, content(5000), Options{Force: true}))
	at = must.Get(FindSFrame(f))(t)
	var last elffile.Symbol
	must.Do(t, f.Symbols(elf.SHT_SYMTAB, func(_ *elffile.Section, s elffile.Symbol) { last = s }))
	if last.Section != at.Section || last.Value != f.Sections[at.Section].Addr+4 {
		t.Errorf("the symbol is %+v, .sframe %+v", last, f.Sections[at.Section])
	}
}

// linkersSection turns .eh_frame into an .sframe in the middle of a segment, where GNU ld places it, and returns its
// header.
func linkersSection(t *testing.T, p *elftest.Patcher) elf.Section64 {
	t.Helper()
	s := elftest.Parse(t, p.B).Section(".eh_frame").Section64
	p.Put32(p.Section(".eh_frame")+elftest.ShType, sframe.SHTGNUSFrame)
	p.Put16(int(s.Off), sframe.Magic)
	p.Prog(p.Segment(elf.PT_GNU_EH_FRAME, 0), elf.ProgType(sframe.PTGNUSFrame), s.Off, s.Addr, s.Size)
	return s
}

// typedSections returns the sections of type SHT_GNU_SFRAME.
func typedSections(f *elffile.File) (all []elf.Section64) {
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Type == sframe.SHTGNUSFrame {
			all = append(all, s.Section64)
		}
	}
	return all
}

// TestLinkersSection replaces an .sframe from GNU ld in the middle of a segment: in place if there is enough space,
// otherwise elsewhere.
func TestLinkersSection(t *testing.T) {
	var s elf.Section64
	old := patched(t, "prologue", func(p *elftest.Patcher) { s = linkersSection(t, p) })
	before := elftest.Parse(t, old)
	for _, size := range []int{int(s.Size), 40, 200, 217, 1001, 4000} {
		b := add(t, old, content(size), Options{Force: true})
		all := typedSections(elftest.Parse(t, b))
		if len(all) != 1 || (all[0].Off == s.Off) != (size <= int(s.Size)) {
			t.Errorf("%d bytes: sections %+v, the old one with %d bytes at %#x", size, all, s.Size, s.Off)
		}
		rest := b[s.Off:][:s.Size]
		if size <= len(rest) {
			rest = rest[size:]
		}
		if len(bytes.Trim(rest, "\x00")) > 0 {
			t.Error("the old section's bytes remain")
		}
	}
	noHeaders := elftest.Patch(t.Fatalf, old)
	bare(noHeaders)
	smaller := elftest.Parse(t, add(t, noHeaders.B, content(40), Options{Force: true}))
	if at := smaller.Prog(sframe.PTGNUSFrame); at.Off != s.Off {
		t.Errorf("without section headers, .sframe moves from %#x to %#x", s.Off, at.Off)
	}
	l, err := Plan(before, 40, Options{Force: true})
	if err != nil || before.Prog(sframe.PTGNUSFrame).Filesz != s.Size {
		t.Errorf("layout %+v, error %v, changes the old file", l, err)
	}
	without := elftest.Parse(t, remove(t, old))
	if without.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil || len(without.Progs) != len(before.Progs)-1 ||
		len(without.Sections) != len(before.Sections)-1 {
		t.Errorf("%d program headers and %d sections are left of %d and %d", len(without.Progs), len(without.Sections),
			len(before.Progs), len(before.Sections))
	}
}

// TestOthersSegment replaces an .sframe in a segment that this package did not create. A larger section gets a new
// segment, and so does a smaller one if the old segment is writable.
func TestOthersSegment(t *testing.T) {
	converted := add(t, read(t, "alloca"), content(1000), Options{})
	flags := func(flags elf.ProgFlag) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put32(p.LastLoad()+elftest.PhFlags, uint32(flags)) }
	}
	for name, tt := range map[string]struct {
		change         func(*elftest.Patcher)
		smaller, other int // number of segments
	}{
		"our own":    {func(*elftest.Patcher) {}, 3, 3},
		"writable":   {flags(elf.PF_R | elf.PF_W), 4, 4},
		"executable": {flags(elf.PF_R | elf.PF_X), 3, 4},
		"with a .bss": {func(p *elftest.Patcher) {
			memsz := p.LastLoad() + elftest.PhMemsz
			p.Put64(memsz, p.U64(memsz)+8)
		}, 3, 4},
	} {
		p := elftest.Patch(t.Fatalf, converted)
		tt.change(p)
		for size, want := range map[int]int{500: tt.smaller, 5000: tt.other} {
			f := elftest.Parse(t, add(t, p.B, content(size), Options{Force: true}))
			if got := len(loadsOf(f.Progs)); got != want {
				t.Errorf("%s: %d segments with %d bytes; want %d", name, got, size, want)
			}
		}
	}
}

// TestManySections converts a file with more sections than fit in a symbol's index field, and a symbol in the last
// section.
func TestManySections(t *testing.T) {
	const many = 70000
	p := elftest.Patch(t.Fatalf, read(t, "prologue"))
	symtab := p.Index(".symtab")
	names, sym := p.U64(elftest.EhShstrndx)&0xffff, p.Header(symtab)
	last := int(p.U64(sym+elftest.ShOff)+p.U64(sym+elftest.ShSize)) - elffile.SymSize
	num := int(p.U64(sym+elftest.ShSize)) / elffile.SymSize
	// The last symbol is in the last section, and the name table's index does not fit in the ELF header either.
	indexes := make([]byte, 4*num)
	binary.LittleEndian.PutUint32(indexes[4*(num-1):], many-1)
	p.Put16(last+elffile.SymShndx, uint16(elf.SHN_XINDEX))
	p.SectionIn(elf.SHT_SYMTAB_SHNDX, 0, uint64(p.Append(indexes)), 0, uint64(len(indexes)))
	p.Put32(p.Header(int(p.U16(elftest.EhShnum))-1)+elftest.ShLink, uint32(symtab))
	p.NewSections(many-int(p.U16(elftest.EhShnum)), func(_, h int) { p.CopySection(h, ".text") })
	copy(p.B[p.Header(many-1):], p.B[p.Header(int(names)):][:elffile.SectionSize])
	p.Put32(p.Header(0)+elftest.ShLink, many-1)
	p.Put16(elftest.EhShstrndx, uint16(elf.SHN_XINDEX))
	out := add(t, p.B, content(100), Options{})
	after := elftest.Parse(t, out)
	if len(after.Sections) != many+1 || after.Section(".sframe") != &after.Sections[many] || after.Shstrndx != many-1 {
		t.Errorf("%d sections, names in %d", len(after.Sections), after.Shstrndx)
	}
	// .sframe is the last section, so adding or removing it does not change the indexes of symbols.
	removed := elftest.Parse(t, remove(t, out))
	if len(removed.Sections) != many {
		t.Errorf("%d sections are left", len(removed.Sections))
	}
	for _, f := range []*elffile.File{after, removed} {
		last := 0
		err := f.Symbols(elf.SHT_SYMTAB, func(_ *elffile.Section, s elffile.Symbol) { last = s.Section })
		if err != nil || last != many-1 {
			t.Errorf("of %d sections, the last symbol is in section %d (error %v)", len(f.Sections), last, err)
		}
	}
	// If .sframe is not the last section, an empty header replaces it.
	p = elftest.Patch(t.Fatalf, out)
	copy(p.B[p.Header(many-2):], p.B[p.Header(many):][:elffile.SectionSize])
	copy(p.B[p.Header(many):], p.B[p.Header(many-3):][:elffile.SectionSize])
	if f := elftest.Parse(t, remove(t, p.B)); len(f.Sections) != many+1 ||
		f.Sections[many-2].Section64 != (elf.Section64{}) {
		t.Errorf("%d sections are left, the one of .sframe is %+v", len(f.Sections), f.Sections[many-2])
	}
}

// TestBegin writes the first part of a file before the size of .sframe is known, and then the rest. The first part is
// from the layout for a size of 0, or from a layout with different ranges.
func TestBegin(t *testing.T) {
	section := content(304)
	ranges := Layout{off: 64, copies: []extent{{0, 0, 64}, {0, 64, 1}}}
	if got := ranges.copiedByBegin(); !slices.Equal(got, ranges.copies[:1]) {
		t.Errorf("%+v is before .sframe", got)
	}
	if ranges.off = 63; len(ranges.copiedByBegin()) > 0 {
		t.Error("a range that contains the start of .sframe counts as before it")
	}
	allFixtures(t, func(name string, b []byte) {
		for _, old := range [][]byte{b, add(t, b, content(64), Options{})} {
			p := must.Get(NewProgram(elftest.Parse(t, old), Options{Force: true}))(t)
			empty, l := must.Get(p.Plan(0))(t), must.Get(p.Plan(uint64(len(section))))(t)
			want := write(t, l, old, section)
			other := &Layout{off: 64, copies: []extent{{16, 0, 32}, {8, 32, 32}}}
			for _, begun := range []*Layout{empty, other} {
				dst := buffer{left: 1 << 20}
				must.Do(t, begun.Begin(t.Context(), &dst, bytes.NewReader(old)))
				if len(dst.b) < 48 {
					t.Errorf("%s: only %d bytes are before .sframe", name, len(dst.b))
				}
				must.Do(t, l.Write(t.Context(), &dst, bytes.NewReader(old), section, begun))
				if !bytes.Equal(dst.b, want) {
					t.Errorf("%s: the file differs from that without Begin", name)
				}
			}
		}
	})
}
