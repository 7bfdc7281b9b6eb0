package padding_test

import (
	"bufio"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/plt"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// load returns a file and its functions.
func load(t *testing.T, path string) (*elffile.File, *cfi.Table) {
	t.Helper()
	r := must.Get(os.Open(path))(t)
	t.Cleanup(func() { r.Close() })
	info := must.Get(r.Stat())(t)
	f := must.Get(elffile.New(r, info.Size()))(t)
	table := must.Get(cfi.Load(f, cfi.Auto, nil))(t)
	return f, table
}

// find returns the sizes, which must not depend on the number of workers.
func find(t *testing.T, f *elffile.File, table *cfi.Table) []uint8 {
	t.Helper()
	stubs := must.Get(plt.Find(f, table))(t)
	var sizes []uint8
	for _, workers := range []int{1, 2, 3, 8, 1000} {
		gaps := padding.Find(f, table, stubs)
		must.Do(t, elfwrite.References(f, gaps.Refer))
		other := gaps.Sizes(workers)
		if workers > 1 && string(other) != string(sizes) {
			t.Errorf("%d workers: different result", workers)
		}
		sizes = other
	}
	return sizes
}

// TestFind checks a function before each kind of code that may follow functions (testdata/asm/amd64/padding.s).
func TestFind(t *testing.T) {
	want := map[string]uint8{ // distance to the next function, from nm and objdump; 0 for all others
		"same": 15, "back": 13, "call": 10, "jump": 12, "method": 10, "zeros": 10, "int3": 10, "most": 63, "last": 10,
		"other": 3, // ends at .eh_frame_hdr
	}
	for _, tt := range []struct {
		name   string
		unseen []string // references that cannot be found in the file
	}{
		{"padding", nil},
		{"padding-fixed", []string{"pointer"}}, // fixed load address: a pointer in .data has no relocation
	} {
		f, table := load(t, "../../testdata/bin/amd64/"+tt.name)
		starts := make(map[uint64]string)
		must.Do(t, f.Symbols(elf.SHT_SYMTAB, func(tab *elffile.Section, s elffile.Symbol) {
			if elf.SymType(s.Info&0xf) == elf.STT_FUNC {
				starts[s.Value] = f.SymbolName(tab, s.Name)
			}
		}))
		for i, size := range find(t, f, table) {
			fn := table.At(i)
			name := starts[fn.Begin]
			expected := want[name]
			for _, n := range tt.unseen {
				if n == name {
					expected = 15
				}
			}
			if size != expected {
				t.Errorf("%s: %d bytes after %s at %#x; want %d", tt.name, size, name, fn.Begin, expected)
			}
		}
	}
}

// TestRefer checks references to padding and to addresses around it.
func TestRefer(t *testing.T) {
	f, table := load(t, "../../testdata/bin/amd64/padding")
	sizes := padding.Find(f, table, nil).Sizes(1)
	i := slices.IndexFunc(sizes, func(size uint8) bool { return size > 0 })
	begin := table.At(i).End
	end := begin + uint64(sizes[i])
	for _, tt := range []struct {
		first, last uint64
		keeps       bool
	}{
		{begin - 1, begin - 1, true}, {begin - 1, begin, false}, {begin + 1, begin + 1, false}, {end - 1, end, false},
		{end, end + 1, true}, {begin - 1, end, false},
	} {
		gaps := padding.Find(f, table, nil)
		gaps.Refer(tt.first, tt.last)
		want := slices.Clone(sizes)
		if !tt.keeps {
			want[i] = 0
		}
		if got := gaps.Sizes(1); !bytes.Equal(got, want) {
			t.Errorf("after a reference to %#x to %#x: got %d; want %d", tt.first, tt.last, got, want)
		}
	}
}

// TestStubs expects no padding where PLT stubs are.
func TestStubs(t *testing.T) {
	f, table := load(t, "../../testdata/bin/amd64/padding")
	want := padding.Find(f, table, nil).Sizes(1)
	i := slices.IndexFunc(want, func(size uint8) bool { return size > 0 })
	begin := table.At(i).End
	stubs := []plt.Stub{{Begin: begin - 1, End: begin}, {Begin: begin + 1, End: begin + 2}, {Begin: 1 << 40}}
	want[i] = 0
	if got := padding.Find(f, table, stubs).Sizes(1); !bytes.Equal(got, want) {
		t.Errorf("got %d; want %d", got, want)
	}
}

// TestUnreadable expects no padding if the code cannot be read.
func TestUnreadable(t *testing.T) {
	b := testfile.Read(t, "../../testdata/bin/amd64/padding")
	r := &struct{ io.ReaderAt }{bytes.NewReader(b)}
	f := must.Get(elffile.New(r, int64(len(b))))(t)
	gaps := padding.Find(f, must.Get(cfi.Load(f, cfi.Auto, nil))(t), nil)
	r.ReaderAt = bytes.NewReader(nil)
	for i, size := range gaps.Sizes(1) {
		if size > 0 {
			t.Errorf("%d bytes after function %d", size, i)
		}
	}
}

// TestLinked assembles functions of a few bytes that are aligned to 16.
//
// If functions started by makecontext return to the code after the padding, the last byte of the padding has no row,
// because readers look up the byte before a return address. Such code has no caller, or starts with a move to SP.
//
// In C++ methods, a one-byte no-op aligns to 2 bytes first. Jumps may then go to the next byte as well.
func TestLinked(t *testing.T) {
	const begin, end = ".cfi_startproc\n", "ret\n.cfi_endproc\n.p2align 4\n"
	const method = begin + "push %rbx\n.cfi_def_cfa_offset 16\njz 1f\nud2\n.cfi_endproc\n.p2align 1\n"
	for _, tt := range []struct {
		name, source string
		want         []uint8 // except for the last function
	}{
		{"contexts", begin + end + begin + ".cfi_undefined rip\n" + end + begin + end +
			begin + "mov %rbx,%rsp\n" + end + begin + end, []uint8{14, 15, 14, 12}},
		{"methods", method + ".p2align 4\n1:\n" + method + "1: .p2align 4\n" + begin + end, []uint8{11, 0}},
		{"falling through", strings.Repeat(begin+"nop\n.cfi_endproc\n.p2align 4\n", 2) +
			begin + ".cfi_signal_frame\n" + end, []uint8{15, 0}},
		{"a row at the end", begin + "nop\n.cfi_def_cfa_offset 16\n.cfi_endproc\n.p2align 4\n" + begin + end,
			[]uint8{15}},
		{"limit", begin + "ret\n.cfi_endproc\n.skip 63,0xcc\n" + begin + "ret\n.cfi_endproc\n.skip 64,0xcc\n" +
			begin + end, []uint8{63, 0}},
	} {
		dir := t.TempDir()
		source, path := filepath.Join(dir, "source.s"), filepath.Join(dir, "linked.so")
		testfile.Write(t, source, tt.source)
		must.Run(t, exec.Command(peer.Look(t, "gcc"), "-nostdlib", "-shared", source, "-o", path))
		f, table := load(t, path)
		if sizes := find(t, f, table); len(sizes) != len(tt.want)+1 || !bytes.Equal(sizes[:len(tt.want)], tt.want) {
			t.Errorf("%s: got %d; want %d and the last one", tt.name, sizes, tt.want)
		}
	}
}

// TestSections varies the sections and segments around the 3 zero bytes after .text, which ends at 0xaa1.
func TestSections(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(next *elffile.Section, segment *elf.Prog64)
		want   uint8
	}{
		{"unchanged", func(*elffile.Section, *elf.Prog64) {}, 3},
		{"a section after 1 byte", func(next *elffile.Section, _ *elf.Prog64) { next.Addr-- }, 2},
		{"adjacent", func(next *elffile.Section, _ *elf.Prog64) { next.Addr = 0xaa1 }, 0},
		{"not zeros", func(next *elffile.Section, _ *elf.Prog64) { next.Addr += 4 }, 0},
		{"far away", func(next *elffile.Section, _ *elf.Prog64) { next.Addr += 100 }, 0},
		{"empty", func(next *elffile.Section, _ *elf.Prog64) { next.Size = 0 }, 0},
		{"not loaded", func(next *elffile.Section, _ *elf.Prog64) { next.Flags = 0 }, 0},
		{"overlapping", func(next *elffile.Section, _ *elf.Prog64) { next.Addr = 0xa00 }, 0},
		{"across the end", func(next *elffile.Section, p *elf.Prog64) {
			next.Addr, p.Filesz = 0xa90, 0xaa4-p.Vaddr
		}, 0},
		{"one more byte in the segment", func(_ *elffile.Section, p *elf.Prog64) { p.Filesz = 0xaa2 - p.Vaddr }, 1},
		{"end of the segment", func(_ *elffile.Section, p *elf.Prog64) { p.Filesz = 0xaa1 - p.Vaddr }, 0},
	} {
		f, table := load(t, "../../testdata/bin/amd64/padding")
		var next *elffile.Section
		for i := range f.Sections {
			if f.Sections[i].Name == ".eh_frame_hdr" {
				next = &f.Sections[i]
			}
		}
		segment := -1
		for i, p := range f.Progs {
			if elf.ProgType(p.Type) == elf.PT_LOAD && p.Vaddr <= 0xaa0 && 0xaa0 < p.Vaddr+p.Filesz {
				segment = i
			}
		}
		if next == nil || next.Addr != 0xaa4 || segment < 0 {
			t.Fatalf("unexpected fixture: %+v", next)
		}
		tt.change(next, &f.Progs[segment])
		sizes := padding.Find(f, table, nil).Sizes(1)
		if got := sizes[len(sizes)-1]; table.At(table.Len()-1).End != 0xaa1 || got != tt.want {
			t.Errorf("%s: %d bytes after the function that ends at %#x; want %d", tt.name, got,
				table.At(table.Len()-1).End, tt.want)
		}
	}
}

// pads lists the padding instructions as objdump prints them.
var pads = regexp.MustCompile(`^((data16|cs|xchg +%ax,%ax|nop[wl]?|int3|add +%al,\(%rax\)|\.byte 0x0|udf\s+#0|nopr?|` +
	`jgnop|\.long 0x00000000|\.short 0x0000|\.\.\.)\b.*|\.inst\s+0x00000000.*|nopr?.*)$`)

// An instruction is one line of objdump's disassembly.
type instruction struct {
	text string
	size uint64 // distance to the next instruction
}

// disassemble returns the instructions of a file by address.
func disassemble(t *testing.T, objdump, path string) map[uint64]instruction {
	t.Helper()
	cmd := exec.Command(peer.Look(t, objdump), "-d", "-z", "--no-show-raw-insn", path)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	code := make(map[uint64]instruction)
	last := uint64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		addr, text, ok := strings.Cut(lines.Text(), ":\t")
		if pc, err := strconv.ParseUint(strings.TrimSpace(addr), 16, 64); ok && err == nil {
			code[last] = instruction{code[last].text, pc - last}
			code[pc] = instruction{strings.TrimSpace(text), 1}
			last = pc
		}
	}
	must.Do(t, cmd.Wait())
	delete(code, 0)
	return code
}

// TestPeer compares gaps with objdump's instructions between functions. All gaps found must be padding in objdump's
// output, and almost all padding in it must be found.
func TestPeer(t *testing.T) {
	type program struct{ objdump, path string }
	programs := []program{
		{"objdump", "/usr/bin/ls"}, // its last padding is at the end of the segment
		{"objdump", "/usr/bin/bash"},
		{"objdump", "/usr/bin/perl"},
		{"objdump", "/usr/bin/gdb"},
		{"aarch64-linux-gnu-objdump", "/usr/aarch64-linux-gnu/lib/libc.so.6"},
		{"s390x-linux-gnu-objdump", "/usr/s390x-linux-gnu/lib/libc.so.6"},
	}
	for _, tt := range long.Pick(t, programs[:1], programs) {
		path := peer.File(t, tt.path)
		f, table := load(t, path)
		code := make(map[uint64]bool) // whether the instruction at an address is padding
		for pc, in := range disassemble(t, tt.objdump, path) {
			code[pc] = pads.MatchString(in.text)
		}
		gaps, described := 0, 0
		lost := 0 // on s390x, objdump mistakes a trap of two zeros at the end of a function for data
		for i, size := range find(t, f, table) {
			fn := table.At(i)
			if size > 0 {
				described++
			}
			if _, ok := code[fn.End]; !ok && size > 0 {
				lost++
				continue
			}
			for pc := fn.End; pc < fn.End+uint64(size); pc++ {
				if is, ok := code[pc]; ok && !is {
					t.Errorf("%s: %#x is padding after the function at %#x, but not for objdump", path, pc, fn.Begin)
				}
			}
			if i+1 < table.Len() {
				next := table.At(i + 1).Begin
				all := next > fn.End && next-fn.End < padding.Limit
				for pc := fn.End; pc < next && all; pc++ {
					is, ok := code[pc]
					all = is || !ok && pc > fn.End
				}
				if all {
					gaps++
				}
			}
		}
		t.Logf("%s: %d gaps, %d of them described", path, gaps, described)
		if described < gaps*97/100 || described == 0 || lost > 1 {
			t.Errorf("%s: found %d of the %d gaps that objdump shows as padding; no instruction after %d functions",
				path, described, gaps, lost)
		}
	}
}
