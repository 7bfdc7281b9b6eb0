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
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/sframe"
)

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

// TestHostileAgain has files that were converted before, and changed for the worse. They
// are converted with --force, and .sframe is removed.
func TestHostileAgain(t *testing.T) {
	at := func(p *elftest.Patcher) (off, addr, size uint64) {
		h := p.Section(".sframe")
		return p.U64(h + elftest.ShOff), p.U64(h + elftest.ShAddr), p.U64(h + elftest.ShSize)
	}
	stack := func(p *elftest.Patcher) int { return p.Segment(elf.PT_GNU_STACK, 0) }
	gnu := func(p *elftest.Patcher) int { return p.Segment(elf.ProgType(sframe.PTGNUSFrame), 0) }
	asSFrame := func(section string) func(p *elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put32(p.Section(section)+elftest.ShType, sframe.SHTGNUSFrame) }
	}
	again := make(map[string][]byte)
	for _, name := range []string{"plt", "pltlib.so", "static"} {
		again[name] = converted(t, name)
	}
	for _, tt := range []struct {
		name   string
		change func(p *elftest.Patcher)
		want   string // part of the error, or "" if it is done
		cut    bool   // done or an error, as other bytes have it: at the end of the segment, or in rows
		far    bool   // .sframe is too far from the code to be replaced
	}{
		{name: "nothing wrong", change: func(p *elftest.Patcher) {}},
		{name: "a note in .sframe", change: func(p *elftest.Patcher) {
			off, addr, _ := at(p)
			p.Prog(stack(p), elf.PT_NOTE, off+8, addr+8, 16)
		}, want: "(PT_NOTE) overlaps it"},
		{name: "PT_GNU_RELRO over .sframe", change: func(p *elftest.Patcher) {
			off, addr, size := at(p)
			p.Prog(stack(p), elf.PT_GNU_RELRO, off, addr, size)
		}, want: "(PT_GNU_RELRO) overlaps it"},
		{name: "a dynamic entry into .sframe", change: func(p *elftest.Patcher) {
			_, addr, _ := at(p)
			dyn := p.U64(p.Section(".dynamic") + elftest.ShOff)
			p.Put64(int(dyn), uint64(elf.DT_INIT))
			p.Put64(int(dyn)+8, addr+4)
		}, want: "dynamic entry 0 leads into it"},
		{name: "the entry point in .sframe", change: func(p *elftest.Patcher) {
			_, addr, _ := at(p)
			p.Put64(elftest.EhEntry, addr)
		}, want: "the entry point is"},
		{name: "a section inside of .sframe", change: func(p *elftest.Patcher) {
			off, addr, _ := at(p)
			p.SectionIn(elf.SHT_PROGBITS, elf.SHF_ALLOC, off+8, addr+8, 8)
		}, want: "() overlaps it"},
		{name: "a section before the segment", change: func(p *elftest.Patcher) {
			// As patchelf does it: a new segment after everything.
			off, _, size := at(p)
			data := bytes.Clone(p.B[off:][:size])
			for len(p.B)%4096 != int(off%4096) {
				p.B = append(p.B, 0)
			}
			to := uint64(p.Append(data))
			h := p.LastLoad()
			p.Put64(h+elftest.PhOff, to)
			p.Put64(h+elftest.PhFilesz, size)
			p.Put64(h+elftest.PhMemsz, size)
			p.Put64(gnu(p)+elftest.PhOff, to)
			p.Put64(p.Section(".sframe")+elftest.ShOff, to)
		}},
		{name: "two .sframe", change: func(p *elftest.Patcher) {
			p.NewSections(1, func(_, h int) { p.CopySection(h, ".sframe") })
		}, want: "are both .sframe, but a file may have only one"},
		{name: "two PT_GNU_SFRAME, one elsewhere", change: func(p *elftest.Patcher) {
			copy(p.B[stack(p):], p.B[gnu(p):][:elffile.ProgSize])
			p.Put64(gnu(p)+elftest.PhOff, 64)
		}, want: "are both PT_GNU_SFRAME, but a file may have only one"},
		{name: "PT_GNU_SFRAME elsewhere", change: func(p *elftest.Patcher) {
			p.Put64(gnu(p)+elftest.PhOff, 0x100)
			p.Put64(gnu(p)+elftest.PhVaddr, 0x100)
		}},
		{name: "PT_GNU_SFRAME of 2^64-1 bytes",
			change: func(p *elftest.Patcher) { p.Put64(gnu(p)+elftest.PhFilesz, math.MaxUint64) },
			want:   "18446744073709551615 bytes at file offset"},
		{name: ".sframe of a byte", change: func(p *elftest.Patcher) {
			p.Put64(p.Section(".sframe")+elftest.ShSize,
				1)
		}, want: "it starts with e2, not with the magic number 0xdee2"},
		{name: ".sframe over the whole file", change: func(p *elftest.Patcher) {
			p.Put64(p.Section(".sframe")+elftest.ShOff, 0)
			p.Put64(p.Section(".sframe")+elftest.ShSize, uint64(len(p.B)))
		}, want: "it starts with 7f 45"},
		{name: ".eh_frame is .sframe", change: asSFrame(".eh_frame"), want: "are both .sframe"},
		{name: "a segment of code", change: func(p *elftest.Patcher) {
			p.Put32(p.LastLoad()+elftest.PhFlags,
				uint32(elf.PF_R|elf.PF_X))
		}},
		{name: "a segment with a .bss", change: func(p *elftest.Patcher) {
			p.Put64(p.LastLoad()+elftest.PhMemsz, p.U64(p.LastLoad()+elftest.PhMemsz)+4096)
		}},
		{name: "a segment a byte less", cut: true, change: func(p *elftest.Patcher) {
			n := p.U64(p.LastLoad()+elftest.PhFilesz) - 1
			p.Put64(p.LastLoad()+elftest.PhFilesz, n)
			p.Put64(p.LastLoad()+elftest.PhMemsz, n)
		}},
		{name: "a segment elsewhere in memory", change: func(p *elftest.Patcher) {
			p.Put64(p.LastLoad()+elftest.PhVaddr, 1<<40)
		}, far: true}, // from the code of dynamically linked files
		{name: "section headers in .sframe", change: func(p *elftest.Patcher) {
			off, _, _ := at(p)
			p.Put64(elftest.EhShoff, off&^7)
		}, cut: true}, // what the bytes of rows say as headers depends on the rows
		{name: "a symbol in .sframe", change: func(p *elftest.Patcher) {
			h := p.Section(".symtab")
			p.Put16(int(p.U64(h+elftest.ShOff))+elffile.SymSize+6, uint16(p.Index(".sframe")))
		}},
		{name: "no section headers", change: func(p *elftest.Patcher) {
			p.Put64(elftest.EhShoff, 0)
			p.Put16(elftest.EhShnum, 0)
			p.Put16(elftest.EhShstrndx, 0)
		}},
	} {
		for _, name := range []string{"plt", "pltlib.so", "static"} {
			for _, arg := range []string{"--force", "remove"} {
				t.Run(tt.name+"/"+name+arg, func(t *testing.T) {
					if name == "static" && (strings.Contains(tt.name, "dynamic")) {
						t.Skip("there is no .dynamic")
					}
					p := elftest.Patch(t.Fatalf, again[name])
					tt.change(p)
					args := []string{arg}
					status, want := exitDone, tt.want
					if tt.far && arg == "--force" && name != "static" {
						args = append(args, "--format", "2")
						want = "is more than 2 GiB away from all code"
					}
					o := convertHostile(t, t.TempDir(), p.B, args...)
					if want != "" {
						status = exitError
					} else if tt.cut {
						status = o.status
					}
					o.expect(t, status, want)
				})
			}
		}
	}
}

// TestHostileLayout has files that are converted for the first time, and in which things
// are where they are not expected.
func TestHostileLayout(t *testing.T) {
	stack := func(p *elftest.Patcher) int { return p.Segment(elf.PT_GNU_STACK, 0) }
	field := func(typ elf.ProgType, n, field int, v uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put64(p.Segment(typ, n)+field, v) }
	}
	bare := func(p *elftest.Patcher) {
		p.Put64(elftest.EhShoff, 0)
		p.Put16(elftest.EhShnum, 0)
		p.Put16(elftest.EhShstrndx, 0)
	}
	for _, tt := range []struct {
		hostileCase
		any bool // the exit status does not matter
	}{
		// The page in front of a static executable.
		{hostileCase: hostileCase{name: "front: p_vaddr of a page", fixture: "static",
			change: field(elf.PT_LOAD, 0, elftest.PhVaddr, 4096), status: 1,
			want: "no page is free before address 0x1000"}},
		{hostileCase: hostileCase{name: "front: p_align 3", fixture: "static",
			change: field(elf.PT_LOAD, 0, elftest.PhAlign, 3)}},
		{hostileCase: hostileCase{name: "front: p_offset 1", fixture: "static",
			change: field(elf.PT_LOAD, 0, elftest.PhOff, 1), status: 1, want: "no segment begins with the ELF header"}},
		{hostileCase: hostileCase{name: "front: no section headers", fixture: "static", change: bare}, any: true},
		{hostileCase: hostileCase{name: "front: entry point in the headers", fixture: "static",
			change: func(p *elftest.Patcher) { p.Put64(elftest.EhEntry, 0x400000) }}},

		// Program headers.
		{hostileCase: hostileCase{name: "program headers in .text", change: func(p *elftest.Patcher) {
			text := p.U64(p.Section(".text") + elftest.ShOff)
			copy(p.B[text:], p.B[p.U64(elftest.EhPhoff):][:9*elffile.ProgSize])
			p.Put64(elftest.EhPhoff, text)
		}}, any: true},
		{hostileCase: hostileCase{name: "program headers not aligned", change: func(p *elftest.Patcher) {
			copy(p.B[65:], bytes.Clone(p.B[64:64+9*elffile.ProgSize]))
			p.Put64(elftest.EhPhoff, 65)
		}}, any: true},
		{hostileCase: hostileCase{name: "PT_PHDR elsewhere", change: field(elf.PT_PHDR, 0, elftest.PhOff, 0x100),
			status: 1,
			want:   "program header 0: PT_PHDR at file offset 0x100, but the program headers are at 0x40"}},
		{hostileCase: hostileCase{name: "PT_PHDR twice",
			change: func(p *elftest.Patcher) {
				copy(p.B[stack(p):],
					p.B[p.Segment(elf.PT_PHDR, 0):][:elffile.ProgSize])
			}}},
		{hostileCase: hostileCase{name: "a .bss at offset 2^64-1", change: func(p *elftest.Patcher) {
			h := stack(p)
			p.Prog(h, elf.PT_LOAD, math.MaxUint64, 0x100000, 0x1000)
			p.Put64(h+elftest.PhFilesz, 0)
		}}},
		{hostileCase: hostileCase{name: "70,000 PT_NULL, without section headers", change: func(p *elftest.Patcher) {
			p.ManyProgs(70_000, func(int, int) {})
			bare(p)
		}}, any: true},
		{hostileCase: hostileCase{name: "200,000 PT_NULL",
			change: func(p *elftest.Patcher) { p.ManyProgs(200_000, func(int, int) {}) }, status: 1,
			want: "200009 program headers are more than the limit of 131072"}},
		{hostileCase: hostileCase{name: "60,000 PT_LOAD", change: func(p *elftest.Patcher) {
			p.ManyProgs(60_000, func(i, off int) {
				p.Prog(off, elf.PT_LOAD, 0x400, 0x100000+uint64(i)*4096, 16)
			})
		}, status: 1, want: "more than 2048 segments (PT_LOAD)"}},
		{hostileCase: hostileCase{name: "60,000 PT_NOTE, each over the start of the next",
			change: func(p *elftest.Patcher) {
				p.ManyProgs(60_000, func(i, off int) {
					n := uint64(60_000 - i)
					p.Prog(off, elf.PT_NOTE, 0x254+n/64, 0x254+n/64, 36)
				})
			}}, any: true},
		{hostileCase: hostileCase{name: "a PT_DYNAMIC of 16 MiB", change: func(p *elftest.Patcher) {
			at := p.Append(bytes.Repeat([]byte{4, 0, 0, 0, 0, 0, 0, 0}, 2<<20))
			h := p.Segment(elf.PT_DYNAMIC, 0)
			p.Put64(h+elftest.PhOff, uint64(at))
			p.Put64(h+elftest.PhFilesz, 16<<20)
		}, status: 1, want: "16777216 bytes; at most 1048576 are accepted"}},
		{hostileCase: hostileCase{name: "60,000 PLT sections", long: true, change: func(p *elftest.Patcher) {
			p.NewSections(60_000, func(i, h int) {
				p.CopySection(h, ".plt")
				p.Put64(h+elftest.ShAddr, p.U64(h+elftest.ShAddr)+uint64(i%16))
				p.Put64(h+elftest.ShOff, p.U64(h+elftest.ShOff)+uint64(i%16))
				p.Put64(h+elftest.ShSize, 1)
			})
		}}, any: true},

		// Section headers.
		{hostileCase: hostileCase{name: "a section across the end of what is loaded", change: func(p *elftest.Patcher) {
			h := p.Segment(elf.PT_LOAD, 1)
			p.SectionIn(elf.SHT_PROGBITS, 0, p.U64(h+elftest.PhOff)+p.U64(h+elftest.PhFilesz)-8, 0, 16)
		}, status: 1, want: "bytes, lies across 0x1028, where loaded bytes end"}},
		{hostileCase: hostileCase{name: "section headers in .text", change: func(p *elftest.Patcher) {
			p.Code(64 * 20)
			text := p.U64(p.Section(".text") + elftest.ShOff)
			copy(p.B[text:], p.B[p.Header(0):][:19*elffile.SectionSize])
			p.Put64(elftest.EhShoff, text)
		}}, any: true},
		{hostileCase: hostileCase{name: "e_shnum 0, sh_size 2^64-1", change: func(p *elftest.Patcher) {
			p.Put16(elftest.EhShnum, 0)
			p.Put64(p.Header(0)+elftest.ShSize, math.MaxUint64)
		}, status: 1, want: "18446744073709551615 section headers are more than the limit"}},
		{hostileCase: hostileCase{name: "600,000 sections", long: true, change: func(p *elftest.Patcher) {
			old := int(p.U16(elftest.EhShnum))
			p.NewSections(600_000, func(_, h int) {})
			p.Put16(elftest.EhShnum, 0)
			p.Put64(p.Header(0)+elftest.ShSize, uint64(old+600_000))
		}}, any: true},
		{hostileCase: hostileCase{name: "nothing to remove", args: []string{"remove"},
			change: func(p *elftest.Patcher) {}, status: 1, want: "the file has no .sframe section"}},
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
			p := elftest.Patch(t.Fatalf, fixture(t, name))
			tt.change(p)
			o := convertHostile(t, t.TempDir(), p.B, tt.args...)
			t.Logf("exit status %d: %.300s", o.status, o.stderr)
		})
	}
}
