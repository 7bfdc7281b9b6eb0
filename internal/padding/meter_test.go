package padding_test

import (
	"regexp"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/testkit/peer"
)

// leaving are the instructions after which padding may begin, as objdump prints them.
var leaving = regexp.MustCompile(`^((notrack |bnd )*(ret|jmp|call|hlt|ud2|b|bl|br|blr|ret[a-z]*|brk|udf|j|jg|` +
	`bras|brasl|basr)\b|int3|\.long 0x|\.short 0x0000)`)

// rangesWithoutCFI returns the ranges of the section that no function of the table describes.
func rangesWithoutCFI(t *cfi.Table, s *elffile.Section) (out [][2]uint64) {
	at, end := s.Addr, s.Addr+s.Size
	for fn := range t.Functions() {
		if fn.End <= at || fn.Begin >= end {
			continue
		}
		if fn.Begin > at {
			out = append(out, [2]uint64{at, fn.Begin})
		}
		at = fn.End
	}
	if at < end {
		out = append(out, [2]uint64{at, end})
	}
	return out
}

// TestMeterPeer compares with the no-ops, traps and zeros that objdump shows at both ends of each range without CFI.
// One range in a thousand may differ: objdump loses the instructions in tables between assembly.
func TestMeterPeer(t *testing.T) {
	if testing.Short() {
		t.Skip("disassembling takes seconds")
	}
	for _, tt := range []struct{ objdump, path string }{
		{"objdump", "/usr/bin/ls"},
		{"objdump", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"}, // with assembly without CFI
		{"aarch64-linux-gnu-objdump", "/usr/aarch64-linux-gnu/lib/libc.so.6"},
		{"s390x-linux-gnu-objdump", "/usr/s390x-linux-gnu/lib/libc.so.6"},
	} {
		path := peer.File(t, tt.path)
		f, table := load(t, path)
		code := disassemble(t, tt.objdump, path)
		meter := padding.NewMeter(f)
		ranges, differ := 0, 0
		for i := range f.Sections {
			s := &f.Sections[i]
			if !s.IsCode() {
				continue
			}
			meter.Enter(s.Addr, s.Size, s.Off)
			for _, r := range rangesWithoutCFI(table, s) {
				ranges++
				begin, end := meter.Trim(r[0], r[1])
				if got, want := r[1]-r[0]-(end-begin), shown(code, r[0], r[1]); got != want {
					differ++
					t.Logf("%s: %#x-%#x: %d bytes of padding; objdump shows %d", path, r[0], r[1], got, want)
				}
			}
		}
		if ranges < 100 || differ*1000 > ranges {
			t.Errorf("%s: %d of %d ranges differ", path, differ, ranges)
		}
	}
}

// shown returns how much padding objdump shows at the ends of a range.
func shown(code map[uint64]instruction, begin, end uint64) uint64 {
	at := begin
	for at < end && pads.MatchString(code[at].text) {
		at += code[at].size
	}
	leading, trailing, left := min(at, end)-begin, uint64(0), false
	for ; at < end && code[at].size > 0; at += code[at].size {
		switch {
		case !pads.MatchString(code[at].text):
			trailing, left = 0, leaving.MatchString(code[at].text)
		case left:
			trailing += code[at].size
		}
	}
	return leading + trailing
}
