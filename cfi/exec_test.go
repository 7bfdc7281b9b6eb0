package cfi

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// parse parses a section in memory.
func parse(t *testing.T, w *writer) *Table {
	t.Helper()
	s := Section{Source: EHFrame, Data: w.B, Addr: frameAddr}
	if w.Debug {
		s = Section{Source: DebugFrame, Data: w.B}
	}
	return must.Get(Parse(w.machine, w.order, s))(t)
}

// leb encodes an unsigned LEB128 number.
func leb(v uint64) []byte { return binary.AppendUvarint(nil, v) }

// TestErrorPlaces executes invalid instructions in an FDE and, where it makes a difference, in a CIE. The offset of the
// error must be that of the instruction or its operand.
func TestErrorPlaces(t *testing.T) {
	const (
		inFDE = 18 + 24 // offset of the instructions, after plainCIE and the addresses
		inCIE = 18      // offset after the instructions of plainCIE
	)
	long := slices.Concat(bytes.Repeat([]byte{0x80}, 10), []byte{0})
	for _, tt := range []struct {
		name string
		tg   target
		cie  []byte // additional instructions of the CIE
		fde  []byte
		off  uint64 // relative to the start of these instructions
		want string
	}{
		{"unknown opcode", amd64, nil, []byte{0, 0x3f}, 1, "unknown opcode 0x3f"},
		{"negate_ra_state", amd64, nil, []byte{0, 0x2d}, 1, "opcode 0x2d is not defined for this machine"},
		{"negate_ra_state_with_pc", s390x, nil, []byte{0x2c}, 0, "opcode 0x2c is not defined for this machine"},
		{"set_ra_state", amd64, nil, []byte{0x2b, 1, 0}, 0, "opcode 0x2b is not defined for this machine"},
		{"set_ra_state without offset", aarch64, nil, []byte{0x2b, 1}, 2, "record ends before operand"},
		{"restore_state", amd64, nil, []byte{0x0a, 0x0b, 0x0b}, 2, "restore_state without a remember_state"},
		{"remember_state", amd64, nil, bytes.Repeat([]byte{0x0a}, maxStates+1), maxStates,
			"remember_state nests deeper than 4096"},
		{"advance past 2^64", amd64, nil, []byte{0x41, 0x1d, 255, 255, 255, 255, 255, 255, 255, 255}, 1,
			"location advances past 2^64"},
		{"advance without operand", amd64, nil, []byte{0x41, 0x02}, 2,
			"operand of 1 bytes, but the record has only 0 left"},
		{"advance of two bytes without one", s390x, nil, []byte{0x03, 1}, 1,
			"operand of 2 bytes, but the record has only 1 left"},
		{"advance of eight bytes without one", amd64, nil, []byte{0x1d, 1, 2, 3, 4, 5, 6, 7}, 1,
			"operand of 8 bytes, but the record has only 7 left"},
		{"set_loc back", amd64, nil, []byte{0x44, 0x01, 3, 0x10, 0, 0, 0, 0, 0, 0}, 1,
			"set_loc moves backward from 0x1004 to 0x1003"},
		{"set_loc before the function", amd64, nil, []byte{0x01, 0xff, 0x0f, 0, 0, 0, 0, 0, 0}, 0,
			"set_loc moves backward from 0x1000 to 0xfff"},
		{"set_loc without operand", amd64, nil, []byte{0x01, 0, 0x10}, 1,
			"operand of 8 bytes, but the record has only 2 left"},

		{"def_cfa without register", amd64, nil, []byte{0x0c}, 1, "record ends before operand"},
		{"def_cfa without offset", amd64, nil, []byte{0x0c, 7}, 2, "record ends before operand"},
		{"def_cfa, large", amd64, nil, slices.Concat([]byte{0x0c, 7}, leb(maxOffset)), 0,
			"CFA offset 281474976710656 is too large"},
		{"def_cfa, beyond 2^63", amd64, nil, slices.Concat([]byte{0x0c, 7}, leb(1<<64-maxOffset)), 0,
			"CFA offset -281474976710656 is too large"},
		{"def_cfa_offset, large", amd64, nil, slices.Concat([]byte{0, 0x0e}, leb(maxOffset)), 1,
			"CFA offset 281474976710656 is too large"},
		{"def_cfa_offset after an expression, large", amd64, nil,
			slices.Concat([]byte{0x0f, 1, 0x30, 0x0e}, leb(maxOffset)), 3, "CFA offset 281474976710656 is too large"},
		{"offset, large", amd64, nil, slices.Concat([]byte{0x86}, leb(maxOffset)), 1,
			"offset 281474976710656 is too large"},
		{"offset, large when multiplied", amd64, nil, slices.Concat([]byte{0x86}, leb(maxOffset/8)), 1,
			"offset 35184372088832 times the data alignment -8 is too large"},
		{"offset_extended_sf, large when multiplied", amd64, nil,
			slices.Concat([]byte{0x11, 6}, bytes.Repeat([]byte{0x80}, 8), []byte{0x40}), 2,
			"offset -4611686018427387904 times the data alignment -8 is too large"},
		{"offset_extended_sf, large and positive", amd64, nil, slices.Concat([]byte{0x11, 6}, sleb(-maxOffset/8)), 2,
			"offset -35184372088832 times the data alignment -8 is too large"},
		{"unsigned number, too long", amd64, nil, slices.Concat([]byte{0x0e}, long), 1,
			"unsigned LEB128 number exceeds 64 bits"},
		{"unsigned number of more than 64 bits", amd64, nil, slices.Concat([]byte{0x0e}, bytes.Repeat([]byte{0x80}, 9),
			[]byte{2}), 1, "unsigned LEB128 number exceeds 64 bits"},
		{"unsigned number not terminated", amd64, nil, []byte{0x0e, 0x80}, 2, "record ends before operand"},
		{"signed number, too long", amd64, nil, slices.Concat([]byte{0x13}, long), 1,
			"signed LEB128 number exceeds 64 bits"},
		{"signed number of more than 64 bits", amd64, nil, slices.Concat([]byte{0x13}, bytes.Repeat([]byte{0x80}, 9),
			[]byte{1}), 1, "signed LEB128 number exceeds 64 bits"},
		{"signed number not terminated", amd64, nil, []byte{0x13, 0x80}, 2, "record ends before operand"},
		{"expression without length", amd64, nil, []byte{0x0f}, 1, "record ends before operand"},
		{"expression truncated", amd64, nil, []byte{0x10, 6, 3, 0x76, 0}, 3,
			"expression of 3 bytes, but the record has only 2 left"},
		{"another register's expression truncated", amd64, nil, []byte{0x10, 3, 3, 0x76, 0}, 3,
			"expression of 3 bytes, but the record has only 2 left"},
		{"another register's offset", amd64, nil, []byte{0x83}, 1, "record ends before operand"},

		{"remember_state in the CIE", amd64, bytes.Repeat([]byte{0x0a}, maxStates+1), nil, maxStates,
			"remember_state nests deeper than 4096"},
		{"restore_state in the CIE", amd64, []byte{0x0b}, nil, 0, "restore_state without a remember_state"},
		{"advance in the CIE", amd64, []byte{0, 0x41}, nil, 1, "location change in the initial instructions of a CIE"},
		{"set_loc in the CIE", amd64, []byte{0x01, 0, 0x10, 0, 0, 0, 0, 0, 0}, nil, 0,
			"location change in the initial instructions of a CIE"},
		{"unknown opcode in the CIE", s390x, []byte{0x3f}, nil, 0, "unknown opcode 0x3f"},
	} {
		for _, debug := range []bool{false, true} {
			w := ehFrame(tt.tg)
			w.Debug = debug
			cie := w.Shared(plainCIE, tt.cie)
			fde := w.Entry(cie, w.Addresses(textAddr, 0x80), tt.fde)
			table := parse(t, w)
			name := map[bool]string{false: ".eh_frame", true: ".debug_frame"}[debug]
			var got []*Error
			want := []*Error{{name, inFDE + tt.off, tt.want}}
			if tt.cie == nil {
				if table.Len() != 1 || table.NumErrors != 0 {
					t.Fatalf("%s: %d functions, errors %v", tt.name, table.Len(), table.Errors)
				}
				for range table.At(0).Rows() {
					t.Errorf("%s: a malformed function has rows", tt.name)
				}
				e, _ := table.At(0).Err().(*Error)
				got = append(got, e)
			} else {
				got = table.Errors
				first := &Error{name, inCIE + tt.off, tt.want}
				want = []*Error{first, {name, uint64(fde), "FDE with an invalid CIE (" + first.Error() + ")"}}
			}
			if !slices.EqualFunc(got, want, func(a, b *Error) bool { return a != nil && *a == *b }) {
				t.Errorf("%s: %v, want %v", tt.name, got, want)
			}
		}
	}
}

// TestNumbers decodes LEB128 numbers of all lengths up to ten bytes.
func TestNumbers(t *testing.T) {
	c := func(b []byte) *cursor { return &cursor{sec: &section{}, data: b} }
	for shift := range 64 {
		for _, v := range []uint64{1 << shift, 1<<shift - 1, math.MaxUint64 >> shift} {
			if u := c(leb(v)); u.uleb() != v || u.err != nil || u.pos != len(u.data) {
				t.Errorf("%#x is not read, error %v", v, u.err)
			}
			for _, s := range []int64{int64(v), -int64(v)} {
				if u := c(sleb(s)); u.sleb() != s || u.err != nil || u.pos != len(u.data) {
					t.Errorf("% x is not read as %d, error %v", u.data, s, u.err)
				}
			}
		}
	}
	// Assemblers and compilers also emit padded numbers.
	if u := c([]byte{0x81, 0x80, 0x80, 0}); u.uleb() != 1 || u.pos != 4 {
		t.Error("a padded number is not read")
	}
	if u := c([]byte{0xff, 0xff, 0x7f}); u.sleb() != -1 || u.pos != 3 {
		t.Error("a padded negative number is not read")
	}
}

// sleb encodes a signed LEB128 number.
func sleb(v int64) (b []byte) {
	for ; v < -64 || v > 63; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v)&0x7f)
}

// TestBounds executes instructions with the largest operands, and advances of 0.
func TestBounds(t *testing.T) {
	far := binary.LittleEndian.AppendUint32([]byte{0x04}, math.MaxUint32-1)
	for _, tt := range []struct {
		cie  []byte // additional instructions
		fde  []byte
		want []uint64 // offsets of rows
	}{
		{nil, slices.Concat(far, []byte{0x0e, 16}), []uint64{0, math.MaxUint32 - 1}},
		{[]byte{0x40}, []byte{0x40, 0x0e, 24, 0x40, 0x0e, 16, 0x02, 0, 0x0e, 24}, []uint64{0}},
		{nil, slices.Concat([]byte{0x41, 0x0e}, leb(maxOffset-1)), []uint64{0, 1}},
		{nil, slices.Concat([]byte{0x41, 0x13}, sleb(1-maxOffset/8)), []uint64{0, 1}},
		{nil, slices.Concat([]byte{0x41, 0x12, 7}, sleb(maxOffset/8-1)), []uint64{0, 1}},
	} {
		w := ehFrame(amd64)
		w.Entry(w.Shared(plainCIE, tt.cie), w.Addresses(textAddr, math.MaxUint32), tt.fde)
		table := parse(t, w)
		if table.Len() != 1 {
			t.Fatalf("% x: %d functions, errors %v", tt.fde, table.Len(), table.Errors)
		}
		fn := table.At(0)
		var got []uint64
		for r := range fn.Rows() {
			got = append(got, r.Begin-textAddr)
		}
		if fn.Err() != nil || !slices.Equal(got, tt.want) {
			t.Errorf("% x: rows at %d, error %v, want %d", tt.fde, got, fn.Err(), tt.want)
		}
	}
	// The delta is multiplied by 2^32.
	w := ehFrame(amd64)
	cie := w.Shared([]byte{1, 0}, leb(1<<32), []byte{0x78, 16, 0x0c, 7, 8})
	w.Entry(cie, w.Addresses(textAddr, 0x80), []byte{0x1d, 0, 0, 0, 0, 1, 0, 0, 0})
	if err := parse(t, w).At(0).Err(); err == nil || !strings.HasSuffix(err.Error(), "location advances past 2^64") {
		t.Errorf("advance by 2^64: error %v", err)
	}
}

// cfaOffsets returns the begin, end and CFA offset of a function's rows.
func cfaOffsets(fn *Function) (all [][3]uint64) {
	for r := range fn.Rows() {
		all = append(all, [3]uint64{r.Begin, r.End, uint64(r.CFA.Offset)})
	}
	return all
}

// TestSetRAState executes DW_CFA_AARCH64_set_ra_state, whose operands are an unsigned and a signed number, together
// with the other instructions that change whether the return address is signed.
func TestSetRAState(t *testing.T) {
	w := ehFrame(aarch64)
	w.Entry(w.Shared(plainCIE), w.Addresses(textAddr, 0x40), []byte{
		0x41, 0x2b, 1, 0,
		0x41, 0x2b, 2, 0x7c, // signed 4 bytes earlier
		0x41, 0x0a, 0x2b, 0, 0x80, 0x7f,
		0x41, 0x0b,
		0x41, 0x2d, // applies to neither 0 nor 1
		0x41, 0x2b, 0, 0,
		0x41, 0x2d,
		0x41, 0x2b, 0x80, 2, 0, // not defined
		0x41, 0xc0 | 34, // as in the CIE
	})
	fn := parse(t, w).At(0)
	var got []Sign
	for r := range fn.Rows() {
		got = append(got, r.Sign)
	}
	want := []Sign{Unsigned, Signed, SignedWithPC, Unsigned, SignedWithPC, SignUnknown, Unsigned, Signed, SignUnknown,
		Unsigned}
	if fn.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("states %d, error %v, want %d", got, fn.Err(), want)
	}
}

// TestFront expects the rows of a function whose first byte belongs to the previous function.
func TestFront(t *testing.T) {
	w := ehFrame(amd64)
	cie := w.Shared(plainCIE)
	w.Entry(cie, w.Addresses(textAddr, 0x41))
	w.Entry(cie, w.Addresses(textAddr+0x40, 0x40), []byte{0x41, 0x0e, 16, 0x44, 0x0e, 24})
	got := cfaOffsets(parse(t, w).At(1))
	const begin, middle, end = textAddr + 0x41, textAddr + 0x45, textAddr + 0x80
	if want := [][3]uint64{{begin, middle, 16}, {middle, end, 24}}; !slices.Equal(got, want) {
		t.Errorf("rows %#x, want %#x", got, want)
	}
}

// TestManyRules exceeds the maximum number of distinct rules.
func TestManyRules(t *testing.T) {
	w := ehFrame(amd64)
	cie := w.Shared(plainCIE)
	const each = 1 << 12
	for n := range maxRules/each + 1 {
		var code []byte
		for i := range each {
			code = append(append(code, 0x41, 0x0e), leb(uint64(n*each+i+16))...)
		}
		w.Entry(cie, w.Addresses(textAddr+each*2*uint64(n), each*2), code)
	}
	table := parse(t, w)
	last := table.At(table.Len() - 1)
	if table.NumRules() != maxRules || table.At(table.Len()-2).Err() == nil {
		t.Errorf("%d rules, error %v", table.NumRules(), table.At(table.Len()-2).Err())
	}
	if e, ok := last.Err().(*Error); !ok || e.Msg != "more than 131072 distinct rules in one file" ||
		e.Section != ".eh_frame" || e.Off != last.Offset()+24+1 {
		t.Errorf("error %v", last.Err())
	}
}

// TestFixedPrograms parses functions with the same instructions, including set_loc. Its target, and thus whether it
// moves backward, depends on the address of the instructions.
func TestFixedPrograms(t *testing.T) {
	for _, tg := range targets {
		w := ehFrame(tg)
		cie := w.Shared([]byte("\x01zR\x00"), []byte{1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8}) // pc-relative, 4 bytes
		// Records are 24 bytes long, so the target of the second set_loc is 24 bytes after that of the first.
		const first, second = textAddr + 0x100, textAddr + 0x108
		operand := frameAddr + uint64(len(w.B)) + 18
		code := slices.Concat([]byte{0x01}, w.order.AppendUint32(nil, uint32(first-8-operand)), []byte{0x0e, 16})
		add := func(start uint64, size uint32, code []byte) {
			field := frameAddr + uint64(len(w.B)) + 8
			w.Entry(cie, w.order.AppendUint32(w.order.AppendUint32(nil, uint32(start-field)), size), []byte{0}, code)
		}
		add(first, 8, code)
		add(second, 0x20, code)
		table := parse(t, w)
		a, b := table.At(0), table.At(1)
		if e, ok := a.Err().(*Error); !ok || e.Msg != "set_loc moves backward from 0x1100 to 0x10f8" {
			t.Errorf("%v: the first function has error %v", tg.machine, a.Err())
		}
		if row, ok := table.Lookup(first + 16); !ok || row.Begin != first+16 || row.CFA.Offset != 16 ||
			len(b.Steps()) != 2 || a.Program() == b.Program() {
			t.Errorf("%v: the second function has a row %+v, error %v", tg.machine, row, b.Err())
		}
	}
}

// TestEndOfMemory parses functions with the same instructions, one of them so close to the end of the address space
// that its last row starts past the end.
func TestEndOfMemory(t *testing.T) {
	const far = math.MaxUint64 - 0xff
	code := []byte{0x41, 0x0e, 16, 0x03, 0, 2, 0x0e, 24} // rows at 1 and 0x201
	for _, starts := range [][]uint64{{textAddr, far}, {far}} {
		w := ehFrame(amd64)
		cie := w.Shared(plainCIE)
		for _, start := range starts {
			w.Entry(cie, w.Addresses(start, 0x80), code)
		}
		table := parse(t, w)
		fn := table.At(table.Len() - 1)
		got := cfaOffsets(fn)
		if want := [][3]uint64{{far, far + 1, 8}, {far + 1, far + 0x80, 16}}; fn.Err() != nil ||
			!slices.Equal(got, want) {
			t.Errorf("%d functions: rows %#x, error %v, want %#x", table.Len(), got, fn.Err(), want)
		}
	}
}
