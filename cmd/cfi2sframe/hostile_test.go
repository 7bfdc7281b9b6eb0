package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// withGaps describes the code as one function with n one-byte gaps.
func withGaps(p *elftest.Patcher, n int) []byte {
	text := p.Code(2 * n)
	var f elftest.Frames
	var program []byte
	for range n {
		program = append(program, 0x41, 0x0d, 2, 0x41, 0x0d, 7) // CFA rcx+8, rsp+8
	}
	f.FDE(f.CIE(elftest.Sound...), text, uint64(2*n), program...)
	p.Contents(".eh_frame", f.B)
	return p.B
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return testfile.Read(t, filepath.Join(fixtures, name))
}

// manyFunctions returns a library with n functions.
func manyFunctions(t *testing.T, n int) []byte {
	p := elftest.Patch(t.Fatalf, fixture(t, "pltlib.so"))
	text := p.Code(16 * n)
	var f elftest.Frames
	cie := f.CIE(elftest.Sound...)
	for i := range n {
		f.FDE(cie, text+uint64(16*i), 16, 0x41, 0x0e, 16, 0x44, 0x0e, 8)
	}
	p.Contents(".eh_frame", f.B)
	return p.B
}

// readOutput reads the headers of a result, whose tables must not be huge.
func readOutput(path string) ([]byte, *elffile.File, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, nil, err
	} else if info.Size() > 256<<20 {
		return nil, nil, fmt.Errorf("it has %d bytes", info.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	return b, f, err
}

// decodeOutput decodes the .sframe of a file, with all rows.
func decodeOutput(path string) (*sframe.Section, error) {
	b, f, err := readOutput(path)
	if err != nil {
		return nil, err
	}
	addr := uint64(0)
	if f.IsObject() {
		s := f.Section(".sframe")
		if s == nil {
			return nil, errors.New("there is no section .sframe")
		}
		if b, err = f.ReadRelocated(s); err != nil {
			return nil, err
		}
		b[3] |= byte(sframe.FDEFuncStartPCRel) // relocated addresses are relative to the field
		addr = s.Base
	} else {
		h := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
		if h == nil {
			return nil, errors.New("no PT_GNU_SFRAME")
		}
		off, ok := f.FileOffset(h.Vaddr, h.Filesz)
		if !ok || off != h.Off {
			return nil, errors.New("PT_GNU_SFRAME is not loaded")
		}
		b, addr = b[off:][:h.Filesz], h.Vaddr
	}
	s, err := sframe.Decode(b, addr)
	if err != nil {
		return nil, err
	}
	var rows []sframe.FRE
	for i := range s.Len() {
		if rows, err = s.FREs(i, rows[:0]); err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			return nil, fmt.Errorf("FDE %d has no rows", i)
		}
	}
	return s, nil
}

// checkOutput decodes the result of a conversion. After remove, and for objects without code, there must be no .sframe.
func checkOutput(path string, data []byte, remove bool) (*sframe.Section, error) {
	if bytes.HasPrefix(data, []byte("!<arch>\n")) {
		return nil, nil
	}
	_, f, err := readOutput(path)
	if err != nil {
		return nil, err
	}
	if s := f.Section(".sframe"); remove || f.IsObject() && s == nil {
		if s != nil || f.Prog(elf.ProgType(sframe.PTGNUSFrame)) != nil {
			return nil, errors.New(".sframe is still present")
		}
		return nil, nil
	}
	return decodeOutput(path)
}

// compareOutput expects only .sframe to change.
func compareOutput(data []byte, out string, args []string) error {
	if bytes.HasPrefix(data, []byte("!<arch>\n")) {
		return nil
	}
	before, err := elffile.New(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	_, after, err := readOutput(out)
	if err != nil {
		return err
	}
	if before.IsObject() {
		if slices.Contains(args, "remove") || slices.Contains(args, "--force") {
			return nil
		}
		return image.Compare(before, after)
	}
	names := make(map[string]bool)
	headers := before.Phoff + uint64(len(before.Progs))*elffile.ProgSize
	for i := range before.Sections {
		s := &before.Sections[i]
		if i > 0 && names[s.Name] || s.HasBytes() && s.Size > 0 && s.Off < headers {
			return nil // names are ambiguous, or a section overlaps the headers
		}
		names[s.Name] = true
	}
	if image.Contents(before, before) != nil {
		return nil // its headers are contradictory
	}
	return image.Contents(before, after)
}

// processorTime returns the CPU time used by this process, which hardly depends on other load.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	must.Do(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// An outcome is the result for a hostile file.
type outcome struct {
	status int
	stderr string
	out    *sframe.Section // for exit status 0
}

// convertHostile runs cfi2sframe on a file with the given contents in an empty directory, and checks that the input is
// unchanged, no temporary files remain, the output is valid or absent, errors name the file, and time and memory are
// bounded.
func convertHostile(t *testing.T, dir string, data []byte, args ...string) outcome {
	t.Helper()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	must.Do(t, os.WriteFile(in, data, 0o755))
	var stdout, stderr bytes.Buffer
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan int)
	start := processorTime(t)
	go func() { done <- run(context.Background(), append(args, in, "-o", out), &stdout, &stderr) }()
	var o outcome
	select {
	case o.status = <-done:
	case <-time.After(boundWait):
		t.Fatalf("it takes more than %v", boundWait)
	}
	took := processorTime(t) - start
	runtime.ReadMemStats(&after)
	o.stderr = stderr.String()
	if i := strings.IndexFunc(o.stderr, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("stderr has %q", o.stderr[i:][:1])
	}
	if took > maxTime {
		t.Errorf("it takes %v of processor time; %v are accepted", took, maxTime)
	} else if took > time.Second {
		t.Logf("took %v", took)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > maxMemory {
		t.Errorf("%d MiB were allocated", n>>20)
	}
	o.check(t, dir, data, args)
	return o
}

// check checks the files in the directory after a run on the given contents: the input, and the output if one is
// expected. It removes the output.
func (o *outcome) check(t *testing.T, dir string, data []byte, args []string) {
	t.Helper()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	switch o.status {
	case exitDone:
		var err error
		unchanged := strings.Contains(o.stderr, "none of its CFI can be expressed in SFrame")
		o.out, err = checkOutput(out, data, slices.Contains(args, "remove"))
		if err != nil && !unchanged {
			t.Errorf("exit status 0, but %v", err)
		}
		if err := compareOutput(data, out, args); err != nil {
			t.Errorf("exit status 0, but %v", err)
		}
		if err := os.Remove(out); err != nil {
			t.Error(err)
		}
	case exitError:
		if !strings.HasPrefix(o.stderr, "cfi2sframe: "+in+": ") || len(o.stderr) > 4096+len(in) {
			t.Errorf("stderr is %.200q (%d bytes)", o.stderr, len(o.stderr))
		}
		if strings.Contains(o.stderr, "the result is wrong") {
			t.Errorf("the result is wrong: %.500s", o.stderr)
		}
	default:
		t.Errorf("exit status %d", o.status)
	}
	if got, err := os.ReadFile(in); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the input has changed (%v)", err)
	}
	entries := must.Get(os.ReadDir(dir))(t)
	for _, e := range entries {
		if e.Name() != "in" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// formatV2 selects V2, which has gaps that V3 does not have.
var formatV2 = []string{"--format", "2"}

// anyStatus accepts any exit status, for files that may be valid despite the change.
const anyStatus = -1

// A hostileCase is a damaged file.
type hostileCase struct {
	name    string
	fixture string // plt by default
	change  func(*elftest.Patcher)
	data    func(t testing.TB) []byte // instead of a fixture
	args    []string
	status  int
	want    string // part of the output
	long    bool   // slow
}

func (c *hostileCase) run(t *testing.T) {
	if c.long {
		long.Test(t)
	}
	o := convertHostile(t, t.TempDir(), c.bytes(t), c.args...)
	o.expect(t, c.status, c.want)
}

// bytes returns the file's contents.
func (c *hostileCase) bytes(t testing.TB) []byte {
	if c.data != nil {
		return c.data(t)
	}
	p := elftest.Patch(t.Fatalf, fixture(t, cmp.Or(c.fixture, "plt")))
	c.change(p)
	return p.B
}

// expect checks the exit status and part of the output.
func (o *outcome) expect(t *testing.T, status int, want string) {
	t.Helper()
	if o.status != status && status != anyStatus || !strings.Contains(o.stderr, want) {
		t.Errorf("exit status %d; want %d\n%.2000s\nwhich should contain %q", o.status, status, o.stderr, want)
	}
}

// withoutSections removes the section headers.
func withoutSections(p *elftest.Patcher) {
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
}

// TestHostileFiles converts linked files with wrong headers.
func TestHostileFiles(t *testing.T) {
	field := func(typ elf.ProgType, n, field int, v uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put64(p.Segment(typ, n)+field, v) }
	}
	for _, tt := range []hostileCase{
		{name: "p_memsz 2^63", change: field(elf.PT_LOAD, 1, elftest.PhMemsz, 1<<63), args: formatV2,
			status: 1, want: "no code is within 2 GiB of .sframe at 0x8000000000002028; use format 3"},
		{name: "PT_NOTE over the whole file", change: func(p *elftest.Patcher) {
			p.Put64(p.Segment(elf.PT_NOTE, 0)+elftest.PhOff, 0)
			p.Put64(p.Segment(elf.PT_NOTE, 0)+elftest.PhFilesz, uint64(len(p.B)))
		}, status: 1, want: "program header 5 at file offset 0x0, 6048 bytes, crosses 0x1028"},
		{name: "PT_PHDR twice", change: func(p *elftest.Patcher) {
			copy(p.B[p.Segment(elf.PT_GNU_STACK, 0):], p.B[p.Segment(elf.PT_PHDR, 0):][:elffile.ProgSize])
		}},
		{name: "symbol names with terminal escapes", fixture: "drap2.so", change: func(p *elftest.Patcher) {
			copy(p.B, bytes.ReplaceAll(p.B, []byte("realign_rbx"), []byte("\x1b]0;names\x07\n")))
		}, args: formatV2, want: `"\x1b]0;names\a\n"+0x5: stack realignment`},
		{name: "a section name with terminal escapes", change: func(p *elftest.Patcher) {
			field(elf.PT_INTERP, 0, elftest.PhOff, 0x1000)(p)
			p.B[p.U64(p.Section(".shstrtab")+elftest.ShOff)+uint64(p.U32(p.Section(".interp")))] = 0x1b
		}, status: 1, want: "no room for 2 more program headers: ?interp at file offset 0x238 cannot be moved"},
		{name: "no sections", change: withoutSections, status: 1, want: "without section headers"},
		{name: "no page before a static program", fixture: "static",
			change: field(elf.PT_LOAD, 0, elftest.PhVaddr, 4096), status: 1,
			want: "no page is free before address 0x1000"},
		{name: "program headers in .text", change: func(p *elftest.Patcher) {
			text := p.U64(p.Section(".text") + elftest.ShOff)
			copy(p.B[text:], p.B[p.U64(elftest.EhPhoff):][:9*elffile.ProgSize])
			p.Put64(elftest.EhPhoff, text)
		}, status: anyStatus},
		{name: "70,000 PT_NULL, without section headers", change: func(p *elftest.Patcher) {
			p.ManyProgs(70_000, func(int, int) {})
			withoutSections(p)
		}, status: anyStatus},
		{name: "60,000 PT_LOAD", change: func(p *elftest.Patcher) {
			p.ManyProgs(60_000, func(i, off int) {
				p.Prog(off, elf.PT_LOAD, 0x400, 0x100000+uint64(i)*4096, 16)
			})
		}, status: 1, want: "more than 2048 segments (PT_LOAD)"},
		{name: "60,000 PT_NOTE, each over the start of the next", change: func(p *elftest.Patcher) {
			p.ManyProgs(60_000, func(i, off int) {
				n := uint64(60_000 - i)
				p.Prog(off, elf.PT_NOTE, 0x254+n/64, 0x254+n/64, 36)
			})
		}, status: anyStatus},
		{name: "60,000 PLT sections", long: true, change: func(p *elftest.Patcher) {
			p.NewSections(60_000, func(i, h int) {
				p.CopySection(h, ".plt")
				p.Put64(h+elftest.ShAddr, p.U64(h+elftest.ShAddr)+uint64(i%16))
				p.Put64(h+elftest.ShOff, p.U64(h+elftest.ShOff)+uint64(i%16))
				p.Put64(h+elftest.ShSize, 1)
			})
		}, status: anyStatus},
		{name: "600,000 sections", long: true, change: func(p *elftest.Patcher) {
			old := int(p.U16(elftest.EhShnum))
			p.NewSections(600_000, func(_, h int) {})
			p.Put16(elftest.EhShnum, 0)
			p.Put64(p.Header(0)+elftest.ShSize, uint64(old+600_000))
		}, status: anyStatus},
	} {
		t.Run(tt.name, tt.run)
	}
}

// convertedFixture returns a fixture with .sframe.
func convertedFixture(t testing.TB, name string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	var stderr bytes.Buffer
	if status := run(t.Context(), []string{"-q", filepath.Join(fixtures, name), "-o", out}, nil,
		&stderr); status != exitDone {
		t.Fatal(stderr.String())
	}
	return testfile.Read(t, out)
}

// TestHostileAgain damages converted files, converts them with --force, and removes .sframe.
func TestHostileAgain(t *testing.T) {
	gnu := func(p *elftest.Patcher) int { return p.Segment(elf.ProgType(sframe.PTGNUSFrame), 0) }
	for _, tt := range []hostileCase{
		{name: "nothing wrong", change: func(p *elftest.Patcher) {}},
		{name: "PT_GNU_SFRAME elsewhere", change: func(p *elftest.Patcher) {
			p.Put64(gnu(p)+elftest.PhOff, 0x100)
			p.Put64(gnu(p)+elftest.PhVaddr, 0x100)
		}},
		{name: "PT_GNU_SFRAME of 2^64-1 bytes",
			change: func(p *elftest.Patcher) { p.Put64(gnu(p)+elftest.PhFilesz, math.MaxUint64) }, status: 1,
			want: "18446744073709551615 bytes at file offset"},
		{name: "a segment with a .bss", change: func(p *elftest.Patcher) {
			p.Put64(p.LastLoad()+elftest.PhMemsz, p.U64(p.LastLoad()+elftest.PhMemsz)+4096)
		}},
		{name: "section headers in .sframe", change: func(p *elftest.Patcher) {
			p.Put64(elftest.EhShoff, p.U64(p.Section(".sframe")+elftest.ShOff)&^7)
		}, status: anyStatus},
		{name: "no section headers", change: withoutSections},
	} {
		for _, arg := range []string{"--force", "remove"} {
			tt.args = []string{arg}
			tt.data = func(t testing.TB) []byte {
				p := elftest.Patch(t.Fatalf, convertedFixture(t, "plt"))
				tt.change(p)
				return p.B
			}
			t.Run(tt.name+arg, tt.run)
		}
	}
}

// TestHostileObjects converts relocatable objects that no assembler makes, and archives that no ar makes.
func TestHostileObjects(t *testing.T) {
	const pc32 = uint32(elf.R_X86_64_PC32)
	object := func(change func(o *elftest.Object)) func(testing.TB) []byte {
		return func(testing.TB) []byte {
			o := elftest.NewObject()
			change(o)
			return o.Bytes()
		}
	}
	old := func(o *elftest.Object) int {
		return o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
	}
	archive := func(members ...[]byte) func(testing.TB) []byte {
		return func(testing.TB) []byte { return elftest.Ar(members...) }
	}
	one := elftest.ArMember("one.o/", elftest.NewObject().Bytes())
	bad := object(func(o *elftest.Object) { o.Sections[elftest.ObjRela].Link = 0 })(t)
	for _, tt := range []hostileCase{
		{name: "aarch64, big-endian", data: func(testing.TB) []byte {
			return elftest.BigObject(elf.EM_AARCH64, uint32(elf.R_AARCH64_PREL32)).Bytes()
		}, want: "describes (64 of "},
		{name: "relocations that contradict each other", data: object(func(o *elftest.Object) {
			o.Code(".text.other", 64)
			o.Rela(elftest.ObjRela, 20+8, 2, pc32, 0)
		}), want: " covers "},
		{name: "several .eh_frame", data: object(func(o *elftest.Object) {
			text := o.Add(".text.other", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 32))
			frame := o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
			rela := o.RelaOf(".rela.eh_frame", frame)
			o.CIE(frame)
			o.FDEIn(frame, rela, uint32(o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(text), 0)), pc32, 0, 32)
		}), want: "describes (96 of "},
		{name: "an .sframe in an object without functions, replaced", data: object(func(o *elftest.Object) {
			s := &o.Sections[elftest.ObjFrame]
			s.Data = bytes.ReplaceAll(s.Data, elftest.Sound, []byte{0x0c, 2, 8, 0x90, 1})
			old(o)
		}), args: []string{"--force", "--format", "2"}, want: "describes (0 of "},
		{name: "60,000 relocation sections of one section", data: object(func(o *elftest.Object) {
			for range 20_000 {
				o.Rela(elftest.ObjRela, 20+8, 1, pc32, 0)
			}
			n := uint64(len(o.Sections[elftest.ObjRela].Data))
			for range 60_000 {
				o.At(o.RelaOf(".rela.eh_frame", elftest.ObjFrame), 0x100, n)
			}
		}), status: 1, want: "relocation sections overlap"},
		{name: "a million symbols", long: true, data: object(func(o *elftest.Object) {
			o.Symbols = append(o.Symbols, bytes.Repeat(o.Symbols[elffile.SymSize:2*elffile.SymSize], 1_000_000)...)
		}), want: "describes (64 of "},

		{name: "member names with terminal escapes", data: archive(elftest.ArMember("\x1b]0;x\x07/", bad)),
			status: 1, want: "member ?]0;x?: section header table at file offset"},
		{name: "member names that are paths",
			data: archive(elftest.ArMember("../../../x/", elftest.NewObject().Bytes())), want: "describes (64 of "},
		{name: "200,000 small members", long: true,
			data: archive(bytes.Repeat(elftest.ArMember("text/", []byte("text")), 200_000), one),
			want: "unchanged members: 200000 (not an ELF file)"},
		{name: "100,000 names of 64 KiB", data: archive(
			elftest.ArMember("//", append(bytes.Repeat([]byte("x"), 64<<10), "/\n"...)),
			bytes.Repeat(elftest.ArMember("/0", nil), 100_000), one), status: 1, want: "name"},
		{name: "an index of 16 MiB", long: true, data: func(testing.TB) []byte {
			b := binary.BigEndian.AppendUint32(nil, 4<<20-1)
			b = append(b, bytes.Repeat([]byte{0, 0, 0, 8}, 4<<20-1)...)
			return elftest.Ar(elftest.ArMember("/", b), one)
		}, want: "describes (64 of "},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestHostileSize converts files that are large, or cause a lot of work for their size.
func TestHostileSize(t *testing.T) {
	// cfi returns a change that sets the amount of code, and calls fill to add CFI.
	cfi := func(code int, fill func(f *elftest.Frames, text uint64)) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			var f elftest.Frames
			fill(&f, p.Code(code))
			p.Contents(".eh_frame", f.B)
		}
	}
	// spread returns a change that makes .text SHT_NOBITS and sets its size, and calls fill to add CFI.
	spread := func(size uint64, fill func(f *elftest.Frames, text uint64)) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) {
			h := p.Section(".text")
			p.Put32(h+elftest.ShType, uint32(elf.SHT_NOBITS))
			p.Put64(h+elftest.ShSize, size)
			var f elftest.Frames
			fill(&f, p.U64(h+elftest.ShAddr))
			p.Contents(".eh_frame", f.B)
		}
	}
	expression := func(b ...byte) []byte {
		return append(binary.AppendUvarint([]byte{0x0f}, uint64(len(b))), b...)
	}
	cases := []hostileCase{
		{name: "200,000 FDEs, each larger than the one before", long: true,
			want: "199,999 FDEs truncated or dropped because of overlaps",
			change: cfi(200_000, func(f *elftest.Frames, text uint64) {
				cie := f.CIE(elftest.Sound...)
				for i := range uint64(200_000) {
					f.FDE(cie, text, i+1)
				}
			})},
		{name: "a million CIEs that cannot be used", long: true, want: "describes (16 of ",
			change: cfi(16, func(f *elftest.Frames, text uint64) {
				for range 1_000_000 {
					f.CIE(0x3f)
				}
				f.FDE(f.CIE(elftest.Sound...), text, 16)
			})},
		{name: "20,000 FDEs of a CIE with an expression of 64 KiB", long: true,
			want: "20,000 functions: CFA given by an expression",
			change: cfi(20_000, func(f *elftest.Frames, text uint64) {
				cie := f.CIE(append(expression(bytes.Repeat([]byte{0x96}, 64<<10)...), 0x90, 1)...)
				for i := range uint64(20_000) {
					f.FDE(cie, text+i, 1)
				}
			})},
		{name: "50,000 gaps under 50,000 symbols that cover all of them", long: true, args: formatV2,
			want: "and 49,990 more gaps", change: func(p *elftest.Patcher) {
				cfi(100_000, func(f *elftest.Frames, text uint64) {
					f.FDE(f.CIE(elftest.Sound...), text, 100_000, bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7},
						50_000)...)
				})(p)
				p.Contents(".symtab", bytes.Repeat(elftest.Symbol(1, p.U64(p.Section(".text")+elftest.ShAddr), 100_000,
					uint16(p.Index(".text"))), 50_000))
			}},
		{name: "60,000 sections that could move", long: true, status: 1, want: "no room for 2 more program headers",
			change: func(p *elftest.Patcher) { p.B = crowdedLibrary(60_000) }},
		{name: "60,000 sections of code", long: true, want: " covers ", change: func(p *elftest.Patcher) {
			p.NewSections(60_000, func(i, h int) {
				p.CopySection(h, ".text")
				p.Put64(h+elftest.ShAddr, uint64(0x100000+1000*i))
			})
		}},
		{name: "a hundred PLTs of 4 MiB", long: true, want: "CFA given by an expression",
			change: spread(1<<40, func(f *elftest.Frames, text uint64) {
				f.FDE(f.CIE(elftest.Sound...), text, 400<<20,
					append(slices.Clone(steady), bytes.Repeat([]byte{0x04, 0, 0, 0x40, 0}, 99)...)...)
			})},
		{name: "a function of 2^40 bytes", want: "not covered: 1,099,511,627,776 bytes in 1 range of 1 function: ",
			change: spread(1<<41, func(f *elftest.Frames, text uint64) {
				f.FDE(f.CIE(elftest.Sound...), text, 1<<40)
			})},
		{name: "1,000 times the same PLT of a megabyte without CFI", long: true,
			want: "1,048,576 bytes of PLT stubs without CFI", change: func(p *elftest.Patcher) {
				p.BigPLT(1<<20, 0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90)
				p.NewSections(1000, func(_, h int) { p.CopySection(h, ".plt") })
			}},
		{name: "200,000 indirect pointers", want: "FDEs of code that is not in the file",
			change: func(p *elftest.Patcher) {
				cfi(200_000, func(f *elftest.Frames, text uint64) {
					cie := f.CIEOf("zR", 1, []byte{1, 0x80}, elftest.Sound)
					f.FDE(f.CIE(elftest.Sound...), text, 16)
					for i := range uint64(200_000) {
						f.FDE(cie, 8*(i%16), 1, 0)
					}
					f.Record(0, nil)
				})(p)
			}},
	}
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				long.Test(t)
			}
			t.Parallel()
			tt.fixture = "pltlib.so"
			data := tt.bytes(t)
			dir, status, output := runBounded(t, data, nil, append(slices.Clone(tt.args), "IN", "-o", "OUT")...)
			o := outcome{status: status, stderr: output}
			o.check(t, dir, data, tt.args)
			o.expect(t, tt.status, tt.want)
		})
	}
}

// CFA rules that depend on the pc: that of a PLT, and rsp plus a value that never repeats.
var (
	steady = []byte{0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}
	unruly = []byte{0x0f, 15, 0x77, 8, 0x80, 0, 0x12, 0x1e, 0x0a, 0x61, 0x7f, 0x1d, 0x33, 0x24, 0x22, 0x96, 0x96}
)

// crowdedLibrary returns a library with a build-id note that must stay near the start, and n one-byte sections that
// could move to make room.
func crowdedLibrary(n int) []byte {
	const (
		progs = 3
		note  = elffile.HeaderSize + progs*elffile.ProgSize
		size  = 8192 // of the note
		small = note + size
	)
	le := binary.LittleEndian
	names := "\x00.note.gnu.build-id\x00.hash\x00.dynamic\x00.text\x00.eh_frame\x00.shstrtab\x00"
	var sections []elf.Section64
	b := make([]byte, small)
	add := func(name string, typ elf.SectionType, flags elf.SectionFlag, data []byte) uint64 {
		off := uint64(len(b))
		b = append(b, data...)
		sections = append(sections, elf.Section64{
			Name: uint32(strings.Index(names, name+"\x00")), Type: uint32(typ), Flags: uint64(flags | elf.SHF_ALLOC),
			Addr: off, Off: off, Size: uint64(len(data)),
		})
		return off
	}
	sections = append(sections, elf.Section64{}, elf.Section64{
		Name: 1, Type: uint32(elf.SHT_NOTE), Flags: uint64(elf.SHF_ALLOC), Addr: note, Off: note, Size: size,
	})
	var dyn []byte
	for range n {
		dyn = le.AppendUint64(dyn, uint64(elf.DT_GNU_HASH))
		dyn = le.AppendUint64(dyn, add(".hash", elf.SHT_GNU_HASH, 0, []byte{1}))
	}
	dynamic := add(".dynamic", elf.SHT_DYNAMIC, elf.SHF_WRITE, append(dyn, make([]byte, 16)...))
	text := add(".text", elf.SHT_PROGBITS, elf.SHF_EXECINSTR, make([]byte, 16))
	var f elftest.Frames
	f.FDE(f.CIE(elftest.Sound...), text, 16)
	add(".eh_frame", elf.SHT_PROGBITS, 0, f.B)
	load := uint64(len(b))
	add(".shstrtab", elf.SHT_STRTAB, 0, []byte(names))
	sections[len(sections)-1].Flags = 0
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: elffile.HeaderSize,
		Phoff: elffile.HeaderSize, Phentsize: elffile.ProgSize, Phnum: progs,
		Shoff: uint64(len(b)), Shentsize: elffile.SectionSize, Shnum: uint16(len(sections)),
		Shstrndx: uint16(len(sections) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	head := new(bytes.Buffer)
	for _, v := range []any{&h, []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Filesz: load, Memsz: load},
		{Type: uint32(elf.PT_NOTE), Off: note, Vaddr: note, Filesz: size, Memsz: size},
		{Type: uint32(elf.PT_DYNAMIC), Off: dynamic, Vaddr: dynamic, Filesz: uint64(len(dyn) + 16),
			Memsz: uint64(len(dyn) + 16)},
	}} {
		_ = binary.Write(head, le, v) // a buffer accepts all data
	}
	copy(b, head.Bytes())
	for i, v := range []uint32{4, size - 16, 3} { // a build-id that must stay in the first page
		le.PutUint32(b[note+4*i:], v)
	}
	copy(b[note+12:], "GNU")
	tail := new(bytes.Buffer)
	_ = binary.Write(tail, le, sections)
	return append(b, tail.Bytes()...)
}

// TestHostileBytes changes each byte of the headers and of .eh_frame. The output must be valid or absent.
func TestHostileBytes(t *testing.T) {
	for k, name := range []string{"plt", "undefra"} {
		p := elftest.Patch(t.Fatalf, fixture(t, name))
		var places []int
		add := func(off, n uint64) {
			for i := range n {
				places = append(places, int(off+i))
			}
		}
		add(0, elffile.HeaderSize)
		add(p.U64(elftest.EhPhoff), uint64(p.U16(elftest.EhPhnum))*elffile.ProgSize)
		add(p.U64(elftest.EhShoff), uint64(p.U16(elftest.EhShnum))*elffile.SectionSize)
		for _, section := range []string{".eh_frame", ".eh_frame_hdr", ".dynamic", ".note.gnu.build-id"} {
			h := p.Section(section)
			add(p.U64(h+elftest.ShOff), p.U64(h+elftest.ShSize))
		}
		dir := t.TempDir()
		statuses := make(map[int]int)
		step := long.Pick(t, 7, 1)
		for i, off := range places {
			if i%step > 0 {
				continue
			}
			was := p.B[off]
			// Each byte gets two of the four changes. The pairs alternate; the files start with different pairs.
			for _, v := range [][]byte{{0, 0x80}, {0xff, 1}}[(i/step+k)%2] {
				p.B[off] = was ^ v
				if v == 0 {
					p.B[off] = 0
				}
				if p.B[off] == was {
					continue
				}
				o := convertHostile(t, dir, p.B)
				statuses[o.status]++
				if t.Failed() {
					t.Fatalf("%s, byte %#x is %#02x instead of %#02x: exit status %d\n%s", name, off, p.B[off], was,
						o.status, o.stderr)
				}
			}
			p.B[off] = was
		}
		if statuses[exitDone] == 0 || statuses[exitError] == 0 {
			t.Errorf("%s: exit statuses %v; want both kinds", name, statuses)
		}
		t.Logf("%s: exit statuses %v", name, statuses)
	}
}
