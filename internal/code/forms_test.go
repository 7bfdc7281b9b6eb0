package code_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/code"
)

// TestForms analyses functions of one instruction, in code with and without CFI: all opcodes, all forms of operands.
// Each byte of the code without CFI must have a row or a reason.
func TestForms(t *testing.T) {
	prefixes := []string{"\x48", "", "\x66"}
	if testing.Short() {
		prefixes = prefixes[:1]
	}
	for _, prefix := range prefixes {
		for _, escape := range []string{"", "\x0f"} {
			for opcode := range 256 {
				start := prefix + escape + string([]byte{byte(opcode)})
				var forms [][]byte
				for modRM := range 256 {
					if reg := modRM >> 3 & 7; testing.Short() && reg != 0 && reg != 5 {
						continue
					}
					for _, sib := range []byte{0, 0x24, 0x25, 0x2c, 0xe5, 0xff} {
						forms = append(forms, append([]byte(start), byte(modRM), sib, 0x34, 0x12, 0, 0, 0, 0, 0, 0, 0))
						if modRM&7 != 4 || modRM>>6 == 3 { // no SIB byte
							break
						}
					}
				}
				find(t, elf.EM_X86_64, fmt.Sprintf("% x", start), forms, "\xc3")
			}
		}
	}
	for opcode := range uint32(1 << 11) {
		var forms [][]byte
		for _, operands := range []uint32{0, 31 << 5, 31, 31<<5 | 31, 29<<5 | 30<<10, 0x1fffff, 0xffc00, 0x1f03ff} {
			forms = append(forms, binary.LittleEndian.AppendUint32(nil, opcode<<21|operands))
		}
		find(t, elf.EM_AARCH64, fmt.Sprintf("%#08x", opcode<<21), forms, "\xc0\x03\x5f\xd6")
	}
}

// find analyses functions that consist of an instruction and a return.
func find(t *testing.T, m elf.Machine, name string, forms [][]byte, ret string) {
	t.Helper()
	defer func() {
		if err := recover(); err != nil {
			t.Errorf("%v: %s: panic: %v", m, name, err)
		}
	}()
	const described, gap, size = 0x1000, 0x800000, 32
	all := bytes.Repeat([]byte(ret), len(forms)*size/len(ret))
	text := &code.Text{
		Machine: m,
		Gaps:    []code.Gap{{Addr: gap, Code: all}},
		Data:    func(uint64, int) []byte { return nil },
		Row:     func(uint64) (row cfi.InferredRow, ok, known bool) { return row, false, false },
		Step:    func(uint64) error { return nil },
	}
	for i, form := range forms {
		copy(all[i*size:], form)
		text.Functions = append(text.Functions, uint64(gap+i*size))
	}
	text.Described = func(f func(addr uint64, code []byte)) error {
		for i := range forms {
			f(uint64(described+i*size), all[i*size:][:size])
		}
		return nil
	}
	inf, refused, err := code.Find(text)
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]int, len(all))
	mark := func(begin, end uint64) {
		for pc := begin; pc < end; pc++ {
			seen[pc-gap]++
		}
	}
	for _, fn := range inf.Functions {
		mark(fn.Begin, fn.End)
	}
	for _, r := range refused {
		mark(r.Begin, r.End)
	}
	if slices.ContainsFunc(seen, func(n int) bool { return n != 1 }) {
		t.Errorf("%v: %s: code with two results, or none", m, name)
	}
}
