package elfwrite

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
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

// read returns a fixture of amd64.
func read(t *testing.T, name string) []byte {
	t.Helper()
	return testfile.Read(t, "../testdata/bin/amd64/"+name)
}

// allFixtures calls fn with every linked fixture of all ABIs, and an interpreter.
func allFixtures(t *testing.T, fn func(name string, b []byte)) {
	t.Helper()
	files, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d fixtures: %v", len(files), err)
	}
	for _, path := range files {
		fn(strings.TrimPrefix(path, "../testdata/bin/"), testfile.Read(t, path))
	}
	fn("interpreter", interpreter(t))
}

// interpreter returns a shared library that needs no libraries, with an entry point and a .bss.
func interpreter(t *testing.T) []byte {
	t.Helper()
	return patched(t, "pltlib.so", func(p *elftest.Patcher) {
		p.Put64(elftest.EhEntry, 0x340)
		memsz := p.LastLoad() + elftest.PhMemsz
		p.Put64(memsz, p.U64(memsz)+0x1234)
	})
}

// patched returns a modified fixture.
func patched(t *testing.T, name string, change func(*elftest.Patcher)) []byte {
	t.Helper()
	p := elftest.Patch(t.Fatalf, read(t, name))
	change(p)
	return p.B
}

// bare removes the section headers.
func bare(p *elftest.Patcher) {
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum-2, 0) // e_shentsize
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
}

// unknownType is the type of an unknown program header.
const unknownType = elf.PT_LOOS + 0x123

// dynamicEntry returns the file offset of the dynamic entry with a tag.
func dynamicEntry(p *elftest.Patcher, tag elf.DynTag) int {
	off := int(p.U64(p.Segment(elf.PT_DYNAMIC, 0) + elftest.PhOff))
	for elf.DynTag(p.U64(off)) != tag {
		off += elffile.DynSize
	}
	return off
}

// replaceDebug replaces DT_DEBUG with a different dynamic entry.
func replaceDebug(tag elf.DynTag, value uint64) func(*elftest.Patcher) {
	return func(p *elftest.Patcher) {
		off := dynamicEntry(p, elf.DT_DEBUG)
		p.Put64(off, uint64(tag))
		p.Put64(off+8, value)
	}
}

// replaceStack replaces PT_GNU_STACK with a different program header.
func replaceStack(typ elf.ProgType, off, addr, size uint64) func(*elftest.Patcher) {
	return func(p *elftest.Patcher) { p.Prog(p.Segment(elf.PT_GNU_STACK, 0), typ, off, addr, size) }
}

// setSize sets the file and memory sizes of the segment whose program header is at h.
func setSize(p *elftest.Patcher, h int, size uint64) {
	p.Put64(h+elftest.PhFilesz, size)
	p.Put64(h+elftest.PhMemsz, size)
}

// setSymbol changes the last symbol of .symtab.
func setSymbol(t *testing.T, b []byte, value uint64, section int, typ elf.SymType) {
	t.Helper()
	s := elftest.Parse(t, b).Section(".symtab")
	info := byte(elf.STB_GLOBAL)<<4 | byte(typ)
	sym := b[s.Off+s.Size-elffile.SymSize:][:elffile.SymSize]
	copy(sym[4:], elftest.Symbol(0, value, 0, uint16(section))[4:16])
	sym[4] = info
}

// assemble assembles and links source for amd64. The linker's options follow its input.
func assemble(t *testing.T, source, linker string, options ...string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "source.s")
	testfile.Write(t, path, source)
	return assembleFile(t, path, nil, linker, options...)
}

// assembleFile is like assemble, but takes a source file and assembler options.
func assembleFile(t *testing.T, source string, asOptions []string, linker string, options ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	object, out := filepath.Join(dir, "object.o"), filepath.Join(dir, "out")
	for _, cmd := range [][]string{
		append([]string{"as", "--64", source, "-o", object}, asOptions...),
		append([]string{linker, "-m", "elf_x86_64", object, "-o", out}, options...),
	} {
		must.Run(t, exec.Command(peer.Look(t, cmd[0]), cmd[1:]...))
	}
	return testfile.Read(t, out)
}

// content returns arbitrary bytes that start with SFrame's magic number, which is all that this package checks.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	if n >= 2 {
		binary.LittleEndian.PutUint16(b, sframe.Magic)
	}
	return b
}

// A buffer is an output file in memory. After the given number of writes, one write fails.
type buffer struct {
	b    []byte
	left int
}

var errFull = errors.New("no space left")

func (f *buffer) WriteAt(b []byte, off int64) (int, error) {
	if f.left--; f.left == -1 {
		return 0, errFull
	}
	if end := int(off) + len(b); end > len(f.b) {
		f.b = append(f.b, make([]byte, end-len(f.b))...)
	}
	return copy(f.b[off:], b), nil
}

func (f *buffer) Truncate(size int64) error {
	if f.left--; f.left == -1 {
		return errFull
	}
	f.b = append(f.b[:min(int(size), len(f.b))], make([]byte, max(0, int(size)-len(f.b)))...)
	return nil
}

// write returns the new file of a layout.
func write(t *testing.T, l *Layout, old, section []byte) []byte {
	t.Helper()
	dst := buffer{left: 1 << 20}
	must.Do(t, l.Write(t.Context(), &dst, bytes.NewReader(old), section, nil))
	return dst.b
}

// add adds or replaces an .sframe and returns the new file. If it was added, all other contents must be unchanged.
func add(t *testing.T, old, section []byte, opt Options) []byte {
	t.Helper()
	l := must.Get(Plan(elftest.Parse(t, old), uint64(len(section)), opt))(t)
	b := write(t, l, old, section)
	before, f := elftest.Parse(t, old), elftest.Parse(t, b)
	must.Do(t, placed(f, l, section))
	if x, _ := FindSFrame(before); x == (SFrame{Segment: -1}) {
		if err := image.Compare(before, f); err != nil {
			t.Error(err)
		}
	}
	return b
}

// placed returns an error unless the section is where the layout placed it.
func placed(f *elffile.File, l *Layout, section []byte) error {
	h := f.Prog(elf.ProgType(sframe.PTGNUSFrame))
	if h == nil || h.Vaddr != l.Addr {
		return fmt.Errorf("PT_GNU_SFRAME is %+v, the layout says address %#x", h, l.Addr)
	}
	got, err := f.ReadAt(".sframe", h.Off, h.Filesz)
	if err == nil && !bytes.Equal(got, section) {
		err = errors.New("contents of .sframe differ")
	}
	return err
}

// remove returns the file without its .sframe.
func remove(t *testing.T, old []byte) []byte {
	t.Helper()
	l := must.Get(PlanRemoval(elftest.Parse(t, old)))(t)
	return write(t, l, old, nil)
}

// roundTrip adds an .sframe. It expects the same file if a different .sframe is added first, and is then replaced, or
// is removed before the new one is added. It returns this file, and the file without .sframe.
func roundTrip(t *testing.T, name string, old []byte, size, other int) (with, without []byte) {
	t.Helper()
	with = add(t, old, content(size), Options{})
	first := add(t, old, content(other), Options{})
	without = remove(t, first)
	before := elftest.Parse(t, old)
	if err := image.Contents(before, elftest.Parse(t, without)); err != nil {
		t.Errorf("%s without .sframe: %v", name, err)
	}
	if got := add(t, first, content(size), Options{Force: true}); !bytes.Equal(got, with) {
		t.Errorf("%s: a different file of %d bytes after an .sframe of %d bytes was replaced", name, len(got), other)
	}
	if got := add(t, without, content(size), Options{}); !bytes.Equal(got, with) {
		t.Errorf("%s: a different file of %d bytes after an .sframe of %d bytes was removed", name, len(got), other)
	}
	return with, without
}

// refused expects that planning an .sframe, replacing any existing one, fails and leaves the file unchanged.
func refused(t *testing.T, name string, b []byte, size uint64, want string) {
	t.Helper()
	saved := bytes.Clone(b)
	l, err := Plan(elftest.Parse(t, b), size, Options{Force: true})
	if err == nil || l != nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error is %v, want %q", name, err, want)
	}
	if !bytes.Equal(b, saved) {
		t.Errorf("%s: the file was changed", name)
	}
}
