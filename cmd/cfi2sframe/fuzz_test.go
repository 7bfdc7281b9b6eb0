package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// fuzzOptions returns the options that a byte encodes.
func fuzzOptions(flags uint8) convert.Options {
	opt := convert.Options{Version: sframe.V1 + sframe.Version(flags>>4%3), Force: flags&4 != 0}
	if opt.Version == sframe.V2 {
		opt.PCRel, opt.Outermost = flags&1 != 0, flags&2 != 0
	}
	return opt
}

// fuzzConvert converts a file: a result must be valid and correct, and an error must leave no file.
func fuzzConvert(t *testing.T, data []byte, opt convert.Options) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	testfile.Write(t, in, data)
	var c *report.Coverage
	note := func(d *convert.Details) (err error) {
		c = report.Converted(d, report.NewLimits())
		return nil
	}
	res, err := files.Convert(context.Background(), in, out,
		files.Options{Work: files.Add(opt, ""), Run: convert.Run{Report: note}})
	if got, err := os.ReadFile(in); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the input has changed (%v)", err)
	}
	entries, dirErr := os.ReadDir(dir)
	if dirErr != nil {
		t.Fatal(dirErr)
	}
	if err != nil {
		if errors.Is(err, convert.ErrWrong) {
			t.Error(err)
		}
		if len(entries) != 1 {
			t.Errorf("%v remains after %v", entries, err)
		}
		return
	}
	if res.Archive {
		return
	}
	if len(res.Kept) > 0 { // an object without CFI
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%v: the output differs from the input (%v)", res.Kept[0].Why, err)
		}
		return
	}
	if len(entries) != 2 || !c.Verified && c.Size > 0 {
		t.Errorf("files %v; want in and out; verified %t", entries, c.Verified)
	}
	if c.Size == 0 { // an object without code
		return
	}
	s := must.Get(decodeOutput(out))(t)
	if s.Len() != c.FDEs || uint64(s.NumFREs) != c.FREs {
		t.Errorf("%d FDEs and %d FREs; the report says %d and %d", s.Len(), s.NumFREs, c.FDEs, c.FREs)
	}
	if c.Covered > c.Described || c.Outermost > c.Covered {
		t.Errorf("%d bytes covered and %d without a caller, of %d", c.Covered, c.Outermost, c.Described)
	}
	if c.Unwindable != c.Covered+c.PLT || c.Unwindable > c.Code {
		t.Errorf("%d bytes of %d unwindable; covered %d, without a caller %d, stubs %d", c.Unwindable, c.Code,
			c.Covered, c.Outermost, c.PLT)
	}
	var gaps uint64
	for _, g := range c.Gaps {
		gaps += g.End - g.Begin
	}
	if c.Covered-c.Outermost+gaps != c.Described {
		t.Errorf("%d bytes covered and %d in gaps, of %d", c.Covered, gaps, c.Described)
	}
}

// FuzzConvert converts damaged linked files, objects and archives, removes .sframe, and converts them again. data is
// the file, and each group of ten bytes in patches overwrites 1, 2, 4 or 8 bytes of data.
//
// By default, large seeds are minimised for a minute each; -fuzzminimizetime=1x saves that time for the search.
func FuzzConvert(f *testing.F) {
	fixtures, err := filepath.Glob("../../testdata/bin/*/*")
	if err != nil || len(fixtures) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	var all [][]byte
	for _, name := range fixtures {
		all = append(all, testfile.Read(f, name))
	}
	for _, name := range []string{"plt", "pltlib.so", "static"} {
		all = append(all, convertedFixture(f, name))
	}
	objects := fuzzObjects()
	one := elftest.ArMember("one.o/", objects[0])
	all = append(append(all, objects...), elftest.Ar(elftest.ArMember("/", elftest.ArIndex(4, 1, 8+60+72)), one),
		elftest.Ar(elftest.ArMember("//", []byte("long_name.o/\nother/\n")), elftest.ArMember("/0", objects[0]),
			elftest.ArMember("/13", []byte("odd"))))
	for seed := range uint64(40) {
		all = append(all, generate.NewFile(choice.From(choice.Seeded(seed, 150))).Bytes)
	}
	for i, b := range all {
		f.Add(b, []byte{}, uint8(0x10*i+i))
		f.Add(b, binary.LittleEndian.AppendUint64([]byte{0x60, 0xc0}, 0x1000), uint8(0x10*i)) // p_vaddr of a segment
	}
	f.Fuzz(func(t *testing.T, data, patches []byte, flags uint8) {
		if len(data) < 1<<16 {
			fuzzRound(t, patchBytes(data, patches), fuzzOptions(flags))
		}
	})
}

// fuzzRound converts a file, removes .sframe from the result, and converts it again. The second conversion must give
// the same file as the first, and so must replacing .sframe. The CFI never changes.
func fuzzRound(t *testing.T, data []byte, opt convert.Options) {
	fuzzConvert(t, data, opt)
	dir := t.TempDir()
	step, kept := 0, false
	next := func(in string, work files.Work) (string, error) {
		step++
		out := filepath.Join(dir, strconv.Itoa(step))
		res, err := files.Convert(context.Background(), in, out, files.Options{Work: work})
		kept = err == nil && !res.Archive && len(res.Kept) > 0
		if errors.Is(err, convert.ErrWrong) {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
			t.Errorf("%v are left, error %v", left, err)
		}
		if _, statErr := os.Stat(out); (statErr == nil) != (err == nil) {
			t.Errorf("error %v, but the output: %v", err, statErr)
		}
		return out, err
	}
	in := filepath.Join(dir, "in")
	testfile.Write(t, in, data)
	remove := files.Remove("")
	opt.Force = true
	force := files.Add(opt, "")
	opt.Force = false
	first, err := next(in, files.Add(opt, ""))
	if err != nil { // an existing .sframe may still be removable
		_, _ = next(in, remove)
		return
	}
	if kept { // an object without CFI
		return
	}
	if err := compareOutput(data, first, nil); err != nil {
		t.Errorf("converted: %v", err)
	}
	want := testfile.Read(t, first)
	if before, err := elffile.New(bytes.NewReader(data), int64(len(data))); err == nil && !before.IsObject() &&
		image.Contents(before, before) != nil {
		return // its headers are contradictory
	}
	again, err := next(first, force)
	if err != nil {
		t.Errorf("converted again: %v", err)
	} else if !bytes.Equal(testfile.Read(t, again), want) {
		t.Error("converted again: a different file")
	}
	without, err := next(first, remove)
	if err != nil {
		t.Errorf("removed: %v", err)
		return
	}
	if err := compareOutput(data, without, []string{"remove"}); err != nil {
		t.Errorf("removed: %v", err)
	}
	last, err := next(without, files.Add(opt, ""))
	if err != nil {
		t.Errorf("converted after it was removed: %v", err)
	} else if !bytes.Equal(testfile.Read(t, last), want) {
		t.Error("converted after it was removed: a different file")
	}
}

// patchBytes applies the changes described at FuzzConvert.
func patchBytes(data, patches []byte) []byte {
	data = bytes.Clone(data)
	for ; len(patches) >= 10 && len(data) > 0; patches = patches[10:] {
		at := binary.LittleEndian.Uint16(patches)
		width := 1 << (at >> 14) // in bytes
		off := int(at&0x3fff) % len(data)
		copy(data[off:], patches[2:][:width])
	}
	return data
}

// fuzzObjects returns relocatable objects as seeds.
func fuzzObjects() [][]byte {
	two := elftest.NewObject()
	two.Code(".text.f", 32)
	old := elftest.NewObject()
	old.RelaOf(".rela.sframe", old.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, []byte{0xe2, 0xde, 2, 0}))
	wide := elftest.NewObject()
	binary.LittleEndian.PutUint16(wide.Symbols[30:], uint16(elf.SHN_XINDEX))
	wide.Sections[wide.Add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0,
		[]byte{0, 0, 0, 0, elftest.ObjText, 0, 0, 0})].Link = elftest.ObjSymtab
	return [][]byte{
		elftest.NewObject().Bytes(), two.Bytes(), old.Bytes(), wide.Bytes(),
		elftest.BigObject(elf.EM_S390, uint32(elf.R_390_PC32)).Bytes(),
		elftest.BigObject(elf.EM_AARCH64, uint32(elf.R_AARCH64_PREL32)).Bytes(),
	}
}

// FuzzProgram converts a library whose only function has arbitrary instructions in its CIE and FDE. The conversion and
// the check evaluate the instructions independently.
func FuzzProgram(f *testing.F) {
	library := fixture(f, "pltlib.so")
	for _, name := range []string{"fprules", "drap2.so", "undefra", "plt", "rareg.so", "remember"} {
		p := elftest.Patch(f.Fatalf, fixture(f, name))
		h := p.Section(".eh_frame")
		frame := p.B[p.U64(h+elftest.ShOff):][:p.U64(h+elftest.ShSize)]
		for len(frame) > 20 {
			n := min(4+int(binary.LittleEndian.Uint32(frame)), len(frame))
			if n > 17 {
				f.Add(elftest.Sound, frame[17:n], uint8(16*n))
			}
			frame = frame[n:]
		}
	}
	f.Add(elftest.Sound, steady, uint8(0x10))
	f.Add(steady, []byte{0x90, 1}, uint8(0x20))
	f.Add(elftest.Sound, unruly, uint8(0x13))
	f.Add(elftest.Sound, []byte{0x41, 0x10, 6, 2, 0x77, 8, 0x42, 0x16, 7, 2, 0x77, 8, 0x41, 0x09, 16, 6, 0x41, 0x07,
		16}, uint8(0x20))
	f.Fuzz(func(t *testing.T, initial, program []byte, flags uint8) {
		if len(initial)+len(program) > 4096 {
			return
		}
		p := elftest.Patch(t.Fatalf, library)
		text := p.Code(256)
		var fr elftest.Frames
		aug := ""
		if flags&8 != 0 {
			aug = "zS"
			initial = append([]byte{0}, initial...)
			program = append([]byte{0}, program...)
		}
		cie := fr.CIEOf(aug, 1, nil, initial)
		fr.FDE(cie, text+uint64(flags>>6), 200, program...)
		p.Contents(".eh_frame", fr.B)
		fuzzConvert(t, p.B, fuzzOptions(flags))
	})
}
