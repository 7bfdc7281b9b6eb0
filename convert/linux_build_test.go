package convert_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// A kernel with two functions in .text, one in .init.text, 64 bytes reserved for .sframe, and a symbol in the middle of
// those bytes. Only a flexible FDE can describe the second function.
const kernelSource = `
	.cfi_sections .debug_frame
	.text
	.globl _start
_start:
	.cfi_startproc
	push %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	ret
	.cfi_endproc
	.cfi_startproc
	.cfi_def_cfa %r10, 0
	nop
	.cfi_endproc
	.section .init.text, "ax", @progbits
	.cfi_startproc
	nop
	.cfi_endproc
	.section .note.GNU-stack, "", @progbits
`

const kernelScript = `
SECTIONS
{
	. = 0xffffffff81000000;
	.text : { _stext = .; *(.text) _etext = .; }
	.init.text : { *(.init.text) }
	.rodata : ALIGN(8) { __start_sframe = .; . += 63; BYTE(0) __end_sframe = .; QUAD(1) after = .; }
	middle = __start_sframe + 32;
	exact = __start_sframe + 56;
	less = exact - 1;
	.bss : { zeros = .; . += 64; no_zeros = .; }
}
`

// TestInto fills the bytes between two symbols.
func TestInto(t *testing.T) {
	kernel := testfile.Read(t, linkScript(t, peer.Assembled(t, kernelSource), kernelScript))
	opt := convert.Options{
		Version: sframe.V3, Linux: convert.LinuxKernel, Reserved: convert.KernelSymbols, NoPadding: true,
	}
	with := func(symbols string, change func(*convert.Options)) job {
		o := opt
		o.Reserved = symbols
		if change != nil {
			change(&o)
		}
		return add(o)
	}
	filled, res := must.Two(inMemory(kernel, opt))(t)
	// A header, an index entry, an attribute and two rows; the sizes are from the specification.
	const size = 28 + 16 + 5 + (1 + 1 + 1) + (1 + 1 + 2)
	c := res.Facts[0]
	gaps := make(map[string]uint64)
	for r, sum := range c.Sums {
		gaps[r.Name()] = sum.Bytes
	}
	if c.Size != size || c.Covered != 2 || c.Described != 4 || !c.Verified ||
		!maps.Equal(gaps, map[string]uint64{"outside-text": 1, "cfa-register": 1}) {
		t.Errorf("coverage %+v", c)
	}
	f := must.Get(elf.NewFile(bytes.NewReader(kernel)))(t)
	s := f.Section(".rodata")
	want := bytes.Clone(kernel)
	copy(want[s.Offset:s.Offset+size], filled[s.Offset:])
	if !bytes.Equal(filled, want) || filled[s.Offset] != 0xe2 || filled[s.Offset+1] != 0xde {
		t.Error("other bytes have changed, or none")
	}
	d, err := sframe.Decode(filled[s.Offset:s.Offset+64], s.Addr)
	if err != nil || d.Len() != 1 || d.FDE(0).Start != 0xffffffff81000000 ||
		d.Flags != sframe.FDESorted|sframe.FDEFuncStartPCRel {
		t.Fatalf("%+v, error %v", d, err)
	}
	checked, err := check(filled)
	if err != nil || refusal(t, filled, convert.LinuxKernel) != "" || len(checked.Mismatches) > 0 ||
		checked.Covered != 2 {
		t.Errorf("check: %+v, %v", checked, err)
	}

	stale := bytes.Clone(filled)
	stale[s.Offset+size-3]++ // the CFA of the second row
	dirty := bytes.Clone(filled)
	dirty[s.Offset+63] = 1
	used := bytes.Clone(kernel)
	used[s.Offset+7] = 5
	plain := with("", nil)
	for _, tt := range []struct {
		name string
		in   []byte
		job  job
		want any // bytes, an error, or part of its text
	}{
		{"again", filled, add(opt), elfwrite.ErrExists},
		{"force", stale, with(opt.Reserved, func(o *convert.Options) { o.Force = true }), filled},
		{"update", filled, with(opt.Reserved, func(o *convert.Options) { o.Update = true }), filled},
		{"update a stale section", stale, with(opt.Reserved, func(o *convert.Options) { o.Update = true }), filled},
		{"update a section with bytes after it", dirty, with(opt.Reserved, func(o *convert.Options) {
			o.Update = true
		}), filled},
		{"update without a section", kernel, with(opt.Reserved, func(o *convert.Options) { o.Update = true }), filled},
		{"bytes that are in use", used, with(opt.Reserved, func(o *convert.Options) { o.Force = true }),
			"are in use: byte 0xffffffff8100000f is 0x05, not 0"},
		{"a byte too few", kernel, with("__start_sframe:less", nil), "only 55 bytes are reserved"},
		{"just enough", kernel, with("__start_sframe:exact", nil), filled},
		{"more than the reserved bytes", kernel, with("__start_sframe:after", nil), "are in use"},
		{"an end before the start", kernel, with("__end_sframe:__start_sframe", nil), "the range is empty"},
		{"no symbol", kernel, with("__start_sframe:nothing", nil), "no symbols __start_sframe and nothing"},
		{"a kernel without --into", kernel, plain, "finds .sframe by symbols"},
		{"a linked module", kernel, with("", func(o *convert.Options) { o.Linux = convert.LinuxModule }),
			"modules are relocatable objects"},
		{"an object", elftest.NewObject().Bytes(), add(opt), "only linked files can have reserved bytes"},
		{"remove", filled, remove(""), kernel},
		{"remove from other symbols", filled, remove("__start_sframe:exact"), kernel},
		{"remove nothing", kernel, remove(""), elfwrite.ErrNone},
		{"remove bytes that are in use", used, remove(""), "instead of the magic"},
	} {
		got, _, err := runBytes(tt.in, tt.job)
		switch want := tt.want.(type) {
		case []byte:
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v, or other bytes", tt.name, err)
			}
		case error:
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", tt.name, err)
			}
		case string:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tt.name, err, want)
			}
		}
	}
	// Only the symbols locate the section; no header does.
	for _, symbols := range []string{"", "__start_sframe:exact"} {
		c, err := checkRead(bytes.NewReader(filled), int64(len(filled)), symbols)
		if err != nil || len(c.Mismatches) > 0 || c.Covered != 2 {
			t.Errorf("check between %q: %+v, %v", symbols, c, err)
		}
	}
	if _, err := convert.FindSection(elftest.Parse(t, filled), "zeros:no_zeros"); err == nil ||
		!strings.Contains(err.Error(), "no loaded segment contains the bytes from") {
		t.Errorf("symbols that are not in the file: %v", err)
	}
	if text := dumpOutput(t, filled); !strings.Contains(text, "pc = 0xffffffff81000000, size = 2 bytes") {
		t.Errorf("dump: %s", text)
	}
	if c, err := check(kernel); err != sframe.ErrNone {
		t.Errorf("check of reserved bytes: %+v, %v", c, err)
	}
	_, err = check(dirty)
	if err == nil || !strings.Contains(err.Error(), "readers ignore the") {
		t.Errorf("check of bytes after the section: %v", err)
	}
}

// TestModule converts modules. Text that the kernel frees must get no rows.
func TestModule(t *testing.T) {
	o := elftest.NewObject()
	o.Code(".init.text", 64)
	o.Code(".exit.text", 64)
	b, res := must.Two(inMemory(o.Bytes(), convert.Options{Version: sframe.V3, Linux: convert.LinuxModule}))(t)
	if c := res.Facts[0]; c.FDEs != 1 || c.Covered != 64 || c.Described != 192 || len(c.Sums) != 1 ||
		c.Sums[translate.OutsideText].Bytes != 128 {
		t.Errorf("coverage %+v", c)
	}
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	section, rela := f.Section(".sframe"), f.Section(".rela.sframe")
	const field = 28 // offset of the first start address
	for _, tt := range []struct {
		name   string
		change func(p *elftest.Patcher)
		want   string
	}{
		{"unchanged", func(*elftest.Patcher) {}, ""},
		{"not SHF_ALLOC", func(p *elftest.Patcher) { p.Put64(p.Section(".sframe")+elftest.ShFlags, 0) },
			"section .sframe is not SHF_ALLOC"},
		{"a field that is not zero", func(p *elftest.Patcher) { p.B[int(section.Offset)+field+7] = 1 },
			"the relocated field at .sframe+0x1c is not zero"},
		{"a different relocation type", func(p *elftest.Patcher) {
			symbol := binary.LittleEndian.Uint64(p.B[rela.Offset+8:]) &^ 0xffffffff
			p.Put64(int(rela.Offset)+8, symbol|uint64(elf.R_X86_64_64))
		}, "relocation at .sframe+0x1c has type 1, not 24"},
		{"no relocations", func(p *elftest.Patcher) { p.Put64(p.Section(".rela.sframe")+elftest.ShSize, 0) },
			"1 FDEs have 0 relocations"},
		{"no flag 0x4", func(p *elftest.Patcher) { p.B[int(section.Offset)+3] = 0 }, "flag 0x4 is clear"},
	} {
		p := elftest.Patch(t.Fatalf, b)
		tt.change(p)
		got := refusal(t, p.B, convert.LinuxModule)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	// For a machine without an SFrame ABI, the expected relocation type is unknown.
	p := elftest.Patch(t.Fatalf, b)
	const machine = 18 // offset of e_machine
	p.Put16(machine, uint16(elf.EM_RISCV))
	p.Put32(p.Section(".rela.sframe")+elftest.ShType, uint32(elf.SHT_PROGBITS))
	if _, err := check(p.B); err == nil || !strings.Contains(err.Error(), "EM_RISCV") {
		t.Errorf("an unsupported machine: %v", err)
	}
}

// refusal returns the reason why Linux rejects the section of a file, or "".
func refusal(t *testing.T, b []byte, linux convert.Linux) string {
	t.Helper()
	f := elftest.Parse(t, b)
	s := must.Get(convert.FindSection(f, ""))(t)
	return must.Get(linux.Refusal(f, s))(t)
}

// TestLinuxSegments converts a program with two executable segments that both contain code, as produced by BOLT. Linux
// registers the section for both, and looks up the FDE of each pc in it, so both need rows.
func TestLinuxSegments(t *testing.T) {
	b := testfile.Read(t, filepath.Join(fixtures, "amd64/plt"))
	const first, split = 2, 0x578 // the first PT_LOAD, and .text
	p := elftest.Patch(t.Fatalf, b)
	header := func(i int) int { return int(p.U64(elftest.EhPhoff)) + i*elffile.ProgSize }
	if p.U64(p.Section(".text")+elftest.ShAddr) != split || elf.ProgType(p.U32(header(first))) != elf.PT_LOAD {
		t.Fatal("the fixture has changed")
	}
	end := p.U64(header(first) + 32)
	copy(p.B[header(first+1):header(8)], bytes.Clone(p.B[header(first):header(7)])) // over PT_GNU_STACK
	p.Put64(header(first)+32, split)                                                // p_filesz
	p.Put64(header(first)+40, split)                                                // p_memsz
	for _, field := range []int{8, 16, 24} {                                        // p_offset, p_vaddr, p_paddr
		p.Put64(header(first+1)+field, split)
	}
	p.Put64(header(first+1)+32, end-split)
	p.Put64(header(first+1)+40, end-split)
	opt := convert.Options{Version: sframe.V3, Linux: convert.LinuxUser}
	for _, j := range []job{add(opt), dry(add(opt))} {
		out, res := must.Two(runBytes(p.B, j))(t)
		// CFI describes 104 bytes of .plt and .plt.got, and 67 bytes of .text (readelf).
		if r := res.Facts[0]; r.Covered != 171 || r.Described != 171 {
			t.Errorf("%+v", r)
		}
		if len(out) == 0 {
			continue
		}
		c, err := check(out)
		if err != nil || refusal(t, out, convert.LinuxUser) != "" || len(c.Mismatches) > 0 {
			t.Errorf("%+v, %v", c, err)
		}
		f := elftest.Parse(t, out)
		if n := convert.CodeSegments(f, must.Get(convert.FindSection(f, ""))(t)); n != 2 {
			t.Errorf("rows in %d segments, want 2", n)
		}
		opt.Update = true
		if _, res, err := inMemory(out, opt); err != nil || res.Stays != convert.Current {
			t.Errorf("stays %q, %v", res.Stays, err)
		}
	}
}

// TestNotExecutable expects an error for code in a segment that is not executable.
func TestNotExecutable(t *testing.T) {
	const want = "section .plt at file offset 0x510 is code, but its program header 2 at file offset 0xb0 " +
		"has flags 0x0 without PF_X"
	p := elftest.Patch(t.Fatalf, testfile.Read(t, filepath.Join(fixtures, "amd64/plt")))
	p.Put32(p.Segment(elf.PT_LOAD, 0)+elftest.PhFlags, 0)
	for i, j := range []job{add(convert.Options{}), detach(convert.Options{}), dry(add(convert.Options{}))} {
		if _, res, err := runBytes(p.B, j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %+v, %v; want %q", i, res, err, want)
		}
	}
}
