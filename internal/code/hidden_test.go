package code_test

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/code"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// hidden infers rows for a file as if it had no CFI, with its symbols as entries. It also returns the size of .text and
// the address of makecontext, which is written in assembly: its CFI is exact only at the call instruction.
func hidden(t *testing.T, b []byte) (inf *cfi.Inference, assembly, size uint64) {
	t.Helper()
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	text := &code.Text{Machine: f.Machine, Described: func(func(uint64, []byte)) error { return nil },
		Row: func(uint64) (row cfi.InferredRow, ok, known bool) { return row, false, false }}
	text.Step = func(uint64) error { return nil }
	data := map[*elf.Section][]byte{}
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC == 0 || s.Type == elf.SHT_NOBITS {
			continue
		}
		data[s] = must.Get(s.Data())(t)
		if s.Name == ".text" {
			text.Gaps = append(text.Gaps, code.Gap{Addr: s.Addr, Code: data[s]})
			size += s.Size
		}
	}
	symbols := must.Get(f.Symbols())(t)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && !strings.HasSuffix(s.Name, ".cold") { // part of a function
			text.Functions = append(text.Functions, s.Value)
		}
		if s.Name == "makecontext" && s.Section != elf.SHN_UNDEF {
			assembly = s.Value
		}
	}
	text.Data = func(addr uint64, n int) []byte {
		for s, b := range data {
			if s.Flags&elf.SHF_WRITE == 0 && addr >= s.Addr && addr-s.Addr < s.Size {
				b = b[addr-s.Addr:]
				return b[:min(n, len(b))]
			}
		}
		return nil
	}
	inf, _, err := code.Find(text)
	must.Do(t, err)
	return inf, assembly, size
}

// TestHidden hides the CFI of compiled code, and compares each inferred row with that CFI.
func TestHidden(t *testing.T) {
	sources, err := filepath.Glob("../../walker/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	const fp = 6 // DWARF number
	for _, flags := range [][]string{
		{"gcc", "-O2"}, {"gcc", "-Os", "-fno-omit-frame-pointer", "-mno-red-zone"}, {"clang", "-O2"},
	} {
		t.Run(flags[0]+flags[1], func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "library.so")
			args := append(flags[1:], "-std=gnu11", "-fPIC", "-shared", "-fasynchronous-unwind-tables", "-o", path)
			cmd := exec.Command(peer.Look(t, flags[0]), append(args, sources...)...)
			must.Run(t, cmd)
			b := testfile.Read(t, path)
			table := must.Get(cfi.Load(elftest.Parse(t, b), cfi.EHFrame, nil))(t)
			inf, assembly, size := hidden(t, b)
			claimed, described, other, lost := uint64(0), uint64(0), uint64(0), uint64(0)
			for _, fn := range inf.Functions {
				claimed += fn.End - fn.Begin
				if fn.Begin == assembly {
					continue
				}
				for i, r := range fn.Rows {
					end := fn.End
					if i+1 < len(fn.Rows) {
						end = fn.Begin + uint64(fn.Rows[i+1].Off)
					}
					for pc := fn.Begin + uint64(r.Off); pc < end; pc++ {
						want, ok := table.Lookup(pc)
						if !ok {
							continue
						}
						described++
						if want.CFA.Reg != uint64(r.Reg) {
							other++
						} else if want.CFA.Offset != int64(r.Offset) {
							t.Errorf("%#x: CFA r%d%+d, and %v in the CFI", pc, r.Reg, r.Offset, want.CFA)
						}
						// While RBP still has the caller's value, the inferred row and the CFI may differ in whether
						// they give the register or the slot: clang's CFI gives the slot only after the last push.
						kept := want.FP.Rule == cfi.RuleArchitectural || want.FP.Rule == cfi.RuleSameVal
						saved := want.FP.Rule == cfi.RuleOffset && want.FP.Offset == int64(r.FP)
						if r.Lost && kept {
							lost++
						}
						if r.FP != 0 && !saved && !kept || r.Reg == fp && r.FP == 0 {
							t.Errorf("%#x: FP c%+d, lost: %t, and %v in the CFI", pc, r.FP, r.Lost, want.FP)
						}
					}
				}
			}
			if 10*claimed < 6*size || 10*described < 9*claimed || 10*lost > described {
				t.Errorf("%d of %d bytes claimed; CFI describes %d, %d by another register; FP is lost in %d",
					claimed, size, described, other, lost)
			}
		})
	}
}
