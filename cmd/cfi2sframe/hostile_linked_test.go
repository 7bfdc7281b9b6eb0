package main

import (
	"bytes"
	"debug/elf"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/lab/long"
	"cfi2sframe/sframe"
)

// Program header fields that hostile_test.go does not have.
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

// lastLoad returns the offset of the header of the last PT_LOAD.
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
	if elf.ProgType(p.u32(table)) == elf.PT_PHDR {
		p.put64(table+phOff, uint64(table))
	}
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
	again := make(map[string][]byte)
	for _, name := range []string{"plt", "pltlib.so", "static"} {
		again[name] = converted(t, name)
	}
	for _, tt := range []struct {
		name   string
		change func(p *patcher)
		want   string // part of the error, or "" if it is done
		cut    bool   // an error if something is at the end of the segment
	}{
		{name: "nothing wrong", change: func(p *patcher) {}},
		{name: "a note in .sframe", change: func(p *patcher) {
			off, addr, _ := at(p)
			p.prog(stack(p), elf.PT_NOTE, off+8, addr+8, 16)
		}, want: "(PT_NOTE) overlaps it"},
		{name: "a note over all of .sframe", change: func(p *patcher) {
			off, addr, size := at(p)
			p.prog(stack(p), elf.PT_NOTE, off, addr, size)
		}, want: "(PT_NOTE) overlaps it"},
		{name: "a note over the whole segment", change: func(p *patcher) {
			h := p.lastLoad()
			p.prog(stack(p), elf.PT_NOTE, p.u64(h+phOff), p.u64(h+phVaddr), p.u64(h+phFilesz))
		}, want: "(PT_NOTE) overlaps it"},
		{name: "PT_GNU_RELRO over .sframe", change: func(p *patcher) {
			off, addr, size := at(p)
			p.prog(stack(p), elf.PT_GNU_RELRO, off, addr, size)
		}, want: "(PT_GNU_RELRO) overlaps it"},
		{name: "PT_TLS in .sframe", change: func(p *patcher) {
			off, addr, size := at(p)
			p.prog(stack(p), elf.PT_TLS, off, addr, size)
		}, want: "(PT_TLS) overlaps it"},
		{name: "a dynamic entry into .sframe", change: func(p *patcher) {
			_, addr, _ := at(p)
			dyn := p.u64(p.section(".dynamic") + shOff)
			p.put64(int(dyn), uint64(elf.DT_INIT))
			p.put64(int(dyn)+8, addr+4)
		}, want: "dynamic entry 0 refers to address"},
		{name: "a dynamic entry to .sframe", change: func(p *patcher) {
			_, addr, _ := at(p)
			dyn := p.u64(p.section(".dynamic") + shOff)
			p.put64(int(dyn), uint64(elf.DT_HASH))
			p.put64(int(dyn)+8, addr)
		}, want: "dynamic entry 0 refers to address"},
		{name: "the entry point in .sframe", change: func(p *patcher) {
			_, addr, _ := at(p)
			p.put64(ehEntry, addr)
		}, want: "the entry point is"},
		{name: "a section inside of .sframe", change: func(p *patcher) {
			off, addr, _ := at(p)
			p.sectionIn(elf.SHT_PROGBITS, elf.SHF_ALLOC, off+8, addr+8, 8)
		}, want: "() overlaps it"},
		{name: "a section that is not loaded inside of .sframe", change: func(p *patcher) {
			off, _, _ := at(p)
			p.sectionIn(elf.SHT_PROGBITS, 0, off+8, 0, 8)
		}, want: "() overlaps it"},
		{name: "a section over the start of .sframe", change: func(p *patcher) {
			off, _, _ := at(p)
			p.sectionIn(elf.SHT_PROGBITS, 0, off-8, 0, 16)
		}, want: "() overlaps it"},
		{name: "a section over the end of .sframe", change: func(p *patcher) {
			off, _, size := at(p)
			p.sectionIn(elf.SHT_PROGBITS, 0, off+size-8, 0, 16)
		}, want: "() overlaps it"},
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
		}},
		{name: "two .sframe", change: func(p *patcher) {
			p.newSections(1, func(_, h int) { p.copySection(h, ".sframe") })
		}, want: "are both .sframe; one was expected"},
		{name: "two .sframe, one not loaded", change: func(p *patcher) {
			p.newSections(1, func(_, h int) {
				p.copySection(h, ".sframe")
				p.put32(h+shType, uint32(elf.SHT_PROGBITS))
				p.put64(h+shFlags, 0)
			})
		}, want: "are both .sframe; one was expected"},
		{name: "two PT_GNU_SFRAME", change: func(p *patcher) {
			copy(p.b[stack(p):], p.b[gnu(p):][:elffile.ProgSize])
		}, want: "are both PT_GNU_SFRAME; one was expected"},
		{name: "two PT_GNU_SFRAME, one elsewhere", change: func(p *patcher) {
			copy(p.b[stack(p):], p.b[gnu(p):][:elffile.ProgSize])
			p.put64(gnu(p)+phOff, 64)
		}, want: "are both PT_GNU_SFRAME; one was expected"},
		{name: "PT_GNU_SFRAME elsewhere", change: func(p *patcher) {
			p.put64(gnu(p)+phOff, 0x100)
			p.put64(gnu(p)+phVaddr, 0x100)
		}},
		{name: "PT_GNU_SFRAME past the end", change: func(p *patcher) { p.put64(gnu(p)+phOff, 1<<50) }, want: "bytes at file offset 0x4000000000000 do not fit"},
		{name: "PT_GNU_SFRAME of 2^64-1 bytes", change: func(p *patcher) { p.put64(gnu(p)+phFilesz, math.MaxUint64) }, want: "18446744073709551615 bytes at file offset"},
		{name: "PT_GNU_SFRAME of no bytes", change: func(p *patcher) { p.put64(gnu(p)+phFilesz, 0) }},
		{name: "PT_GNU_SFRAME at 2^63", change: func(p *patcher) { p.put64(gnu(p)+phVaddr, 1<<63) }},
		{name: "no PT_GNU_SFRAME", change: func(p *patcher) { p.put32(gnu(p), uint32(elf.PT_NULL)) }},
		{name: "no PT_GNU_SFRAME, but a section of no bytes", change: func(p *patcher) {
			p.put32(gnu(p), uint32(elf.PT_NULL))
			p.put64(p.section(".sframe")+shSize, 0)
		}},
		{name: ".sframe of no bytes", change: func(p *patcher) { p.put64(p.section(".sframe")+shSize, 0) }},
		{name: ".sframe of a byte", change: func(p *patcher) { p.put64(p.section(".sframe")+shSize, 1) }, want: "it starts with e2, and the magic number 0xdee2 was expected"},
		{name: ".sframe past the end", change: func(p *patcher) { p.put64(p.section(".sframe")+shOff, 1<<40) }, want: "bytes at file offset 0x10000000000 do not fit"},
		{name: ".sframe of 2^64-1 bytes", change: func(p *patcher) { p.put64(p.section(".sframe")+shSize, math.MaxUint64) }, want: "(.sframe): 18446744073709551615 bytes at file offset"},
		{name: ".sframe without bytes", change: func(p *patcher) {
			p.put32(p.section(".sframe")+shType, uint32(elf.SHT_NOBITS))
		}},
		{name: ".sframe not loaded", change: func(p *patcher) { p.put64(p.section(".sframe")+shFlags, 0) }},
		{name: ".sframe at the start of the file", change: func(p *patcher) { p.put64(p.section(".sframe")+shOff, 0) }, want: "it starts with 7f 45"},
		{name: ".sframe over the whole file", change: func(p *patcher) {
			p.put64(p.section(".sframe")+shOff, 0)
			p.put64(p.section(".sframe")+shSize, uint64(len(p.b)))
		}, want: "it starts with 7f 45"},
		{name: ".sframe is .text", change: func(p *patcher) { copy(p.b[p.section(".sframe")+4:], p.b[p.section(".text")+4:][:60]) }, want: "and the magic number 0xdee2 was expected"},
		{name: ".text is .sframe", change: func(p *patcher) { p.put32(p.section(".text")+shType, sframe.SHTGNUSFrame) }, want: "are both .sframe"},
		{name: ".eh_frame is .sframe", change: func(p *patcher) { p.put32(p.section(".eh_frame")+shType, sframe.SHTGNUSFrame) }, want: "are both .sframe"},
		{name: ".dynamic is .sframe", change: func(p *patcher) { p.put32(p.section(".dynamic")+shType, sframe.SHTGNUSFrame) }, want: "are both .sframe"},
		{name: ".shstrtab is .sframe", change: func(p *patcher) { p.put32(p.section(".shstrtab")+shType, sframe.SHTGNUSFrame) }, want: "are both .sframe"},
		{name: ".symtab is .sframe", change: func(p *patcher) { p.put32(p.section(".symtab")+shType, sframe.SHTGNUSFrame) }, want: "are both .sframe"},
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
		{name: "a segment a byte less", cut: true, change: func(p *patcher) {
			n := p.u64(p.lastLoad()+phFilesz) - 1
			p.put64(p.lastLoad()+phFilesz, n)
			p.put64(p.lastLoad()+phMemsz, n)
		}},
		{name: "a segment elsewhere in memory", change: func(p *patcher) { p.put64(p.lastLoad()+phVaddr, 1<<40) }},
		{name: "a segment that is not aligned", change: func(p *patcher) { p.put64(p.lastLoad()+phVaddr, p.u64(p.lastLoad()+phVaddr)+1) }},
		{name: "section headers in .sframe", change: func(p *patcher) {
			off, _, _ := at(p)
			p.put64(ehShoff, off&^7)
		}, want: "section name table at file offset"},
		{name: "a symbol in .sframe", change: func(p *patcher) {
			h := p.section(".symtab")
			p.put16(int(p.u64(h+shOff))+elffile.SymSize+6, uint16(p.index(".sframe")))
		}},
		{name: "section names that other sections use", change: func(p *patcher) {
			for i := range int(p.u16(ehShnum)) {
				p.put32(p.sh(i), uint32(p.u64(p.section(".shstrtab")+shSize))-3)
			}
		}},
		{name: "bytes behind everything", change: func(p *patcher) { p.b = append(p.b, "behind"...) }},
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
		}, want: "and the magic number 0xdee2 was expected"},
	} {
		for _, name := range []string{"plt", "pltlib.so", "static"} {
			for _, arg := range []string{"--force", "--remove"} {
				t.Run(tt.name+"/"+name+arg, func(t *testing.T) {
					if name == "static" && (strings.Contains(tt.name, "dynamic")) {
						t.Skip("there is no .dynamic")
					}
					p := newPatcher(t.Fatalf, again[name])
					tt.change(p)
					o := convertHostile(t, t.TempDir(), p.b, arg)
					status := exitDone
					if tt.want != "" {
						status = exitError
					} else if tt.cut {
						status = o.status
					}
					o.expect(t, status, tt.want)
				})
			}
		}
	}
}

// TestHostileLayout has files that are converted for the first time, and in which things
// are where they are not expected.
func TestHostileLayout(t *testing.T) {
	stack := func(p *patcher) int { return p.segment(elf.PT_GNU_STACK, 0) }
	field := func(typ elf.ProgType, n, field int, v uint64) func(*patcher) {
		return func(p *patcher) { p.put64(p.segment(typ, n)+field, v) }
	}
	bare := func(p *patcher) {
		p.put64(ehShoff, 0)
		p.put16(ehShnum, 0)
		p.put16(ehShstrndx, 0)
	}
	for _, tt := range []struct {
		hostileCase
		any bool // the exit status does not matter
	}{
		// The page in front of a static executable.
		{hostileCase: hostileCase{name: "front: p_vaddr 0", fixture: "static", change: field(elf.PT_LOAD, 0, phVaddr, 0), status: 1, want: "there is no room for a page in front of address 0x0"}},
		{hostileCase: hostileCase{name: "front: p_vaddr of a page", fixture: "static", change: field(elf.PT_LOAD, 0, phVaddr, 4096), status: 1, want: "there is no room for a page in front of address 0x1000"}},
		{hostileCase: hostileCase{name: "front: p_vaddr not aligned", fixture: "static", change: field(elf.PT_LOAD, 0, phVaddr, 0x400008), status: 1, want: "there is no room for a page in front of address 0x400008"}},
		{hostileCase: hostileCase{name: "front: p_align 3", fixture: "static", change: field(elf.PT_LOAD, 0, phAlign, 3)}},
		{hostileCase: hostileCase{name: "front: p_align 2^63", fixture: "static", change: field(elf.PT_LOAD, 0, phAlign, 1<<63)}},
		{hostileCase: hostileCase{name: "front: p_align 0", fixture: "static", change: field(elf.PT_LOAD, 0, phAlign, 0)}},
		{hostileCase: hostileCase{name: "front: p_offset of a page", fixture: "static", change: field(elf.PT_LOAD, 0, phOff, 4096), status: 1, want: "no loaded segment holds the table"}},
		{hostileCase: hostileCase{name: "front: p_offset 1", fixture: "static", change: field(elf.PT_LOAD, 0, phOff, 1), status: 1, want: "no segment begins with the ELF header"}},
		{hostileCase: hostileCase{name: "front: p_filesz 0", fixture: "static", change: field(elf.PT_LOAD, 0, phFilesz, 0), status: 1, want: "no loaded segment holds the table"}},
		{hostileCase: hostileCase{name: "front: p_filesz of the headers", fixture: "static", change: field(elf.PT_LOAD, 0, phFilesz, 64), status: 1, want: "no loaded segment holds the table"}},
		{hostileCase: hostileCase{name: "front: two segments at offset 0", fixture: "static", change: field(elf.PT_LOAD, 1, phOff, 0)}},
		{hostileCase: hostileCase{name: "front: no section headers", fixture: "static", change: bare}, any: true},
		{hostileCase: hostileCase{name: "front: entry point in the headers", fixture: "static", change: func(p *patcher) { p.put64(ehEntry, 0x400000) }}},

		// Program headers.
		{hostileCase: hostileCase{name: "program headers at the end", change: func(p *patcher) { p.manyProgs(0, nil) }}, any: true},
		{hostileCase: hostileCase{name: "program headers at the end, without PT_PHDR", change: func(p *patcher) {
			p.put32(p.segment(elf.PT_PHDR, 0), uint32(elf.PT_NULL))
			p.manyProgs(0, nil)
		}}, any: true},
		{hostileCase: hostileCase{name: "program headers in .text", change: func(p *patcher) {
			text := p.u64(p.section(".text") + shOff)
			copy(p.b[text:], p.b[p.u64(ehPhoff):][:9*elffile.ProgSize])
			p.put64(ehPhoff, text)
		}}, any: true},
		{hostileCase: hostileCase{name: "program headers over the ELF header", change: func(p *patcher) { p.put64(ehPhoff, 8) }}, any: true},
		{hostileCase: hostileCase{name: "program headers not aligned", change: func(p *patcher) {
			copy(p.b[65:], bytes.Clone(p.b[64:64+9*elffile.ProgSize]))
			p.put64(ehPhoff, 65)
		}}, any: true},
		{hostileCase: hostileCase{name: "PT_PHDR elsewhere", change: field(elf.PT_PHDR, 0, phOff, 0x100), status: 1,
			want: "program header 0: PT_PHDR at file offset 0x100, but the program headers are at 0x40"}},
		{hostileCase: hostileCase{name: "PT_PHDR at another address", change: field(elf.PT_PHDR, 0, phVaddr, 1<<40)}},
		{hostileCase: hostileCase{name: "PT_PHDR of one header", change: field(elf.PT_PHDR, 0, phFilesz, elffile.ProgSize)}},
		{hostileCase: hostileCase{name: "PT_PHDR twice", change: func(p *patcher) { copy(p.b[stack(p):], p.b[p.segment(elf.PT_PHDR, 0):][:elffile.ProgSize]) }}},
		{hostileCase: hostileCase{name: "PT_GNU_STACK at 2^63", change: field(elf.PT_GNU_STACK, 0, phOff, 1<<63)}},
		{hostileCase: hostileCase{name: "PT_GNU_STACK at 2^40", change: field(elf.PT_GNU_STACK, 0, phOff, 1<<40)}},
		{hostileCase: hostileCase{name: "a .bss at offset 2^40", change: func(p *patcher) {
			h := stack(p)
			p.prog(h, elf.PT_LOAD, 1<<40, 0x100000, 0x1000)
			p.put64(h+phFilesz, 0)
		}}},
		{hostileCase: hostileCase{name: "a .bss at offset 2^64-1", change: func(p *patcher) {
			h := stack(p)
			p.prog(h, elf.PT_LOAD, math.MaxUint64, 0x100000, 0x1000)
			p.put64(h+phFilesz, 0)
		}}},
		{hostileCase: hostileCase{name: "a .bss at offset 2^64-1, without section headers", change: func(p *patcher) {
			h := stack(p)
			p.prog(h, elf.PT_LOAD, math.MaxUint64, 0x100000, 0x1000)
			p.put64(h+phFilesz, 0)
			bare(p)
		}}, any: true},
		{hostileCase: hostileCase{name: "65,000 PT_NULL", change: func(p *patcher) { p.manyProgs(65_000, func(int, int) {}) }}, any: true},
		{hostileCase: hostileCase{name: "70,000 PT_NULL", change: func(p *patcher) { p.manyProgs(70_000, func(int, int) {}) }}, any: true},
		{hostileCase: hostileCase{name: "70,000 PT_NULL, without section headers", change: func(p *patcher) {
			p.manyProgs(70_000, func(int, int) {})
			bare(p)
		}}, any: true},
		{hostileCase: hostileCase{name: "200,000 PT_NULL", change: func(p *patcher) { p.manyProgs(200_000, func(int, int) {}) }, status: 1, want: "200009 program headers; at most 131072 are accepted"}},
		{hostileCase: hostileCase{name: "60,000 PT_LOAD", change: func(p *patcher) {
			p.manyProgs(60_000, func(i, off int) {
				p.prog(off, elf.PT_LOAD, 0x400, 0x100000+uint64(i)*4096, 16)
			})
		}, status: 1, want: "more than 2048 segments (PT_LOAD)"}},
		{hostileCase: hostileCase{name: "60,000 PT_NOTE, each over the start of the next", change: func(p *patcher) {
			p.manyProgs(60_000, func(i, off int) {
				n := uint64(60_000 - i)
				p.prog(off, elf.PT_NOTE, 0x254+n/64, 0x254+n/64, 36)
			})
		}}, any: true},
		{hostileCase: hostileCase{name: "2,000 PT_LOAD, 60,000 dynamic entries, without section headers", long: true, change: func(p *patcher) {
			p.manyProgs(2000, func(i, off int) { p.prog(off, elf.PT_LOAD, 0x400, 0x100000+uint64(i)*4096, 16) })
			var dyn []byte
			for range 60_000 {
				dyn = append(dyn, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x7f)
			}
			at := p.append(dyn)
			h := p.segment(elf.PT_DYNAMIC, 0)
			p.put64(h+phOff, uint64(at))
			p.put64(h+phFilesz, uint64(len(dyn)))
			bare(p)
		}, status: 1}},
		{hostileCase: hostileCase{name: "a PT_DYNAMIC of 16 MiB", change: func(p *patcher) {
			at := p.append(bytes.Repeat([]byte{4, 0, 0, 0, 0, 0, 0, 0}, 2<<20))
			h := p.segment(elf.PT_DYNAMIC, 0)
			p.put64(h+phOff, uint64(at))
			p.put64(h+phFilesz, 16<<20)
		}, status: 1, want: "16777216 bytes; at most 1048576 are accepted"}},
		{hostileCase: hostileCase{name: "60,000 PLT sections", long: true, change: func(p *patcher) {
			p.newSections(60_000, func(i, h int) {
				p.copySection(h, ".plt")
				p.put64(h+shAddr, p.u64(h+shAddr)+uint64(i%16))
				p.put64(h+shOff, p.u64(h+shOff)+uint64(i%16))
				p.put64(h+shSize, 1)
			})
		}}, any: true},

		// Section headers.
		{hostileCase: hostileCase{name: "a section across the end of what is loaded", change: func(p *patcher) {
			h := p.segment(elf.PT_LOAD, 1)
			p.sectionIn(elf.SHT_PROGBITS, 0, p.u64(h+phOff)+p.u64(h+phFilesz)-8, 0, 16)
		}, status: 1, want: "bytes, lies across 0x1028, where what is loaded ends"}},
		{hostileCase: hostileCase{name: "a note across the end of what is loaded", change: func(p *patcher) {
			h := p.segment(elf.PT_LOAD, 1)
			p.prog(stack(p), elf.PT_NOTE, p.u64(h+phOff)+p.u64(h+phFilesz)-8, 0, 16)
		}, status: 1, want: "bytes, lies across 0x1028, where what is loaded ends"}},
		{hostileCase: hostileCase{name: "section headers in .text", change: func(p *patcher) {
			p.code(64 * 20)
			text := p.u64(p.section(".text") + shOff)
			copy(p.b[text:], p.b[p.sh(0):][:19*elffile.SectionSize])
			p.put64(ehShoff, text)
		}}, any: true},
		{hostileCase: hostileCase{name: "section headers over .eh_frame", change: func(p *patcher) {
			frame := p.u64(p.section(".eh_frame")+shOff) &^ 7
			p.put64(ehShoff, frame)
		}}, any: true},
		{hostileCase: hostileCase{name: "e_shnum 0, sh_size 2^64-1", change: func(p *patcher) {
			p.put16(ehShnum, 0)
			p.put64(p.sh(0)+shSize, math.MaxUint64)
		}, status: 1, want: "18446744073709551615 section headers; at most"}},
		{hostileCase: hostileCase{name: "e_shnum 0, sh_size 0", change: func(p *patcher) { p.put16(ehShnum, 0) }}, any: true},
		{hostileCase: hostileCase{name: "e_shnum 1", change: func(p *patcher) { p.put16(ehShnum, 1) }, status: 1, want: "section name table index 18; there are 1 sections"}},
		{hostileCase: hostileCase{name: "e_shnum 1 without names", change: func(p *patcher) { p.put16(ehShnum, 1); p.put16(ehShstrndx, 0) }, status: 1, want: "the CFI describes no code of this file"}},
		{hostileCase: hostileCase{name: "e_phnum 0xffff without sections", change: func(p *patcher) { bare(p); p.put16(ehPhnum, 0xffff) }, status: 1, want: "65535 headers"}},
		{hostileCase: hostileCase{name: "600,000 sections", long: true, change: func(p *patcher) {
			old := int(p.u16(ehShnum))
			p.newSections(600_000, func(_, h int) {})
			p.put16(ehShnum, 0)
			p.put64(p.sh(0)+shSize, uint64(old+600_000))
		}}, any: true},
		{hostileCase: hostileCase{name: "an empty .sframe section", change: func(p *patcher) {
			p.debugFrame(".sframe", uint64(elf.SHF_ALLOC), nil)
		}, status: 1, want: "the file has an .sframe section already; --force replaces it"}},
		{hostileCase: hostileCase{name: "an .sframe section that is not loaded", change: func(p *patcher) {
			p.debugFrame(".sframe", 0, []byte("text"))
		}, status: 1, want: "the file has an .sframe section already; --force replaces it"}},
		{hostileCase: hostileCase{name: "nothing to remove", args: []string{"--remove"}, change: func(p *patcher) {}, status: 1, want: "the file has no .sframe section"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				long.Test(t)
			}
			if !tt.any {
				tt.run(t)
				return
			}
			name := tt.fixture
			if name == "" {
				name = "plt"
			}
			p := newPatcher(t.Fatalf, fixture(t, name))
			tt.change(p)
			o := convertHostile(t, t.TempDir(), p.b, tt.args...)
			t.Logf("exit status %d: %.300s", o.status, o.stderr)
		})
	}
}
