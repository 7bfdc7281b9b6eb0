package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/internal/elffile"
	"cfi2sframe/internal/image"
	"cfi2sframe/sframe"
)

// Section header field offsets that hostile_test.go does not have.
const phFlags, phAlign = 4, 48

// converted returns a fixture with .sframe.
func converted(t testing.TB, name string) []byte {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, fixture(t, name), 0o755); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	if status := run(t.Context(), []string{"-q", in, "-o", out}, nil, &stderr); status != exitDone {
		t.Fatal(stderr.String())
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// load returns the offset of the header of the last PT_LOAD.
func (p *patcher) lastLoad() int {
	last := 0
	for i := range int(p.u16(ehPhnum)) {
		if off := int(p.u64(ehPhoff)) + i*elffile.ProgSize; elf.ProgType(p.u32(off)) == elf.PT_LOAD {
			last = off
		}
	}
	return last
}

// prog makes the header at off one of the given type over a part of the file that is
// loaded at an address.
func (p *patcher) prog(off int, typ elf.ProgType, at, addr, size uint64) {
	p.put32(off, uint32(typ))
	p.put32(off+phFlags, uint32(elf.PF_R))
	p.put64(off+phOff, at)
	for _, field := range []int{phVaddr, phVaddr + 8} {
		p.put64(off+field, addr)
	}
	for _, field := range []int{phFilesz, phMemsz} {
		p.put64(off+field, size)
	}
	p.put64(off+phAlign, 4)
}

// sectionIn gives the file another section.
func (p *patcher) sectionIn(typ elf.SectionType, flags elf.SectionFlag, off, addr, size uint64) {
	p.newSections(1, func(_, h int) {
		p.put32(h+shType, uint32(typ))
		p.put64(h+shFlags, uint64(flags))
		p.put64(h+shOff, off)
		p.put64(h+shAddr, addr)
		p.put64(h+shSize, size)
		p.put64(h+shAlign, 1)
	})
}

// manyProgs moves the program headers to the end of the file, with n more of them.
func (p *patcher) manyProgs(n int, fill func(i, off int)) {
	old := int(p.u16(ehPhnum))
	from := p.u64(ehPhoff)
	table := p.append(append(bytes.Clone(p.b[from:][:old*elffile.ProgSize]), make([]byte, n*elffile.ProgSize)...))
	p.put64(ehPhoff, uint64(table))
	for i := range n {
		fill(i, table+(old+i)*elffile.ProgSize)
	}
	if old+n >= math.MaxUint16 {
		p.put32(p.sh(0)+shInfo, uint32(old+n))
		p.put16(ehPhnum, math.MaxUint16)
		return
	}
	p.put16(ehPhnum, uint16(old+n))
}

// TestHostileAgain has files that were converted before, and changed for the worse. They
// are converted with --force, and .sframe is removed.
func TestHostileAgain(t *testing.T) {
	at := func(p *patcher) (off, addr, size uint64) {
		h := p.section(".sframe")
		return p.u64(h + shOff), p.u64(h + shAddr), p.u64(h + shSize)
	}
	stack := func(p *patcher) int { return p.segment(elf.PT_GNU_STACK, 0) }
	gnu := func(p *patcher) int { return p.segment(elf.ProgType(sframe.PTGNUSFrame), 0) }
	const fine = "verified"
	for _, tt := range []struct {
		name          string
		fixture       string
		change        func(p *patcher)
		force, remove string // what is printed; an error unless it is fine
	}{
		{name: "nothing wrong", change: func(p *patcher) {}, force: fine, remove: fine},
		{name: "a note in .sframe", change: func(p *patcher) {
			off, addr, _ := at(p)
			p.prog(stack(p), elf.PT_NOTE, off+8, addr+8, 16)
		}},
		{name: "a note over all of .sframe", change: func(p *patcher) {
			off, addr, size := at(p)
			p.prog(stack(p), elf.PT_NOTE, off, addr, size)
		}},
		{name: "a note over the whole segment", change: func(p *patcher) {
			h := p.lastLoad()
			p.prog(stack(p), elf.PT_NOTE, p.u64(h+phOff), p.u64(h+phVaddr), p.u64(h+phFilesz))
		}},
		{name: "PT_GNU_RELRO over .sframe", change: func(p *patcher) {
			off, addr, size := at(p)
			p.prog(stack(p), elf.PT_GNU_RELRO, off, addr, size)
		}},
		{name: "PT_TLS in .sframe", change: func(p *patcher) {
			off, addr, size := at(p)
			p.prog(stack(p), elf.PT_TLS, off, addr, size)
		}},
		{name: "a dynamic entry into .sframe", change: func(p *patcher) {
			_, addr, _ := at(p)
			dyn := p.u64(p.section(".dynamic") + shOff)
			p.put64(int(dyn), uint64(elf.DT_INIT))
			p.put64(int(dyn)+8, addr+4)
		}},
		{name: "a dynamic entry to .sframe", change: func(p *patcher) {
			_, addr, _ := at(p)
			dyn := p.u64(p.section(".dynamic") + shOff)
			p.put64(int(dyn), uint64(elf.DT_HASH))
			p.put64(int(dyn)+8, addr)
		}},
		{name: "the entry point in .sframe", change: func(p *patcher) {
			_, addr, _ := at(p)
			p.put64(ehEntry, addr)
		}},
		{name: "a section inside of .sframe", change: func(p *patcher) {
			off, addr, _ := at(p)
			p.sectionIn(elf.SHT_PROGBITS, elf.SHF_ALLOC, off+8, addr+8, 8)
		}},
		{name: "a section that is not loaded inside of .sframe", change: func(p *patcher) {
			off, _, _ := at(p)
			p.sectionIn(elf.SHT_PROGBITS, 0, off+8, 0, 8)
		}},
		{name: "a section over the start of .sframe", change: func(p *patcher) {
			off, _, _ := at(p)
			p.sectionIn(elf.SHT_PROGBITS, 0, off-8, 0, 16)
		}},
		{name: "a section over the end of .sframe", change: func(p *patcher) {
			off, _, size := at(p)
			p.sectionIn(elf.SHT_PROGBITS, 0, off+size-8, 0, 16)
		}},
		{name: "a section before the segment", change: func(p *patcher) {
			// As patchelf does it: a new segment behind everything.
			off, _, size := at(p)
			data := bytes.Clone(p.b[off:][:size])
			for len(p.b)%4096 != int(off%4096) {
				p.b = append(p.b, 0)
			}
			to := uint64(p.append(data))
			h := p.lastLoad()
			p.put64(h+phOff, to)
			p.put64(h+phFilesz, size)
			p.put64(h+phMemsz, size)
			p.put64(gnu(p)+phOff, to)
			p.put64(p.section(".sframe")+shOff, to)
			for _, name := range []string{".interp", ".note.gnu.build-id"} {
				_ = name
			}
		}},
		{name: "two .sframe", change: func(p *patcher) {
			p.newSections(1, func(_, h int) { p.copySection(h, ".sframe") })
		}},
		{name: "two .sframe, one not loaded", change: func(p *patcher) {
			p.newSections(1, func(_, h int) {
				p.copySection(h, ".sframe")
				p.put32(h+shType, uint32(elf.SHT_PROGBITS))
				p.put64(h+shFlags, 0)
			})
		}},
		{name: "two PT_GNU_SFRAME", change: func(p *patcher) {
			copy(p.b[stack(p):], p.b[gnu(p):][:elffile.ProgSize])
		}},
		{name: "two PT_GNU_SFRAME, one elsewhere", change: func(p *patcher) {
			copy(p.b[stack(p):], p.b[gnu(p):][:elffile.ProgSize])
			p.put64(gnu(p)+phOff, 64)
		}},
		{name: "PT_GNU_SFRAME elsewhere", change: func(p *patcher) {
			p.put64(gnu(p)+phOff, 0x100)
			p.put64(gnu(p)+phVaddr, 0x100)
		}},
		{name: "PT_GNU_SFRAME past the end", change: func(p *patcher) { p.put64(gnu(p)+phOff, 1<<50) }},
		{name: "PT_GNU_SFRAME of 2^64-1 bytes", change: func(p *patcher) { p.put64(gnu(p)+phFilesz, math.MaxUint64) }},
		{name: "PT_GNU_SFRAME of no bytes", change: func(p *patcher) { p.put64(gnu(p)+phFilesz, 0) }},
		{name: "PT_GNU_SFRAME at 2^63", change: func(p *patcher) { p.put64(gnu(p)+phVaddr, 1<<63) }},
		{name: "no PT_GNU_SFRAME", change: func(p *patcher) { p.put32(gnu(p), uint32(elf.PT_NULL)) }},
		{name: "no PT_GNU_SFRAME, but a section of no bytes", change: func(p *patcher) {
			p.put32(gnu(p), uint32(elf.PT_NULL))
			p.put64(p.section(".sframe")+shSize, 0)
		}},
		{name: ".sframe of no bytes", change: func(p *patcher) { p.put64(p.section(".sframe")+shSize, 0) }},
		{name: ".sframe of a byte", change: func(p *patcher) { p.put64(p.section(".sframe")+shSize, 1) }},
		{name: ".sframe past the end", change: func(p *patcher) { p.put64(p.section(".sframe")+shOff, 1<<40) }},
		{name: ".sframe of 2^64-1 bytes", change: func(p *patcher) { p.put64(p.section(".sframe")+shSize, math.MaxUint64) }},
		{name: ".sframe without bytes", change: func(p *patcher) {
			p.put32(p.section(".sframe")+shType, uint32(elf.SHT_NOBITS))
		}},
		{name: ".sframe not loaded", change: func(p *patcher) { p.put64(p.section(".sframe")+shFlags, 0) }},
		{name: ".sframe at the start of the file", change: func(p *patcher) { p.put64(p.section(".sframe")+shOff, 0) }},
		{name: ".sframe over the whole file", change: func(p *patcher) {
			p.put64(p.section(".sframe")+shOff, 0)
			p.put64(p.section(".sframe")+shSize, uint64(len(p.b)))
		}},
		{name: ".sframe is .text", change: func(p *patcher) { copy(p.b[p.section(".sframe")+4:], p.b[p.section(".text")+4:][:60]) }},
		{name: ".text is .sframe", change: func(p *patcher) { p.put32(p.section(".text")+shType, sframe.SHTGNUSFrame) }},
		{name: ".eh_frame is .sframe", change: func(p *patcher) { p.put32(p.section(".eh_frame")+shType, sframe.SHTGNUSFrame) }},
		{name: ".dynamic is .sframe", change: func(p *patcher) { p.put32(p.section(".dynamic")+shType, sframe.SHTGNUSFrame) }},
		{name: ".shstrtab is .sframe", change: func(p *patcher) { p.put32(p.section(".shstrtab")+shType, sframe.SHTGNUSFrame) }},
		{name: ".symtab is .sframe", change: func(p *patcher) { p.put32(p.section(".symtab")+shType, sframe.SHTGNUSFrame) }},
		{name: "a segment that can be written", change: func(p *patcher) { p.put32(p.lastLoad()+phFlags, uint32(elf.PF_R|elf.PF_W)) }},
		{name: "a segment of code", change: func(p *patcher) { p.put32(p.lastLoad()+phFlags, uint32(elf.PF_R|elf.PF_X)) }},
		{name: "a segment with a .bss", change: func(p *patcher) { p.put64(p.lastLoad()+phMemsz, p.u64(p.lastLoad()+phMemsz)+4096) }},
		{name: "a segment of no bytes", change: func(p *patcher) {
			p.put64(p.lastLoad()+phFilesz, 0)
			p.put64(p.lastLoad()+phMemsz, 0)
		}},
		{name: "a segment to the end of the file", change: func(p *patcher) {
			n := uint64(len(p.b)) - p.u64(p.lastLoad()+phOff)
			p.put64(p.lastLoad()+phFilesz, n)
			p.put64(p.lastLoad()+phMemsz, n)
		}},
		{name: "a segment a byte less", change: func(p *patcher) {
			n := p.u64(p.lastLoad()+phFilesz) - 1
			p.put64(p.lastLoad()+phFilesz, n)
			p.put64(p.lastLoad()+phMemsz, n)
		}},
		{name: "a segment elsewhere in memory", change: func(p *patcher) { p.put64(p.lastLoad()+phVaddr, 1<<40) }},
		{name: "a segment that is not aligned", change: func(p *patcher) { p.put64(p.lastLoad()+phVaddr, p.u64(p.lastLoad()+phVaddr)+1) }},
		{name: "section headers in .sframe", change: func(p *patcher) {
			off, _, _ := at(p)
			p.put64(ehShoff, off&^7)
		}},
		{name: "a symbol in .sframe", change: func(p *patcher) {
			h := p.section(".symtab")
			p.put16(int(p.u64(h+shOff))+elffile.SymSize+6, uint16(p.index(".sframe")))
		}, force: fine, remove: fine},
		{name: "section names that other sections use", change: func(p *patcher) {
			for i := range int(p.u16(ehShnum)) {
				p.put32(p.sh(i), uint32(p.u64(p.section(".shstrtab")+shSize))-3)
			}
		}},
		{name: "bytes behind everything", change: func(p *patcher) { p.b = append(p.b, "behind"...) }, force: fine, remove: fine},
		{name: "no section headers", change: func(p *patcher) {
			p.put64(ehShoff, 0)
			p.put16(ehShnum, 0)
			p.put16(ehShstrndx, 0)
		}},
		{name: "no section headers, PT_GNU_SFRAME in .text", change: func(p *patcher) {
			text := p.section(".text")
			off, addr := p.u64(text+shOff), p.u64(text+shAddr)
			p.put64(ehShoff, 0)
			p.put16(ehShnum, 0)
			p.put16(ehShstrndx, 0)
			p.put64(gnu(p)+phOff, off)
			p.put64(gnu(p)+phVaddr, addr)
		}},
	} {
		names := []string{"plt", "pltlib.so", "static"}
		for _, name := range names {
			for _, arg := range []string{"--force", "--remove"} {
				t.Run(tt.name+"/"+name+arg, func(t *testing.T) {
					p := newPatcher(t.Fatalf, converted(t, name))
					if name == "static" {
						if tt.name == "a dynamic entry into .sframe" || tt.name == "a dynamic entry to .sframe" || tt.name == ".dynamic is .sframe" {
							t.Skip("there is no .dynamic")
						}
					}
					tt.change(p)
					o := convertHostile(t, t.TempDir(), p.b, arg)
					want := tt.force
					if arg == "--remove" {
						want = tt.remove
					}
					_ = want
					t.Logf("%d %s", o.status, o.stderr)
				})
			}
		}
	}
	_ = fmt.Sprint
	_ = image.Compare
}
