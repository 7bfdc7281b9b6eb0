package code

import (
	"debug/elf"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/must"
)

// textOf returns a Text with two gaps, other code between them, entries, and data.
func textOf(a, described, b, entries, data []byte) *Text {
	described = append(described, 0x90)
	t := &Text{Machine: elf.EM_X86_64, Gaps: []Gap{{base, a}, {base + uint64(len(a)+len(described)), b}}}
	t.Step = func(uint64) error { return nil }
	t.Gaps = slices.DeleteFunc(t.Gaps, func(g Gap) bool { return len(g.Code) == 0 })
	t.Described = func(f func(addr uint64, code []byte)) error {
		f(base+uint64(len(a)), described)
		return nil
	}
	for i := 0; i+1 < len(entries); i += 2 {
		t.Entries = append(t.Entries, base+uint64(entries[i])<<8+uint64(entries[i+1]))
	}
	t.Row = func(uint64) (row cfi.InferredRow, ok, known bool) { return row, false, false }
	const dataAt = 0x800000
	t.Data = func(addr uint64, n int) []byte {
		if addr-dataAt >= uint64(len(data)) {
			return nil
		}
		return data[addr-dataAt:][:min(n, len(data)-int(addr-dataAt))]
	}
	return t
}

// checkFound checks that each byte of the gaps either has a row or is refused, and that a second run gives the same
// result.
func checkFound(t *testing.T, text *Text) {
	t.Helper()
	inf, refused := must.Two(Find(text))(t)
	if again, r, _ := Find(text); !reflect.DeepEqual(inf, again) || !slices.Equal(refused, r) {
		t.Error("the second result differs")
	}
	type span struct{ begin, end uint64 }
	var all []span
	for i, fn := range inf.Functions {
		all = append(all, span{fn.Begin, fn.End})
		if i > 0 && fn.Begin < inf.Functions[i-1].End {
			t.Errorf("function at %#x overlaps", fn.Begin)
		}
		if len(fn.Rows) == 0 || fn.Rows[0].Off != 0 {
			t.Errorf("function at %#x without a first row", fn.Begin)
		}
		for j, r := range fn.Rows {
			if fn.Begin+uint64(r.Off) >= fn.End || j > 0 && r.Off <= fn.Rows[j-1].Off {
				t.Errorf("function at %#x: row at %d", fn.Begin, r.Off)
			}
		}
	}
	for _, r := range refused {
		all = append(all, span{r.Begin, r.End})
		if !strings.HasPrefix(r.Reason.String(), "code-") {
			t.Errorf("reason %d", r.Reason)
		}
	}
	slices.SortFunc(all, func(a, b span) int { return int(a.begin) - int(b.begin) })
	for _, g := range text.Gaps {
		for at := g.Addr; at < g.end(); {
			if len(all) == 0 || all[0].begin != at || all[0].end <= at || all[0].end > g.end() {
				t.Fatalf("%#x is not described once: %x", at, all)
			}
			at, all = all[0].end, all[1:]
		}
	}
	if len(all) > 0 {
		t.Errorf("outside of the gaps: %x", all)
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte("\x48\x89\xe3\xff\xe0\xc3"), []byte("\xe8\xfa\xff\xff\xff"), []byte("\x55\xeb\xf0\x06"),
		[]byte("\x00\x00"), []byte{})
	f.Add([]byte("\xff\x24\xc5\x00\x00\x80\x00\xc3\xb8\xc3\xc3\xc3\xc3\xc3"), []byte("\xc3"), []byte("\x90\xc3"),
		[]byte("\x00\x00"),
		[]byte("\x07\x10\x00\x00\x00\x00\x00\x00\x08\x10\x00\x00\x00\x00\x00\x00\x09\x10\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x4c\x8d\x05\x05\x00\x00\x00\x74\x01\xc3\x41\xff\xe0\xc3"), []byte{}, []byte("\x48\x83"),
		[]byte("\x00\x00\x00\x0f"), []byte{})
	f.Fuzz(func(t *testing.T, a, described, b, entries, data []byte) {
		for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
			text := textOf(a, described, b, entries, data)
			text.Machine = m
			checkFound(t, text)
		}
	})
}

// hostile lists code that would take quadratic time if each step scanned all other code.
var hostile = []struct {
	name    string
	code    func(n int) []byte // returns about n bytes
	entries int                // distance between entries in bytes; 0: a single entry
	data    bool
}{
	{"tables that overlap", func(n int) []byte {
		var b []byte
		for i := range n / 9 { // jz +7; jmp *(0x800000+8*i)(,%rax,8)
			b = append(b, 0x74, 7, 0xff, 0x24, 0xc5, byte(8*i), byte(8*i>>8), 0x80, 0)
		}
		return append(b, 0xc3)
	}, 0, true},
	{"states that change one by one", func(n int) []byte {
		var b []byte
		for i := range n / 4 { // xor of a register; jz back to the start
			b = append(b, 0x31, 0xc0|9*byte([]int{0, 1, 2, 3, 5, 6, 7}[i%7]), 0x74, byte(-min(4*i, 120)))
		}
		return append(b, 0xc3)
	}, 0, false},
	{"labels times jumps", func(n int) []byte {
		b := []byte{0x4c, 0x8d, 5, 0, 0, 0, 0}
		for range n / 18 { // jz +7; lea 0(%rip),%r8
			b = append(b, 0x74, 7, 0x4c, 0x8d, 5, 0, 0, 0, 0)
		}
		for range n / 10 { // jz +3; jmp *%r8
			b = append(b, 0x74, 3, 0x41, 0xff, 0xe0)
		}
		return append(b, 0xc3)
	}, 0, false},
	{"labels in a long block", func(n int) []byte {
		b := []byte{0x74, 7, 0x4c, 0x8d, 5, 0, 0, 0, 0, 0x74, 7, 0x4c, 0x8d, 5, 1, 0, 0, 0}
		for range n / 7 {
			b = append(b, 0x48, 0x8d, 5, 0, 0, 0, 0)
		}
		return append(b, 0x41, 0xff, 0xe0, 0xc3)
	}, 0, false},
	{"all bytes are entries", func(n int) []byte { return []byte(strings.Repeat("\x90", n)) }, 1, false},
	{"tails that many functions share", func(n int) []byte {
		return []byte(strings.Repeat("\x66\x90", n/2))
	}, 2, false},
	{"a cut at each instruction", func(n int) []byte {
		b := []byte(strings.Repeat("\x90", n/6))
		for i := range n / 6 { // jz
			b = append(b, 0x0f, 0x84)
			to := int32(-len(b) - 4 + n/6 - 1 - i)
			b = append(b, byte(to), byte(to>>8), byte(to>>16), byte(to>>24))
		}
		return append(b, 0xc3)
	}, 0, false},
	{"a chain of private callees", func(n int) []byte { // call next; inc of a register; ret
		return append([]byte(strings.Repeat("\xe8\x03\x00\x00\x00\xff\xc3\xc3", n/8)), 0x31, 0xed, 0xc3)
	}, 0, false}, // each round finds one more caller that loses FP
	{"many private callees of a block", func(n int) []byte {
		var b []byte
		k := n / 8
		for i := range k {
			to := 5*(k-i-1) + 1 + 3*i
			b = append(b, 0xe8, byte(to), byte(to>>8), byte(to>>16), byte(to>>24))
		}
		b = append(b, 0xc3)
		for i := range k {
			b = append(b, 0xff, 0xc0|byte(i%3), 0xc3)
		}
		return b
	}, 0, false},
}

// TestSteps checks that doubling the size of hostile code increases the number of decoded instructions by a factor of
// at most 2.2.
func TestSteps(t *testing.T) {
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			var decoded [2]int
			for i, n := range []int{1 << 13, 1 << 14} {
				code := tt.code(n)
				var data []byte
				for j := 0; tt.data && j < n; j++ {
					data = binary.LittleEndian.AppendUint64(data, base+uint64(9*j%n))
				}
				text := textOf(code, nil, nil, []byte{0, 0}, data)
				for at := 1; tt.entries != 0 && at < n; at += tt.entries {
					text.Entries = append(text.Entries, base+uint64(at))
				}
				if i == 0 {
					checkFound(t, text)
				}
				f := newFinder(text)
				must.Do(t, f.find())
				decoded[i] = f.decoded
			}
			if 10*decoded[1] > 22*decoded[0] {
				t.Errorf("%d and %d instructions", decoded[0], decoded[1])
			}
		})
	}
}
