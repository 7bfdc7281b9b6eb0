package convert_test

import (
	"bytes"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/goprog"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestGoProgram converts stripped Go programs. If a function's frame size in .gopclntab contradicts its code, the
// function and all functions that share its pcsp table must become gaps. All other code must be covered as in the valid
// program.
func TestGoProgram(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		t.Run(arch, func(t *testing.T) {
			b := testfile.Read(t, goprog.Build(t, "CGO_ENABLED=0 GOARCH="+arch, "-ldflags=-s -w"))
			f := elftest.Parse(t, b)
			order, at := f.Order, f.Section(".gopclntab").Off
			pctab, records := at+order.Uint64(b[at+56:]), at+order.Uint64(b[at+64:])
			var pcsp uint64
			for i := records + 8; ; i += 8 { // find a function with a frame size of 8, 16 or 24 in its second row
				record := records + uint64(order.Uint32(b[i+4:]))
				pcsp = pctab + uint64(order.Uint32(b[record+16:]))
				twice := b[pcsp+2]
				if b[record+41] == 0 && b[pcsp] == 2 && b[pcsp+1] < 100 && 0 < twice && twice < 64 && twice&15 == 0 {
					break
				}
			}
			bad := bytes.Clone(b)
			bad[pcsp+2] ^= 64
			sound, _ := convertGo(t, b)
			if 100*sound.Covered < 99*sound.Described || sound.Described < 400_000 || !sound.Verified {
				t.Errorf("%d of %d bytes covered, verified %t", sound.Covered, sound.Described, sound.Verified)
			}
			res, section := convertGo(t, bad)
			var found *gap
			bytesOf := make(map[string]uint64)
			for i, g := range res.Gaps {
				if bytesOf[g.Reason] += g.End - g.Begin; g.Reason == "go-table" {
					found = &res.Gaps[i]
				}
			}
			if found == nil || !strings.Contains(found.Rule, "in the table, but ") {
				t.Fatalf("gaps: %+v; want one of go-table", res.Gaps)
			}
			if _, ok, err := section.Lookup(found.Begin); ok || err != nil {
				t.Errorf("the section has a row at %#x: %v", found.Begin, err)
			}
			lost := bytesOf["go-table"]
			if !res.Verified || res.Covered+lost != sound.Covered || lost > res.Covered/10 {
				t.Errorf("%d bytes of %d covered, without %d; verified: %t", res.Covered, sound.Covered, lost,
					res.Verified)
			}
		})
	}
}

// convertGo converts a program to V3 and returns the report and the section.
func convertGo(t *testing.T, b []byte) (*conversion, *sframe.Section) {
	t.Helper()
	c := &conversion{}
	out, _ := must.Two(runBytes(b, c.note(add(convert.Options{Version: sframe.V3}))))(t)
	section := must.Get(convert.ReadSection(elftest.Parse(t, out)))(t)
	return c, section
}

// TestGoOtherCode converts a program whose code does not match its table: all Go functions must become gaps.
func TestGoOtherCode(t *testing.T) {
	b := testfile.Read(t, goprog.Build(t, "CGO_ENABLED=0 GOARCH=amd64", "-ldflags=-s -w"))
	text := elftest.Parse(t, b).Section(".text")
	for i := range text.Size {
		b[text.Off+i] = 0xcc
	}
	res := &conversion{}
	_, done := must.Two(runBytes(b, res.note(add(convert.Options{Version: sframe.V3}))))(t)
	if res.Covered > 0 || done.Stays != convert.NoRows || len(res.Gaps) < 500 {
		t.Errorf("%d bytes covered, %d gaps, kept: %q", res.Covered, len(res.Gaps), done.Stays)
	}
	const want = "functions with frames move the stack pointer where the table says"
	for _, g := range res.Gaps {
		if g.Reason != "go-table" || !strings.Contains(g.Rule, want) {
			t.Fatalf("%s: %s; want go-table: %s", g.Reason, g.Rule, want)
		}
	}
}
