package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/klauspost/compress/zstd"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/lab/image"
	"cfi2sframe/internal/lab/long"
	"cfi2sframe/sframe"
)

// Offsets of fields in the ELF header and in program and section headers.
const (
	ehEntry, ehPhoff, ehShoff              = 24, 32, 40
	ehPhentsize, ehPhnum, ehShentsize      = 54, 56, 58
	ehShnum, ehShstrndx                    = 60, 62
	phOff, phVaddr, phFilesz, phMemsz      = 8, 16, 32, 40
	shType, shFlags, shAddr, shOff, shSize = 4, 8, 16, 24, 32
	shLink, shInfo, shAlign                = 40, 44, 48
)

// A patcher changes a little-endian ELF file in memory.
type patcher struct {
	fatalf func(string, ...any)
	b      []byte
}

func newPatcher(fatalf func(string, ...any), b []byte) *patcher {
	return &patcher{fatalf, bytes.Clone(b)}
}

func (p *patcher) u16(off int) uint16 { return binary.LittleEndian.Uint16(p.b[off:]) }
func (p *patcher) u32(off int) uint32 { return binary.LittleEndian.Uint32(p.b[off:]) }
func (p *patcher) u64(off int) uint64 { return binary.LittleEndian.Uint64(p.b[off:]) }

func (p *patcher) put16(off int, v uint16) { binary.LittleEndian.PutUint16(p.b[off:], v) }
func (p *patcher) put32(off int, v uint32) { binary.LittleEndian.PutUint32(p.b[off:], v) }
func (p *patcher) put64(off int, v uint64) { binary.LittleEndian.PutUint64(p.b[off:], v) }

// sh returns the offset of the i-th section header.
func (p *patcher) sh(i int) int { return int(p.u64(ehShoff)) + i*elffile.SectionSize }

// index returns the index of a section.
func (p *patcher) index(name string) int {
	names := p.u64(p.sh(int(p.u16(ehShstrndx))) + shOff)
	for i := range int(p.u16(ehShnum)) {
		if bytes.HasPrefix(p.b[names+uint64(p.u32(p.sh(i))):], []byte(name+"\x00")) {
			return i
		}
	}
	p.fatalf("there is no section %s", name)
	return 0
}

// section returns the offset of a section's header.
func (p *patcher) section(name string) int { return p.sh(p.index(name)) }

// segment returns the offset of the nth program header of a type.
func (p *patcher) segment(typ elf.ProgType, n int) int {
	for i := range int(p.u16(ehPhnum)) {
		if off := int(p.u64(ehPhoff)) + i*elffile.ProgSize; elf.ProgType(p.u32(off)) == typ {
			if n == 0 {
				return off
			}
			n--
		}
	}
	p.fatalf("there is no %v", typ)
	return 0
}

// append adds bytes at the end of the file and returns where.
func (p *patcher) append(data []byte) int {
	for len(p.b)%8 != 0 {
		p.b = append(p.b, 0)
	}
	off := len(p.b)
	p.b = append(p.b, data...)
	return off
}

// contents gives a section other contents, at the end of the file.
func (p *patcher) contents(name string, data []byte) {
	off := p.append(data)
	h := p.section(name)
	p.put64(h+shOff, uint64(off))
	p.put64(h+shSize, uint64(len(data)))
}

// code makes .text so large, and returns its address.
func (p *patcher) code(size int) uint64 {
	p.contents(".text", make([]byte, size))
	return p.u64(p.section(".text") + shAddr)
}

// bigPLT adds a segment of PLT stubs, which no CFI describes.
func (p *patcher) bigPLT(size int, stub ...byte) {
	for len(p.b)%4096 != 0 {
		p.b = append(p.b, 0)
	}
	off := p.append(bytes.Repeat(stub, size/len(stub)))
	const addr = 0x100000
	// In the place of PT_GNU_STACK, behind the other PT_LOADs.
	h := p.segment(elf.PT_GNU_STACK, 0)
	p.put32(h, uint32(elf.PT_LOAD))
	p.put32(h+4, uint32(elf.PF_R|elf.PF_X))
	for _, field := range []int{phFilesz, phMemsz} {
		p.put64(h+field, uint64(size))
	}
	p.put64(h+phOff, uint64(off))
	p.put64(h+phVaddr, addr)
	s := p.section(".plt")
	p.put64(s+shAddr, addr)
	p.put64(s+shOff, uint64(off))
	p.put64(s+shSize, uint64(size))
}

// frames builds an .eh_frame.
type frames struct{ b []byte }

func (f *frames) record(id uint32, body []byte) int {
	off := len(f.b)
	f.b = binary.LittleEndian.AppendUint32(f.b, uint32(4+len(body)))
	f.b = binary.LittleEndian.AppendUint32(f.b, id)
	f.b = append(f.b, body...)
	return off
}

// sound is what a compiler says of a function's start: CFA rsp+8, RA c-8.
var sound = []byte{0x0c, 7, 8, 0x90, 1}

// cie appends a CIE whose FDEs have absolute addresses, and returns its offset.
func (f *frames) cie(instructions ...byte) int {
	return f.cieOf("", 1, nil, instructions)
}

// cieOf appends a CIE of version 1 with the given augmentation string and data, and
// the code alignment as it is encoded.
func (f *frames) cieOf(aug string, codeAlign byte, data, instructions []byte) int {
	body := append([]byte{1}, aug...)
	body = append(body, 0, codeAlign, 0x78, 16)
	body = append(body, data...)
	return f.record(0, append(body, instructions...))
}

// fde appends an FDE.
func (f *frames) fde(cie int, start, size uint64, instructions ...byte) int {
	body := binary.LittleEndian.AppendUint64(nil, start)
	body = binary.LittleEndian.AppendUint64(body, size)
	return f.record(uint32(len(f.b)+4-cie), append(body, instructions...))
}

// withGaps describes the code by one function with n gaps of a byte each.
func withGaps(p *patcher, n int) []byte {
	text := p.code(2 * n)
	var f frames
	var program []byte
	for range n {
		program = append(program, 0x41, 0x0d, 2, 0x41, 0x0d, 7) // CFA rcx+8, rsp+8
	}
	f.fde(f.cie(sound...), text, uint64(2*n), program...)
	p.contents(".eh_frame", f.b)
	return p.b
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// manyFunctions returns a library with n functions.
func manyFunctions(t *testing.T, n int) []byte {
	p := newPatcher(t.Fatalf, fixture(t, "pltlib.so"))
	text := p.code(16 * n)
	var f frames
	cie := f.cie(sound...)
	for i := range n {
		f.fde(cie, text+uint64(16*i), 16, 0x41, 0x0e, 16, 0x44, 0x0e, 8)
	}
	p.contents(".eh_frame", f.b)
	return p.b
}

// readOutput reads the headers of a result, which must not be huge.
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
		b[3] |= byte(sframe.FDEFuncStartPCRel) // relocations count from the field
		addr = s.Base
	} else {
		h := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
		if h == nil {
			return nil, errors.New("there is no PT_GNU_SFRAME")
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
	for i := range s.FDEs {
		if rows, err = s.FREs(i, rows[:0]); err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			return nil, fmt.Errorf("FDE %d has no rows", i)
		}
	}
	return s, nil
}

// checkOutput decodes the result of a conversion. Where .sframe was removed, or there is
// nothing to say of an object, it must not be there.
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
			return nil, errors.New(".sframe is still there")
		}
		return nil, nil
	}
	return decodeOutput(path)
}

// compareOutput makes sure that nothing but .sframe has changed.
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
		if slices.Contains(args, "--remove") || slices.Contains(args, "--force") {
			return nil
		}
		return image.Compare(before, after)
	}
	names := make(map[string]bool)
	headers := before.Phoff + uint64(len(before.Progs))*elffile.ProgSize
	for i := range before.Sections {
		s := &before.Sections[i]
		if i > 0 && names[s.Name] || s.HasBytes() && s.Size > 0 && s.Off < headers {
			return nil // nobody knows which is which, or has the headers in it
		}
		names[s.Name] = true
	}
	if image.Contents(before, before) != nil {
		return nil // its headers contradict each other
	}
	return image.Contents(before, after)
}

// limits bounds what one file may take, whatever is in it: time, and bytes that are
// allocated in all, most of which are not in use at once. What takes longer than a
// second is named in the log.
func limits() (time.Duration, uint64) {
	if racing {
		return 50 * time.Second, math.MaxUint64
	}
	return 5 * time.Second, 256 << 20
}

// An outcome is what came of one hostile file.
type outcome struct {
	status int
	stderr string
	out    *sframe.Section // for exit status 0
}

// convertHostile runs the program on a file with the given contents in an empty
// folder, and checks what holds for every file: the input is not touched, nothing
// is left behind, the output is there and sound or not there at all, errors name
// the file, and time and memory are bounded.
func convertHostile(t *testing.T, dir string, data []byte, args ...string) outcome {
	t.Helper()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, data, 0o755); err != nil {
		t.Fatal(err)
	}
	maxTime, maxMemory := limits()
	var stdout, stderr bytes.Buffer
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done := make(chan int)
	start := time.Now()
	go func() { done <- run(context.Background(), append(args, in, "-o", out), &stdout, &stderr) }()
	var o outcome
	select {
	case o.status = <-done:
	case <-time.After(maxTime):
		t.Fatalf("it takes more than %v", maxTime)
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	o.stderr = stderr.String()
	if i := strings.IndexFunc(o.stderr, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("stderr has %q", o.stderr[i:][:1])
	}
	if took > time.Second && !racing {
		t.Logf("took %v", took)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > maxMemory {
		t.Errorf("%d MiB were allocated", n>>20)
	}
	o.check(t, dir, data, args)
	return o
}

// check checks what is left in the folder after a run on the given contents: the input, and the output
// if there has to be one, which it removes.
func (o *outcome) check(t *testing.T, dir string, data []byte, args []string) {
	t.Helper()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	switch o.status {
	case exitDone:
		var err error
		if o.out, err = checkOutput(out, data, slices.Contains(args, "--remove")); err != nil {
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
			t.Errorf("it was converted to something wrong: %.500s", o.stderr)
		}
	default:
		t.Errorf("exit status %d", o.status)
	}
	if got, err := os.ReadFile(in); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the input has changed (%v)", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "in" {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}

// A hostileCase is a fixture changed for the worse.
type hostileCase struct {
	name    string
	fixture string // plt by default
	args    []string
	change  func(*patcher)
	status  int
	want    string // part of what is printed
	long    bool   // it takes long
}

func (c *hostileCase) run(t *testing.T) {
	o := convertHostile(t, t.TempDir(), c.data(t), c.args...)
	o.expect(t, c.status, c.want)
}

// data returns the file.
func (c *hostileCase) data(t *testing.T) []byte {
	name := c.fixture
	if name == "" {
		name = "plt"
	}
	p := newPatcher(t.Fatalf, fixture(t, name))
	c.change(p)
	return p.b
}

// bounded is run by a process of its own, which takes less time and can be measured.
func (c *hostileCase) bounded(t *testing.T, program string) {
	data := c.data(t)
	dir, status, output := bounded(t, program, data, nil, append(slices.Clone(c.args), "IN", "-o", "OUT")...)
	o := outcome{status: status, stderr: output}
	o.check(t, dir, data, c.args)
	o.expect(t, c.status, c.want)
}

// TestHostileHeaders has ELF headers that lie.
func TestHostileHeaders(t *testing.T) {
	put16 := func(off int, v uint16) func(*patcher) { return func(p *patcher) { p.put16(off, v) } }
	put64 := func(off int, v uint64) func(*patcher) { return func(p *patcher) { p.put64(off, v) } }
	section := func(name string, field int, v uint64) func(*patcher) {
		return func(p *patcher) {
			if h := p.section(name) + field; field == shType || field == shLink || field == shInfo {
				p.put32(h, uint32(v))
			} else {
				p.put64(h, v)
			}
		}
	}
	segment := func(typ elf.ProgType, n, field int, v uint64) func(*patcher) {
		return func(p *patcher) { p.put64(p.segment(typ, n)+field, v) }
	}
	all := func(changes ...func(*patcher)) func(*patcher) {
		return func(p *patcher) {
			for _, c := range changes {
				c(p)
			}
		}
	}
	cases := []hostileCase{
		{name: "e_shoff at the end", change: func(p *patcher) { p.put64(ehShoff, uint64(len(p.b))) }, status: 1,
			want: "section header table at file offset 0x17a0: 19 headers of 64 bytes do not fit the file of 6048 bytes"},
		{name: "e_shoff 2^63", change: put64(ehShoff, 1<<63), status: 1,
			want: "section header table at file offset 0x8000000000000000: 19 headers"},
		{name: "e_shoff 2^64-64", change: put64(ehShoff, math.MaxUint64-63), status: 1,
			want: "section header table at file offset 0xffffffffffffffc0: 19 headers"},
		{name: "e_shoff 2^64-1", change: put64(ehShoff, math.MaxUint64), status: 1,
			want: "section header table at file offset 0xffffffffffffffff: 19 headers"},
		{name: "e_shoff 0", change: put64(ehShoff, 0), status: 1,
			want: "ELF header at file offset 0x3c: e_shnum is 19 but e_shoff is 0"},
		{name: "e_phoff at the end", change: func(p *patcher) { p.put64(ehPhoff, uint64(len(p.b))) }, status: 1,
			want: "program header table at file offset 0x17a0: 9 headers of 56 bytes do not fit the file of 6048 bytes"},
		{name: "e_phoff 2^64-1", change: put64(ehPhoff, math.MaxUint64), status: 1,
			want: "program header table at file offset 0xffffffffffffffff: 9 headers"},
		{name: "e_phoff 0", change: put64(ehPhoff, 0), status: 1, want: "program header"},
		{name: "e_shnum 0xffff", change: put16(ehShnum, 0xffff), status: 1,
			want: "section header table at file offset 0x12e0: 65535 headers of 64 bytes do not fit"},
		{name: "e_shnum 0 with 2^40 sections", change: all(put16(ehShnum, 0), func(p *patcher) { p.put64(p.sh(0)+shSize, 1<<40) }),
			status: 1, want: "section header table at file offset 0x12e0: 1099511627776 section headers; at most"},
		{name: "e_shnum 0 with 2^19 sections", change: all(put16(ehShnum, 0), func(p *patcher) { p.put64(p.sh(0)+shSize, 1<<19) }),
			status: 1, want: "section header table at file offset 0x12e0: 524288 headers of 64 bytes do not fit"},
		{name: "e_shnum 0 with the number in section 0", change: all(put16(ehShnum, 0), func(p *patcher) { p.put64(p.sh(0)+shSize, 19) }), want: "verified"},
		{name: "e_shstrndx 0xffff with the index in section 0", change: func(p *patcher) {
			p.put32(p.sh(0)+shLink, uint32(p.u16(ehShstrndx)))
			p.put16(ehShstrndx, 0xffff)
		}, want: "verified"},
		{name: "e_phnum 0xffff with the number in section 0", change: func(p *patcher) {
			p.put32(p.sh(0)+shInfo, uint32(p.u16(ehPhnum)))
			p.put16(ehPhnum, 0xffff)
		}, want: "verified"},
		{name: "e_shentsize 0", change: put16(ehShentsize, 0), status: 1, want: "ELF header at file offset 0x3a: e_shentsize is 0; 64 was expected"},
		{name: "e_shentsize 40", change: put16(ehShentsize, 40), status: 1, want: "e_shentsize is 40; 64 was expected"},
		{name: "e_phentsize 32", change: put16(ehPhentsize, 32), status: 1, want: "ELF header at file offset 0x36: e_phentsize is 32; 56 was expected"},
		{name: "e_phnum 0", change: put16(ehPhnum, 0), status: 1, want: "no loaded segment (PT_LOAD)"},
		{name: "e_phnum 0x7fff", change: put16(ehPhnum, 0x7fff), status: 1, want: "program header table at file offset 0x40: 32767 headers"},
		{name: "e_phnum 0xffff, 2^32-1 in section 0", change: all(put16(ehPhnum, 0xffff), func(p *patcher) { p.put32(p.sh(0)+shInfo, math.MaxUint32) }),
			status: 1, want: "program header table at file offset 0x40: 4294967295 headers of 56 bytes do not fit"},
		{name: "e_shstrndx 0xfeff", change: put16(ehShstrndx, 0xfeff), status: 1,
			want: "ELF header at file offset 0x3e: section name table index 65279; there are 19 sections"},
		{name: "e_shstrndx 0xffff, 2^32-1 in section 0", change: all(put16(ehShstrndx, 0xffff), func(p *patcher) { p.put32(p.sh(0)+shLink, math.MaxUint32) }),
			status: 1, want: "section name table index 4294967295; there are 19 sections"},
		{name: "e_shstrndx of .bss kind", change: func(p *patcher) { p.put32(p.section(".shstrtab")+shType, uint32(elf.SHT_NOBITS)) },
			status: 1, want: "section name table at file offset 0x1242: 157 bytes, type SHT_NOBITS"},
		// Names that are code have no .eh_frame among them, but PT_GNU_EH_FRAME is there.
		{name: "e_shstrndx of .text", change: func(p *patcher) { p.put16(ehShstrndx, uint16(p.index(".text"))) }, want: "171 covered"},
		{name: "names past the table", change: func(p *patcher) {
			for i := range int(p.u16(ehShnum)) {
				p.put32(p.sh(i), math.MaxUint32-uint32(i))
			}
		}, status: 0, want: "verified"},
		{name: "names without end", change: section(".shstrtab", shSize, 17), status: 0, want: "verified"},

		{name: "PT_LOADs overlap", change: segment(elf.PT_LOAD, 1, phVaddr, 0x100), status: 1,
			want: "program header 3: segment at 0x100 overlaps the one before it, or is out of order"},
		{name: "PT_LOADs are the same", change: all(segment(elf.PT_LOAD, 1, phVaddr, 0), segment(elf.PT_LOAD, 1, phOff, 0)), status: 1,
			want: "program header 3: segment at 0x0 overlaps the one before it"},
		{name: "PT_LOAD out of order", change: segment(elf.PT_LOAD, 0, phVaddr, 0x100000), status: 1,
			want: "program header 3: segment at 0x1e80 overlaps the one before it, or is out of order"},
		{name: "p_filesz over p_memsz", change: segment(elf.PT_LOAD, 0, phMemsz, 0x10), status: 1,
			want: "program header 2 at file offset 0xb0: p_filesz 0x6b0 is larger than p_memsz 0x10"},
		{name: "p_vaddr plus p_memsz past 2^64", change: segment(elf.PT_LOAD, 1, phMemsz, math.MaxUint64), status: 1,
			want: "program header 3 at file offset 0xe8: p_vaddr 0x1e80 + p_memsz 0xffffffffffffffff passes 2^64"},
		{name: "p_vaddr 2^64-1", change: segment(elf.PT_LOAD, 1, phVaddr, math.MaxUint64), status: 1,
			want: "program header 3 at file offset 0xe8: p_vaddr 0xffffffffffffffff + p_memsz 0x1a8 passes 2^64"},
		{name: "p_memsz up to 2^64", change: segment(elf.PT_LOAD, 1, phMemsz, math.MaxUint64-0x1e80), status: 1,
			want: "segments end at address 0xffffffffffffffff, which leaves no room for one more"},
		{name: "p_memsz 2^63", change: segment(elf.PT_LOAD, 1, phMemsz, 1<<63),
			want: "left out: 171 bytes in 5 ranges of 5 functions: more than 2 GiB from the section"},
		{name: "p_memsz 2^62", change: segment(elf.PT_LOAD, 1, phMemsz, 1<<62),
			want: "left out: 171 bytes in 5 ranges of 5 functions: more than 2 GiB from the section"},
		{name: "p_offset of PT_LOAD past the end", change: segment(elf.PT_LOAD, 1, phOff, 1<<40), status: 1,
			want: "program header 3: 424 bytes at file offset 0x10000000000 do not fit the file of 6048 bytes"},
		{name: "p_offset of PT_LOAD 2^64-1", change: segment(elf.PT_LOAD, 1, phOff, math.MaxUint64), status: 1,
			want: "program header 3: 424 bytes at file offset 0xffffffffffffffff do not fit"},
		{name: "PT_INTERP past the end", change: segment(elf.PT_INTERP, 0, phOff, 1<<33), status: 1,
			want: "program header 1: 28 bytes at file offset 0x200000000 do not fit"},
		{name: "PT_INTERP elsewhere", change: segment(elf.PT_INTERP, 0, phOff, 0x1000), status: 1,
			want: "no room for 2 more program headers: .interp at file offset 0x238 cannot be moved"},
		{name: "PT_DYNAMIC past the end", change: segment(elf.PT_DYNAMIC, 0, phOff, 1<<33), status: 1,
			want: "program header 4: 352 bytes at file offset 0x200000000 do not fit"},
		{name: "PT_DYNAMIC huge", change: segment(elf.PT_DYNAMIC, 0, phFilesz, math.MaxUint64), status: 1,
			want: "program header 4: 18446744073709551615 bytes at file offset 0xe80 do not fit"},
		{name: "PT_NOTE huge", change: segment(elf.PT_NOTE, 0, phFilesz, 1<<62), status: 1,
			want: "program header 5: 4611686018427387904 bytes at file offset 0x254 do not fit"},
		{name: "PT_NOTE over the whole file", change: func(p *patcher) {
			p.put64(p.segment(elf.PT_NOTE, 0)+phOff, 0)
			p.put64(p.segment(elf.PT_NOTE, 0)+phFilesz, uint64(len(p.b)))
		}, status: 1, want: "program header 5 at file offset 0x0, 6048 bytes, lies across 0x1028, where what is loaded ends"},
		{name: "PT_NOTE to the end of the file", change: func(p *patcher) {
			p.put64(p.segment(elf.PT_NOTE, 0)+phFilesz, uint64(len(p.b))-0x254)
		}, status: 1, want: "program header 5 at file offset 0x254, 5452 bytes, lies across 0x1028, where what is loaded ends"},
		{name: "PT_PHDR huge", change: segment(elf.PT_PHDR, 0, phFilesz, math.MaxUint64), status: 1,
			want: "program header 0: 18446744073709551615 bytes at file offset 0x40 do not fit"},
	}
	for _, name := range []string{".eh_frame", ".shstrtab", ".dynsym", ".dynamic"} {
		for _, v := range []uint64{1<<32 - 1, 1 << 32, 1 << 63, math.MaxUint64 - 7, math.MaxUint64} {
			want := "do not fit the file of 6048 bytes"
			if name == ".shstrtab" {
				want = "section name table"
			}
			cases = append(cases,
				hostileCase{name: fmt.Sprintf("sh_size of %s %#x", name, v), change: section(name, shSize, v), status: 1, want: want},
				hostileCase{name: fmt.Sprintf("sh_offset of %s %#x", name, v), change: section(name, shOff, v), status: 1, want: want})
		}
	}
	// Links in a circle, to the section itself, and nowhere.
	link := func(from, to string) func(*patcher) {
		return func(p *patcher) { p.put32(p.section(from)+shLink, uint32(p.index(to))) }
	}
	cases = append(cases,
		hostileCase{name: "sh_link in a circle", change: all(link(".dynsym", ".dynstr"), link(".dynstr", ".dynsym"), link(".symtab", ".strtab"), link(".strtab", ".symtab")), want: "verified"},
		hostileCase{name: "sh_link to itself", fixture: "drap2.so", change: all(link(".dynsym", ".dynsym"), link(".symtab", ".symtab")), want: "stack realignment"},
		hostileCase{name: "sh_link nowhere", fixture: "drap2.so", change: all(section(".dynsym", shLink, math.MaxUint32), section(".symtab", shLink, 1<<31)), want: "stack realignment"},
		hostileCase{name: "symbol names that talk to the terminal", fixture: "drap2.so", change: func(p *patcher) {
			copy(p.b, bytes.ReplaceAll(p.b, []byte("realign_rbx"), []byte("\x1b]0;names\x07\n")))
		}, want: `"\x1b]0;names\a\n"+0x5: stack realignment`},
		hostileCase{name: "a section name that talks to the terminal", change: all(segment(elf.PT_INTERP, 0, phOff, 0x1000), func(p *patcher) {
			p.b[p.u64(p.section(".shstrtab")+shOff)+uint64(p.u32(p.section(".interp")))] = 0x1b
		}), status: 1, want: "?interp at file offset 0x238 cannot be moved"},
		hostileCase{name: "sh_info nowhere", change: section(".rela.plt", shInfo, math.MaxUint32), want: "verified"},
		hostileCase{name: "sh_addralign 2^63", change: section(".symtab", shAlign, 1<<63), want: "verified"},
		hostileCase{name: "sh_addralign of .dynsym 2^63", change: section(".dynsym", shAlign, 1<<63), want: "verified"},
		hostileCase{name: "sh_addralign of .dynsym 2^40", change: section(".dynsym", shAlign, 1<<40), want: "verified"},
		hostileCase{name: "sh_addr 2^64-1", change: section(".text", shAddr, math.MaxUint64), want: "of code that the file does not have"},
	)
	// Without section headers, .eh_frame is found through PT_GNU_EH_FRAME.
	bare := all(put64(ehShoff, 0), put16(ehShnum, 0), put16(ehShstrndx, 0))
	hdr := func(off int, v byte) func(*patcher) {
		return func(p *patcher) { p.b[int(p.u64(p.segment(elf.PT_GNU_EH_FRAME, 0)+phOff))+off] = v }
	}
	cases = append(cases,
		hostileCase{name: "no sections", change: bare, status: 1, want: "without section headers it is not known what may move"},
		hostileCase{name: "no sections, PT_GNU_EH_FRAME past the end", change: all(bare, segment(elf.PT_GNU_EH_FRAME, 0, phOff, 1<<50)), status: 1,
			want: "PT_GNU_EH_FRAME at file offset 0x4000000000000: 20 bytes do not fit"},
		hostileCase{name: "no sections, PT_GNU_EH_FRAME of 3 bytes", change: all(bare, segment(elf.PT_GNU_EH_FRAME, 0, phFilesz, 3)), status: 1,
			want: "PT_GNU_EH_FRAME+0x2: encodings of 2 bytes, but 1 bytes are left"},
		hostileCase{name: "no sections, PT_GNU_EH_FRAME empty", change: all(bare, segment(elf.PT_GNU_EH_FRAME, 0, phFilesz, 0)), status: 1,
			want: "no CFI: neither .eh_frame nor .debug_frame is there"},
		hostileCase{name: "no sections, .eh_frame_hdr version 2", change: all(bare, hdr(0, 2)), status: 1,
			want: "PT_GNU_EH_FRAME+0x0: version 2 of .eh_frame_hdr; 1 was expected"},
		hostileCase{name: "no sections, .eh_frame_hdr without a pointer", change: all(bare, hdr(1, 0xff)), status: 1,
			want: "PT_GNU_EH_FRAME+0x4: pointer is omitted"},
		hostileCase{name: "no sections, .eh_frame_hdr with an odd encoding", change: all(bare, hdr(1, 0x0e)), status: 1,
			want: "PT_GNU_EH_FRAME+0x4: pointer encoding 0x0e has an unknown form"},
		hostileCase{name: "no sections, .eh_frame_hdr with an indirect pointer", change: all(bare, hdr(1, 0x9b)), status: 1,
			want: "no CFI that can be used: .eh_frame+"},
		hostileCase{name: "no sections, .eh_frame_hdr leads nowhere", change: all(bare, hdr(7, 0x70)), status: 1,
			want: "leads to .eh_frame at address 0x70000608, which no loaded segment holds"},
		hostileCase{name: "no sections, .eh_frame_hdr leads to itself", change: all(bare, hdr(1, 0x03), hdr(4, 0xd0), hdr(5, 4)), status: 1},
	)
	for i := range cases {
		t.Run(cases[i].name, cases[i].run)
	}
}

// TestHostileCFI has malformed records, next to a sound function.
func TestHostileCFI(t *testing.T) {
	const size = 0x1000 // of the code
	le := binary.LittleEndian
	one := func(instructions ...byte) func(*frames, uint64) {
		return func(f *frames, text uint64) { f.fde(f.cie(sound...), text+16, 16, instructions...) }
	}
	initial := func(instructions ...byte) func(*frames, uint64) {
		return func(f *frames, text uint64) { f.fde(f.cie(instructions...), text+16, 16) }
	}
	// of appends an FDE of the CIE that was appended last.
	of := func(cie func(f *frames) int) func(*frames, uint64) {
		return func(f *frames, text uint64) { f.fde(cie(f), text+16, 16) }
	}
	// raw appends bytes that are no record.
	raw := func(b ...byte) func(*frames, uint64) {
		return func(f *frames, text uint64) { f.b = append(f.b, b...) }
	}
	long := func(n int) []byte { return append(bytes.Repeat([]byte{0x80}, n-1), 1) } // a LEB128 number of n bytes
	alone := "no CFI that can be used: .eh_frame+0x0: "
	for _, tt := range []struct {
		name   string
		change func(f *frames, text uint64)
		want   string // in the report
		alone  string // in the error, if there is nothing else in the section
	}{
		{"length 2^64-1", raw(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0),
			"record of 18446744073709551615 bytes, but the section has 4 left", alone + "record of 18446744073709551615 bytes"},
		{"length 2^63", raw(0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0),
			"record of 9223372036854775808 bytes, but the section has 4 left", alone},
		{"length in 64 bits cut off", raw(0xff, 0xff, 0xff, 0xff, 0, 0, 0), "operand of 8 bytes, but 3 bytes are left", "no CFI that can be used: .eh_frame+0x4: operand of 8 bytes"},
		{"length reserved", raw(0xf0, 0xff, 0xff, 0xff, 0, 0, 0), "length 0xfffffff0 is reserved", alone},
		{"length past the end", raw(0x11, 0, 0, 0, 0, 0, 0, 0), "record of 17 bytes, but the section has 4 left", alone},
		{"length 2^32-17", raw(0xef, 0xff, 0xff, 0xff, 0, 0, 0, 0), "record of 4294967279 bytes, but the section has 4 left", alone},
		{"length of 3 bytes", raw(1, 0, 0), "operand of 4 bytes, but 3 bytes are left", alone},
		{"record too short for an id", raw(2, 0, 0, 0, 0, 0), "operand of 4 bytes, but 2 bytes are left", "no CFI that can be used: .eh_frame+0x4: operand of 4 bytes"},
		{"CIE of nothing", of(func(f *frames) int { return f.record(0, nil) }), "record ends where an operand was expected", "no CFI that can be used: .eh_frame+0x8: record ends"},
		{"CIE pointer before the section", func(f *frames, text uint64) { f.record(0x7fffffff, make([]byte, 16)) },
			"CIE pointer 0x7fffffff reaches before the start of the section", ".eh_frame+0x4: CIE pointer"},
		{"CIE pointer to the FDE itself", func(f *frames, text uint64) { f.record(4, make([]byte, 16)) },
			"FDE of a CIE that cannot be used (", "no CIE here, but an FDE says so"},
		{"CIE pointer to another FDE", func(f *frames, text uint64) {
			fde := f.fde(f.cie(sound...), text+16, 16)
			f.fde(fde, text+32, 16)
		}, "no CIE here, but an FDE says so", ""},
		{"CIE pointers in a circle", func(f *frames, text uint64) {
			f.record(math.MaxUint32-24+4, make([]byte, 16)) // the next one, if there were a carry
			f.record(4+24, make([]byte, 16))
		}, "reaches before the start of the section", ".eh_frame+0x4: CIE pointer"},
		{"CIE pointer into a CIE", func(f *frames, text uint64) {
			f.fde(f.cie(sound...)+4, text+16, 16)
		}, "no CIE here", "no CIE here"},
		{"CIE pointer into the padding", func(f *frames, text uint64) {
			f.b = append(f.b, 0, 0, 0, 0)
			f.fde(len(f.b)-4, text+16, 16)
		}, "no CIE here, but an FDE says so", "no CIE here"},
		{"CIE version 2", func(f *frames, text uint64) {
			cie := f.cie(sound...)
			f.b[cie+8] = 2
			f.fde(cie, text+16, 16)
		}, "CIE version 2; 1, 3 or 4 was expected", "CIE version 2"},
		{"CIE version 4 with addresses of 4 bytes", of(func(f *frames) int { return f.record(0, []byte{4, 0, 4, 0, 1, 0x78, 16}) }), "CIE with addresses of 4 and segments of 0 bytes; 8 and 0 were expected", alone[:len(alone)-5]},
		{"augmentation without end", of(func(f *frames) int { return f.record(0, []byte("\x01zRPLSBG")) }),
			"augmentation string has no end", ".eh_frame+0x9: augmentation string has no end"},
		{"augmentation unknown", of(func(f *frames) int { return f.cieOf("armcc+", 1, nil, sound) }),
			`augmentation "armcc+" is unknown and does not start with z`, `augmentation "armcc+"`},
		{"augmentation of a megabyte", of(func(f *frames) int { return f.cieOf(strings.Repeat("\x01", 1<<20), 1, nil, sound) }),
			"of 1048576 bytes is unknown; at most 64 are accepted", "of 1048576 bytes is unknown"},
		{"augmentation data past the end", of(func(f *frames) int { return f.cieOf("zR", 1, []byte{0x7f, 0}, nil) }),
			"augmentation data of 127 bytes, but 1 bytes are left", ".eh_frame+0x10: augmentation data"},
		{"augmentation data of 2^63 bytes", of(func(f *frames) int { return f.cieOf("zR", 1, append(long(10), 0), nil) }),
			"augmentation data of 9223372036854775808 bytes", ".eh_frame+0x19: augmentation data"},
		{"augmentation data too short", of(func(f *frames) int { return f.cieOf("zPLR", 1, []byte{1, 0}, nil) }),
			"operand of 8 bytes, but 0 bytes are left", ".eh_frame+0x13: operand of 8 bytes"},
		{"augmentation data of an FDE past the end", func(f *frames, text uint64) {
			f.fde(f.cieOf("zR", 1, []byte{1, 0}, sound), text+16, 16, 0x20, 0)
		}, "augmentation data of 32 bytes, but 1 bytes are left", "augmentation data of 32 bytes"},
		{"pointer encoding unknown", func(f *frames, text uint64) {
			f.fde(f.cieOf("zR", 1, []byte{1, 0x0f}, sound), text+16, 16, 0)
		}, "pointer encoding 0x0f has an unknown form", "pointer encoding 0x0f"},
		{"pointer base unknown", func(f *frames, text uint64) {
			f.fde(f.cieOf("zR", 1, []byte{1, 0x60}, sound), text+16, 16, 0)
		}, "pointer encoding 0x60 has an unknown base", "pointer encoding 0x60"},
		{"pointer omitted", func(f *frames, text uint64) {
			f.fde(f.cieOf("zR", 1, []byte{1, 0xff}, sound), text+16, 16, 0)
		}, "pointer is omitted (encoding 0xff)", "pointer is omitted"},
		{"pointer indirect to nowhere", func(f *frames, text uint64) {
			f.fde(f.cieOf("zR", 1, []byte{1, 0x80}, sound), 1<<40, 16, 0)
		}, "indirect pointer at address 0x10000000000, which no loaded segment holds", "indirect pointer"},
		{"pointer of 100 LEB128 bytes", func(f *frames, text uint64) {
			cie := f.cieOf("zR", 1, []byte{1, 1}, sound)
			f.record(uint32(len(f.b)+4-cie), append(long(100), 1, 0))
		}, "unsigned LEB128 number longer than 64 bits", "unsigned LEB128 number"},

		{"code alignment 2^63", func(f *frames, text uint64) {
			cie := f.record(0, slices.Concat([]byte{1, 0}, long(10), []byte{0x78, 16}, sound))
			f.fde(cie, text+16, 16, 0x42, 0x0e, 16)
		}, "location advances past 2^64", ""},
		{"code alignment of 100 LEB128 bytes", of(func(f *frames) int {
			return f.record(0, slices.Concat([]byte{1, 0}, long(100), []byte{0x78, 16}, sound))
		}), "unsigned LEB128 number longer than 64 bits", ".eh_frame+0xa: unsigned LEB128 number"},
		{"data alignment -2^63", of(func(f *frames) int {
			return f.record(0, slices.Concat([]byte{1, 0, 1}, bytes.Repeat([]byte{0x80}, 9), []byte{0x7f, 16}, sound))
		}), "offset 1 times the data alignment -9223372036854775808 is too large", "times the data alignment"},
		{"location changes in a CIE", initial(0x0c, 7, 8, 0x90, 1, 0x41), "initial instructions of a CIE change the location", "initial instructions"},
		{"restore in a CIE", initial(0xd0), "no CFA rule (CFA u)", ""},
		{"a million times remember_state in a CIE", initial(bytes.Repeat([]byte{0x0a}, 1e6)...), "remember_state nests deeper than 4096", "remember_state nests"},

		{"FDE past the end of the code", func(f *frames, text uint64) { f.fde(f.cie(sound...), text+size-8, 1<<20) },
			"FDE of the 1048576 bytes at 0x", "but the executable code there ends at"},
		{"FDE around 2^64", func(f *frames, text uint64) { f.fde(f.cie(sound...), text+16, math.MaxUint64) },
			"FDE of the 18446744073709551615 bytes at 0x", "but the executable code there ends at"},
		{"FDE at 2^64-1", func(f *frames, text uint64) { f.fde(f.cie(sound...), math.MaxUint64, 2) },
			"1 FDE of code that the file does not have", "the CFI describes no code of this file"},
		{"FDE of no code", func(f *frames, text uint64) { f.fde(f.cie(sound...), text+16, 0) },
			"1 FDE of no code", "the CFI describes no code of this file"},
		{"FDE cut off", func(f *frames, text uint64) {
			cie := f.cie(sound...)
			f.record(uint32(len(f.b)+4-cie), make([]byte, 12))
		},
			"operand of 8 bytes, but 4 bytes are left", "operand of 8 bytes"},

		{"a million times remember_state", one(bytes.Repeat([]byte{0x0a}, 1e6)...), "remember_state nests deeper than 4096", ""},
		{"a million times remember_state and restore_state", one(bytes.Repeat([]byte{0x0a, 0x0b}, 1e6)...), "32 covered (100.00 %)", ""},
		{"restore_state without remember_state", one(0x0b), "restore_state without a remember_state", ""},
		{"unknown opcode", one(0x3f), "unknown opcode 0x3f", ""},
		{"opcode of another machine", one(0x2d), "opcode 0x2d is not defined for this machine", ""},
		{"expression past the end", one(0x0f, 0x20, 0x77, 8), "expression of 32 bytes, but 2 bytes are left in the record", ""},
		{"expression of 2^63 bytes", one(append([]byte{0x0f}, long(10)...)...), "expression of 9223372036854775808 bytes", ""},
		{"expression with a block of 2^40 bytes", one(0x0f, 7, 0x9e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20), "CFA given by an expression", ""},
		{"expression with a block of 2^63 bytes", one(append([]byte{0x0f, 11, 0x9e}, long(10)...)...), "CFA given by an expression", ""},
		{"expression with a cut LEB128 number", one(0x0f, 2, 0x77, 0x80), "CFA given by an expression", ""},
		{"expression on an empty stack", one(0x0f, 1, 0x22), "CFA given by an expression", ""},
		{"expression without end", one(0x0f, 3, 0x2f, 0xfd, 0xff), "CFA given by an expression", ""},
		{"expression of 20,000 no-operations", one(slices.Concat([]byte{0x0f, 0xa2, 0x9c, 1, 0x77, 8}, bytes.Repeat([]byte{0x96}, 20000))...), "CFA given by an expression", ""},
		{"register of 100 LEB128 bytes", one(append([]byte{0x0d}, long(100)...)...), "unsigned LEB128 number longer than 64 bits", ""},
		{"offset of 100 LEB128 bytes", one(append([]byte{0x13}, long(100)...)...), "signed LEB128 number longer than 64 bits", ""},
		{"offset 2^63", one(append([]byte{0x0e}, long(10)...)...), "CFA offset -9223372036854775808 is too large", ""},
		{"offset 2^40", one(0x0e, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20), "offset over 32 bits", ""},
		{"location past 2^64", one(0x1d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "location advances past 2^64", ""},
		{"location past the function", one(0x04, 0xff, 0xff, 0xff, 0xff, 0x0e, 16), "32 covered (100.00 %)", ""},
		{"location back", one(append([]byte{0x41, 0x01}, le.AppendUint64(nil, 1)...)...), "set_loc goes back", ""},
		{"location cut off", one(0x04, 1, 2), "operand of 4 bytes, but 2 bytes are left", ""},
	} {
		for _, both := range []bool{true, false} {
			name := tt.name
			if !both {
				name += ", alone"
			}
			t.Run(name, func(t *testing.T) {
				p := newPatcher(t.Fatalf, fixture(t, "pltlib.so"))
				text := p.code(size)
				var f frames
				if both {
					f.fde(f.cie(sound...), text, 16)
				}
				tt.change(&f, text)
				p.contents(".eh_frame", f.b)
				o := convertHostile(t, t.TempDir(), p.b)
				want, status := tt.want, exitDone
				if !both && tt.alone != "" {
					want, status = tt.alone, exitError
				}
				if both && o.status == exitDone && o.out != nil && o.out.Find(text) < 0 {
					t.Errorf("the sound function is not in the output")
				}
				if !both {
					want = strings.Replace(want, "32 covered", "16 covered", 1)
				}
				if o.status != status || !strings.Contains(o.stderr, want) {
					t.Errorf("exit status %d; %d was expected\n%.2000s\nwhich should contain %q", o.status, status, o.stderr, want)
				}
			})
		}
	}
}

// newSections gives the file n more section headers, each of which is set by fill.
func (p *patcher) newSections(n int, fill func(i, header int)) {
	old := int(p.u16(ehShnum)) * elffile.SectionSize
	table := p.append(slices.Concat(p.b[p.sh(0):][:old], make([]byte, n*elffile.SectionSize)))
	p.put64(ehShoff, uint64(table))
	for i := range n {
		fill(i, table+old+i*elffile.SectionSize)
	}
	p.put16(ehShnum, uint16(old/elffile.SectionSize+n))
}

// copySection makes the header at off that of the named section.
func (p *patcher) copySection(off int, name string) {
	copy(p.b[off:], p.b[p.section(name):][:elffile.SectionSize])
}

// bomb returns a compressed stream of 1 GiB of zeros, followed by nothing: who reads
// all of it fails at the end.
func bomb(t *testing.T, kind elf.CompressionType) []byte {
	t.Helper()
	var b bytes.Buffer
	var w interface {
		Write([]byte) (int, error)
		Flush() error
	}
	switch kind {
	case elf.COMPRESS_ZLIB:
		w = zlib.NewWriter(&b)
	default:
		z, err := zstd.NewWriter(&b, zstd.WithWindowSize(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	// Any chunk but the first refers to the one before it only, so it can be repeated.
	var first, second int
	for _, end := range []*int{&first, &second} {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		*end = b.Len()
	}
	chunk := bytes.Clone(b.Bytes()[first:second])
	for range 1022 {
		b.Write(chunk)
	}
	return b.Bytes()
}

// compressed makes .comment-like section contents for SHF_COMPRESSED.
func compressed(kind elf.CompressionType, size uint64, data []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(kind))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, size)
	b = binary.LittleEndian.AppendUint64(b, 1)
	return append(b, data...)
}

// TestHostileCompression has .debug_frame sections that are not what they claim.
func TestHostileCompression(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind elf.CompressionType
		size uint64
		want string
	}{
		{"1 GiB claimed", elf.COMPRESS_ZLIB, 1 << 30, "1073741824 bytes of CFI, beside 168 of other sections; at most 12582912 are accepted"},
		{"2^64-1 claimed", elf.COMPRESS_ZLIB, math.MaxUint64, "18446744073709551615 bytes of CFI, beside"},
		{"8 MiB claimed", elf.COMPRESS_ZLIB, 8 << 20, "does not decompress to the 8388608 bytes its header says"},
		{"1000 bytes claimed", elf.COMPRESS_ZLIB, 1000, "does not decompress to the 1000 bytes its header says"},
		{"zstd, 1 GiB claimed", elf.COMPRESS_ZSTD, 1 << 30, "1073741824 bytes of CFI, beside 168 of other sections; at most 12582912 are accepted"},
		{"zstd, 8 MiB claimed", elf.COMPRESS_ZSTD, 8 << 20, "does not decompress to the 8388608 bytes its header says"},
		{"zstd, 1000 bytes claimed", elf.COMPRESS_ZSTD, 1000, "does not decompress to the 1000 bytes its header says"},
		{"unknown kind", 3, 1000, "compression type 3; zlib (1) or zstd (2) was expected"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := compressed(tt.kind, tt.size, bomb(t, tt.kind))
			c := hostileCase{status: 1, want: "section .debug_frame at file offset 0x", change: func(p *patcher) { p.debugFrame(".debug_frame", uint64(elf.SHF_COMPRESSED), data) }}
			c.run(t)
			c.want = tt.want
			c.run(t)
			if tt.kind != elf.COMPRESS_ZLIB {
				return
			}
			old := append([]byte("ZLIB"), binary.BigEndian.AppendUint64(nil, tt.size)...)
			old = append(old, data[24:]...)
			c.change = func(p *patcher) { p.debugFrame(".zdebug_frame", 0, old) }
			c.run(t)
		})
	}
	short := hostileCase{status: 1, want: "compressed, but 23 bytes are too few for a compression header of 24", change: func(p *patcher) {
		p.debugFrame(".debug_frame", uint64(elf.SHF_COMPRESSED), make([]byte, 23))
	}}
	t.Run("header cut off", short.run)
	short.want = "section .zdebug_frame at file offset 0x"
	short.change = func(p *patcher) { p.debugFrame(".zdebug_frame", 0, []byte("ZLIB\x00")) }
	t.Run("old header cut off", short.run)
}

// debugFrame adds a section with the given name and contents.
func (p *patcher) debugFrame(name string, flags uint64, data []byte) {
	off := p.append(data)
	names := p.section(".shstrtab")
	at := p.append(append(p.b[p.u64(names+shOff):][:p.u64(names+shSize):p.u64(names+shSize)], name+"\x00"...))
	str := uint32(p.u64(names + shSize))
	p.put64(names+shOff, uint64(at))
	p.put64(names+shSize, uint64(str)+uint64(len(name))+1)
	p.newSections(1, func(_, h int) {
		p.put32(h, str)
		p.put32(h+shType, uint32(elf.SHT_PROGBITS))
		p.put64(h+shFlags, flags)
		p.put64(h+shOff, uint64(off))
		p.put64(h+shSize, uint64(len(data)))
	})
}

// TestHostileSize has files that are large, or cause much work for their size.
func TestHostileSize(t *testing.T) {
	// cfi makes a library with so much code and the CFI that fill makes.
	cfi := func(code int, fill func(f *frames, text uint64)) func(*patcher) {
		return func(p *patcher) {
			var f frames
			fill(&f, p.code(code))
			p.contents(".eh_frame", f.b)
		}
	}
	// spread makes .text as large without a byte in the file.
	spread := func(size uint64, fill func(f *frames, text uint64)) func(*patcher) {
		return func(p *patcher) {
			h := p.section(".text")
			p.put32(h+shType, uint32(elf.SHT_NOBITS))
			p.put64(h+shSize, size)
			var f frames
			fill(&f, p.u64(h+shAddr))
			p.contents(".eh_frame", f.b)
		}
	}
	expression := func(b ...byte) []byte {
		return append(binary.AppendUvarint([]byte{0x0f}, uint64(len(b))), b...)
	}
	cases := []hostileCase{
		{name: "200,000 FDEs with the same start", long: true, want: "199,999 FDEs cut because they overlap another one",
			change: cfi(16, func(f *frames, text uint64) {
				cie := f.cie(sound...)
				for range 200_000 {
					f.fde(cie, text, 16)
				}
			})},
		{name: "200,000 FDEs, each larger than the one before", long: true, want: "199,999 FDEs cut because they overlap another one",
			change: cfi(200_000, func(f *frames, text uint64) {
				cie := f.cie(sound...)
				for i := range uint64(200_000) {
					f.fde(cie, text, i+1)
				}
			})},
		{name: "200,000 FDEs from the end to the start", want: "200,000 covered",
			change: cfi(200_000, func(f *frames, text uint64) {
				cie := f.cie(sound...)
				for i := range uint64(200_000) {
					f.fde(cie, text+199_999-i, 1)
				}
			})},
		{name: "a million CIEs", long: true, want: "16 covered",
			change: cfi(16, func(f *frames, text uint64) {
				for range 1_000_000 {
					f.cie(sound...)
				}
				f.fde(f.cie(sound...), text, 16)
			})},
		{name: "a million CIEs that cannot be used", long: true, want: "16 covered",
			change: cfi(16, func(f *frames, text uint64) {
				for range 1_000_000 {
					f.cie(0x3f)
				}
				f.fde(f.cie(sound...), text, 16)
			})},
		{name: "200,000 FDEs of a CIE with an unknown augmentation of a megabyte", long: true, want: "malformed CFI: 199991 more",
			change: cfi(32, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 16)
				cie := f.cieOf(strings.Repeat("x", 1<<20), 1, nil, sound)
				for range 200_000 {
					f.fde(cie, text+16, 16)
				}
			})},
		{name: "20,000 FDEs of a CIE with an expression of 64 KiB", long: true, want: "20,000 functions: CFA given by an expression",
			change: cfi(20_000, func(f *frames, text uint64) {
				cie := f.cie(append(expression(bytes.Repeat([]byte{0x96}, 64<<10)...), 0x90, 1)...)
				for i := range uint64(20_000) {
					f.fde(cie, text+i, 1)
				}
			})},
		{name: "200,000 rows with an expression of 64 KiB", long: true, want: "CFA given by an expression",
			change: cfi(200_000, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 200_000, append(expression(bytes.Repeat([]byte{0x96}, 64<<10)...), bytes.Repeat([]byte{0x41}, 200_000)...)...)
			})},
		{name: "50,000 rows with an expression of 200 bytes", want: "50,000 covered",
			change: cfi(50_000, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 50_000, append(expression(append([]byte{0x77, 8}, bytes.Repeat([]byte{0x96}, 198)...)...), bytes.Repeat([]byte{0x41}, 50_000)...)...)
			})},
		{name: "50,000 gaps in one function", want: "and 49,990 gaps more",
			change: cfi(100_000, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 100_000, bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7}, 50_000)...)
			})},
		{name: "50,000 gaps under a symbol with a name of 60 KiB", long: true, want: "and 49,990 gaps more",
			change: func(p *patcher) {
				cfi(100_000, func(f *frames, text uint64) {
					f.fde(f.cie(sound...), text, 100_000, bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7}, 50_000)...)
				})(p)
				p.contents(".strtab", append(append([]byte{0}, bytes.Repeat([]byte("x"), 60<<10)...), 0))
				p.contents(".symtab", symbol(1, p.u64(p.section(".text")+shAddr), 100_000, uint16(p.index(".text"))))
			}},
		{name: "50,000 gaps under 50,000 symbols with names of 60 KiB", long: true, want: "and 49,990 gaps more",
			change: func(p *patcher) {
				cfi(100_000, func(f *frames, text uint64) {
					f.fde(f.cie(sound...), text, 100_000, bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7}, 50_000)...)
				})(p)
				p.contents(".strtab", append(append([]byte{0}, bytes.Repeat([]byte("x"), 60<<10)...), 0))
				var symbols []byte
				for i := range uint64(50_000) {
					symbols = append(symbols, symbol(1+uint32(i), p.u64(p.section(".text")+shAddr)+2*i+1, 1, uint16(p.index(".text")))...)
				}
				p.contents(".symtab", symbols)
			}},
		{name: "50,000 gaps under 50,000 symbols that cover all of them", long: true, want: "and 49,990 gaps more",
			change: func(p *patcher) {
				cfi(100_000, func(f *frames, text uint64) {
					f.fde(f.cie(sound...), text, 100_000, bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7}, 50_000)...)
				})(p)
				p.contents(".symtab", bytes.Repeat(symbol(1, p.u64(p.section(".text")+shAddr), 100_000, uint16(p.index(".text"))), 50_000))
			}},
		{name: "50,000 gaps as JSON", long: true, args: []string{"--report", "json"},
			change: cfi(100_000, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 100_000, bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7}, 50_000)...)
			})},
		{name: "50,000 gaps under 50,000 symbols", long: true, want: "and 49,990 gaps more",
			change: func(p *patcher) {
				cfi(100_000, func(f *frames, text uint64) {
					f.fde(f.cie(sound...), text, 100_000, bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7}, 50_000)...)
				})(p)
				p.contents(".symtab", bytes.Repeat(symbol(1, p.u64(p.section(".text")+shAddr), math.MaxUint64, uint16(p.index(".text"))), 50_000))
			}},
		{name: "50,000 symbol tables", status: 1, want: "symbol tables overlap", fixture: "drap2.so",
			change: func(p *patcher) {
				at := uint64(p.append(make([]byte, 1<<20)))
				p.newSections(50_000, func(_, h int) {
					p.copySection(h, ".symtab")
					p.put64(h+shOff, at)
					p.put64(h+shSize, 1<<20)
				})
			}},
		{name: "50,000 sections .eh_frame", long: true, status: 1, want: "1048576 bytes of CFI, beside 11534532 of other sections; at most 12582912 are accepted in a file of this size",
			change: func(p *patcher) {
				at := uint64(p.append(make([]byte, 1<<20)))
				p.newSections(50_000, func(_, h int) {
					p.copySection(h, ".eh_frame")
					p.put64(h+shOff, at)
					p.put64(h+shSize, 1<<20)
				})
			}},
		{name: "60,000 sections that could move", long: true, status: 1, want: "no room for 2 more program headers",
			change: func(p *patcher) { p.b = crowded(60_000) }},
		{name: "60,000 sections of code", long: true, want: "covered",
			change: func(p *patcher) {
				p.newSections(60_000, func(i, h int) {
					p.copySection(h, ".text")
					p.put64(h+shAddr, uint64(0x100000+1000*i))
				})
			}},
		{name: "a PLT of 100,000 bytes without a pattern, not in its place", want: "left out: 100,000 bytes in 1 range of 1 function: CFA depends on where the code is loaded",
			change: spread(1<<30, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 100_000, unruly...)
			})},
		{name: "a PLT of 100,000 bytes without a pattern", want: "100,000 bytes of code described by CFI, 100,000 covered", fixture: "undefra",
			change: spread(1<<30, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 100_000, unruly...)
			})},
		{name: "a PLT of a megabyte without a pattern", long: true, want: "CFA given by an expression", fixture: "undefra",
			change: spread(1<<30, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 1_000_000, unruly...)
			})},
		{name: "a PLT of a megabyte", long: true, want: "1,000,000 bytes of code described by CFI, 1,000,000 covered",
			change: spread(1<<30, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 1_000_000, steady...)
			})},
		{name: "a PLT of 4 MiB without a pattern", want: "CFA given by an expression", fixture: "undefra",
			change: spread(1<<30, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 4<<20, unruly...)
			})},
		{name: "a hundred PLTs of 4 MiB", long: true, want: "CFA given by an expression",
			change: spread(1<<40, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 400<<20, append(slices.Clone(steady), bytes.Repeat([]byte{0x04, 0, 0, 0x40, 0}, 99)...)...)
			})},
		{name: "a function of 2^40 bytes", want: "left out: 1,099,511,627,776 bytes in 1 range of 1 function: ",
			change: spread(1<<41, func(f *frames, text uint64) {
				f.fde(f.cie(sound...), text, 1<<40)
			})},
		{name: "a hundred functions of 2^32-1 bytes", want: "left out: 429,496,729,500 bytes in 100 ranges of 100 functions: more than 2 GiB from the section",
			change: spread(1<<41, func(f *frames, text uint64) {
				cie := f.cie(sound...)
				for i := range uint64(100) {
					f.fde(cie, text+i<<32, 1<<32-1, 0x41, 0x0e, 16)
				}
			})},
		{name: "a PLT of a megabyte without CFI", want: "1,048,576 bytes of PLT stubs without CFI",
			change: func(p *patcher) { p.bigPLT(1<<20, 0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90) }}, // jmp *x(%rip); xchg %ax,%ax
		{name: "a lazy PLT of a megabyte without CFI", long: true, want: "1,048,576 bytes of PLT stubs without CFI",
			change: func(p *patcher) {
				p.bigPLT(1<<20, 0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 1) // jmp *x(%rip); push $n; jmp x
			}},
		{name: "a lazy PLT that nothing jumps to the start of", want: "41 bytes of code described by CFI, 41 covered",
			change: func(p *patcher) {
				p.bigPLT(16, 0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0) // push x(%rip); jmp *x(%rip); nopl 0(%rax)
			}},
		{name: "1,000 times the same PLT of a megabyte without CFI", long: true, want: "1,048,576 bytes of PLT stubs without CFI",
			change: func(p *patcher) {
				p.bigPLT(1<<20, 0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90)
				p.newSections(1000, func(_, h int) { p.copySection(h, ".plt") })
			}},
		{name: "an interpreter with a .bss of 2^40 bytes", status: 1, want: "interpreter with a .bss of",
			change: func(p *patcher) {
				p.put64(ehEntry, 0x340)
				p.put64(p.segment(elf.PT_LOAD, 1)+phMemsz, 1<<40)
			}},
		{name: "an interpreter with a .bss of 1 GiB", status: 1, want: "interpreter with a .bss of",
			change: func(p *patcher) {
				p.put64(ehEntry, 0x340)
				p.put64(p.segment(elf.PT_LOAD, 1)+phMemsz, 1<<30)
			}},
		{name: "an interpreter with sections aligned to pages", want: "73 covered",
			change: func(p *patcher) {
				p.put64(ehEntry, 0x340)
				p.put64(p.section(".dynsym")+shAlign, 4096)
				p.put64(p.section(".gnu.hash")+shAlign, 4096)
			}},
		{name: "a million empty records", want: "16 covered",
			change: cfi(16, func(f *frames, text uint64) {
				f.b = make([]byte, 4_000_000)
				f.fde(f.cie(sound...), text, 16)
			})},
		{name: "200,000 indirect pointers", want: "FDEs of code that the file does not have",
			change: func(p *patcher) {
				cfi(200_000, func(f *frames, text uint64) {
					cie := f.cieOf("zR", 1, []byte{1, 0x80}, sound)
					f.fde(f.cie(sound...), text, 16)
					for i := range uint64(200_000) {
						f.fde(cie, 8*(i%16), 1, 0)
					}
					f.record(0, nil)
				})(p)
			}},
	}
	program := build(t)
	for i := range cases {
		if cases[i].fixture == "" {
			cases[i].fixture = "pltlib.so"
		}
		t.Run(cases[i].name, func(t *testing.T) {
			if cases[i].long {
				long.Test(t)
			}
			t.Parallel()
			cases[i].bounded(t, program)
		})
	}
}

// CFA rules that depend on the pc: that of a PLT, and rsp plus a number that never
// repeats.
var (
	steady = []byte{0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}
	unruly = []byte{0x0f, 15, 0x77, 8, 0x80, 0, 0x12, 0x1e, 0x0a, 0x61, 0x7f, 0x1d, 0x33, 0x24, 0x22, 0x96, 0x96}
)

// symbol returns a function symbol.
func symbol(name uint32, value, size uint64, section uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, name)
	b = append(b, byte(elf.STT_FUNC), 0)
	b = binary.LittleEndian.AppendUint16(b, section)
	b = binary.LittleEndian.AppendUint64(b, value)
	return binary.LittleEndian.AppendUint64(b, size)
}

// crowded returns a library whose head is a build-id note that cannot go elsewhere,
// and n sections of a byte that could move to make room.
func crowded(n int) []byte {
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
	var f frames
	f.fde(f.cie(sound...), text, 16)
	add(".eh_frame", elf.SHT_PROGBITS, 0, f.b)
	load := uint64(len(b))
	add(".shstrtab", elf.SHT_STRTAB, 0, []byte(names))
	sections[len(sections)-1].Flags = 0
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: elffile.HeaderSize,
		Phoff: elffile.HeaderSize, Phentsize: elffile.ProgSize, Phnum: progs,
		Shoff: uint64(len(b)), Shentsize: elffile.SectionSize, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	head := new(bytes.Buffer)
	for _, v := range []any{&h, []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Filesz: load, Memsz: load},
		{Type: uint32(elf.PT_NOTE), Off: note, Vaddr: note, Filesz: size, Memsz: size},
		{Type: uint32(elf.PT_DYNAMIC), Off: dynamic, Vaddr: dynamic, Filesz: uint64(len(dyn) + 16), Memsz: uint64(len(dyn) + 16)},
	}} {
		_ = binary.Write(head, le, v) // a buffer takes everything
	}
	copy(b, head.Bytes())
	for i, v := range []uint32{4, size - 16, 3} { // a build-id that has to stay in the first page
		le.PutUint32(b[note+4*i:], v)
	}
	copy(b[note+12:], "GNU")
	tail := new(bytes.Buffer)
	_ = binary.Write(tail, le, sections)
	return append(b, tail.Bytes()...)
}

// TestHostileRandom has valid ELF headers, behind which anything can be.
func TestHostileRandom(t *testing.T) {
	header := fixture(t, "plt")[:elffile.HeaderSize]
	dir := t.TempDir()
	for seed := range long.Pick[uint64](t, 200, 2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 1+r.IntN(8192))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		p := newPatcher(t.Fatalf, append(bytes.Clone(header), b...))
		p.put64(ehShoff, r.Uint64N(uint64(len(p.b))))
		p.put16(ehShnum, uint16(r.IntN(30)))
		p.put16(ehShstrndx, uint16(r.IntN(30)))
		if o := convertHostile(t, dir, p.b); o.status != exitError {
			t.Errorf("seed %d: exit status %d\n%s", seed, o.status, o.stderr)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestHostileTruncated cuts a file at every place in its headers and records, and
// at some in between.
func TestHostileTruncated(t *testing.T) {
	whole := fixture(t, "plt")
	dir := t.TempDir()
	step := long.Pick(t, 61, 5)
	for n := 0; n < len(whole); n++ {
		if n > 700 && n < len(whole)-80 && n%step > 0 {
			continue
		}
		// The section headers stand last, so that all of them are missed.
		if o := convertHostile(t, dir, whole[:n]); o.status != exitError || !strings.Contains(o.stderr, "ELF header at") && !strings.Contains(o.stderr, "section header table at") {
			t.Fatalf("%d bytes: exit status %d\n%s", n, o.status, o.stderr)
		}
		if t.Failed() {
			t.Fatalf("%d bytes", n)
		}
	}
}

// TestHostileBytes changes each byte of the headers and of .eh_frame. Whatever
// that does, the output is sound or not there.
func TestHostileBytes(t *testing.T) {
	for _, name := range []string{"plt", "undefra"} {
		p := newPatcher(t.Fatalf, fixture(t, name))
		var places []int
		add := func(off, n uint64) {
			for i := range n {
				places = append(places, int(off+i))
			}
		}
		add(0, elffile.HeaderSize)
		add(p.u64(ehPhoff), uint64(p.u16(ehPhnum))*elffile.ProgSize)
		add(p.u64(ehShoff), uint64(p.u16(ehShnum))*elffile.SectionSize)
		for _, section := range []string{".eh_frame", ".eh_frame_hdr", ".dynamic", ".note.gnu.build-id"} {
			h := p.section(section)
			add(p.u64(h+shOff), p.u64(h+shSize))
		}
		dir := t.TempDir()
		statuses := make(map[int]int)
		step := long.Pick(t, 7, 1)
		for i, off := range places {
			values := []byte{0, 0xff, 0x80, 1}
			if racing {
				values = values[i%4:][:1]
			}
			if i%step > 0 {
				continue
			}
			was := p.b[off]
			for _, v := range values {
				p.b[off] = was ^ v
				if v == 0 {
					p.b[off] = 0
				}
				if p.b[off] == was {
					continue
				}
				o := convertHostile(t, dir, p.b)
				statuses[o.status]++
				if t.Failed() {
					t.Fatalf("%s, byte %#x is %#02x instead of %#02x: exit status %d\n%s", name, off, p.b[off], was, o.status, o.stderr)
				}
			}
			p.b[off] = was
		}
		if statuses[exitDone] == 0 || statuses[exitError] == 0 {
			t.Errorf("%s: exit statuses %v; both kinds were expected", name, statuses)
		}
		t.Logf("%s: exit statuses %v", name, statuses)
	}
}
