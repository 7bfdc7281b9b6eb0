package plt_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// pieces lists, by machine, instructions of stubs and other instructions.
var pieces = map[string][][]byte{
	"amd64": {
		{0xff, 0x25, 0, 0, 0, 0}, {0x68, 1, 0, 0, 0}, {0xe9, 0, 0, 0, 0}, {0xf3, 0x0f, 0x1e, 0xfa},
		{0xf2, 0xff, 0x25, 0, 0, 0, 0},
		{0x66, 0x90}, {0x90}, {0xcc}, {0x0f, 0x1f, 0x40, 0}, {0xff, 0x35, 0, 0, 0, 0}, {0x66, 0x0f, 0x1f, 0x44, 0, 0},
		{0x41, 0xbb, 0, 0, 0, 0}, {0x41, 0xff, 0xe3}, {0x4c, 0x8b, 0x1d, 0, 0, 0, 0}, {0x58}, {0x50}, {0xc3},
		{0x48, 0x83, 0xec, 8},
	},
	"aarch64": {
		{0xf0, 0x7b, 0xbf, 0xa9}, {0x10, 0, 0, 0x90}, {0x11, 2, 0x40, 0xf9}, {0x10, 2, 0, 0x91}, {0x20, 2, 0x1f, 0xd6},
		{0x1f, 0x20, 3, 0xd5},
		{0x5f, 0x24, 3, 0xd5}, {0x9f, 0x21, 3, 0xd5}, {0xe2, 0x0f, 0xbf, 0xa9}, {0x40, 0, 0x1f, 0xd6},
		{0xc0, 3, 0x5f, 0xd6}, {0, 0, 0, 0},
	},
}

// FuzzFind builds a PLT from the instructions listed in pieces. The stubs found must not overlap, and the section
// generated for them must agree with the instructions.
func FuzzFind(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(choice.Seeded(seed, 32), uint8(seed))
	}
	// GNU ld's PLT on amd64: the header and an entry.
	f.Add([]byte{0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 2}, uint8(0))
	files := make(map[string][]byte)
	for name := range pieces {
		b := testfile.Read(f, "../../testdata/bin/"+name+"/pltlib.so")
		files[name] = b
	}
	f.Fuzz(func(t *testing.T, choices []byte, kind uint8) {
		if len(choices) > 512 {
			return
		}
		name := map[bool]string{false: "amd64", true: "aarch64"}[kind&1 != 0]
		s := choice.From(choices)
		var code []byte
		for s.Left() > 0 {
			in := bytes.Clone(pieces[name][s.N(len(pieces[name]))])
			if s.Rarely(4) { // a different operand
				in[len(in)-1] ^= byte(s.N(256))
			}
			code = append(code, in...)
			if s.Rarely(4) && name == "amd64" {
				for len(code)%16 != 0 {
					code = append(code, 0x90)
				}
			}
		}
		if len(code) == 0 {
			return
		}
		p := elftest.Patch(t.Fatalf, files[name])
		p.BigPLT(len(code), code...)
		x := must.Get(elffile.New(bytes.NewReader(p.B), int64(len(p.B))))(t)
		stubs := must.Get(plt.Find(x, &cfi.Table{Order: binary.LittleEndian}))(t)
		end := uint64(0)
		for _, stub := range stubs {
			if stub.Begin < end || stub.End <= stub.Begin || len(stub.Steps) == 0 || stub.Steps[0].Offset != 0 {
				t.Fatalf("stub %+v overlaps the previous stub, which ends at %#x", stub, end)
			}
			for i, step := range stub.Steps {
				if i > 0 && step.Offset <= stub.Steps[i-1].Offset || uint64(step.Offset) >= stub.End-stub.Begin ||
					step.CFA < 0 {
					t.Fatalf("steps %+v", stub.Steps)
				}
			}
			end = stub.End
		}
		opt := convert.Options{Version: sframe.V1 + sframe.Version(kind>>1%3)}
		var out bytes.Buffer
		res, err := convert.Convert(context.Background(), bytes.NewReader(p.B), int64(len(p.B)), &out, opt)
		if errors.Is(err, convert.ErrWrong) {
			t.Fatal(err)
		}
		if err != nil {
			return
		}
		var found uint64
		for _, stub := range stubs {
			found += stub.End - stub.Begin
		}
		if c := res.Facts[0]; c.PLT > found {
			t.Errorf("%d bytes of stubs covered, %d found", c.PLT, found)
		}
	})
}
