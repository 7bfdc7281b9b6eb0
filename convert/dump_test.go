package convert_test

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// title is the first line of a dump.
const title = "Contents of the SFrame section .sframe:\n"

// dumpOutput returns the output of Dump for a file in memory.
func dumpOutput(t *testing.T, b []byte) string {
	t.Helper()
	var text bytes.Buffer
	must.Do(t, dumpRead(&text, bytes.NewReader(b), int64(len(b))))
	return text.String()
}

// goldenDump returns the expected dump of a converted fixture. TestObjdump compares such dumps with objdump's output.
func goldenDump(t *testing.T, name string, version sframe.Version) string {
	t.Helper()
	suffix := map[sframe.Version]string{sframe.V1: ".v1", sframe.V3: ".v3"}[version]
	text := string(testfile.Read(t, filepath.Join(goldens, name+suffix+".txt")))
	at := strings.Index(text, "  Header :")
	if at < 0 {
		t.Fatalf("no header in %s", text)
	}
	return title + text[at:]
}

// withoutSections removes the section headers of a little-endian file.
func withoutSections(t *testing.T, b []byte) []byte {
	p := elftest.Patch(t.Fatalf, b)
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
	return p.B
}

// sectionOf returns the contents of a section and its header, found with debug/elf.
func sectionOf(t *testing.T, b []byte, name string) ([]byte, *elf.Section) {
	t.Helper()
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	s := f.Section(name)
	if s == nil {
		t.Fatalf("there is no %s", name)
	}
	data := must.Get(s.Data())(t)
	return data, s
}

// TestDump expects the same output for a file with and without section headers, and for the bare section, whose
// addresses are relative to its start.
func TestDump(t *testing.T) {
	for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
		for _, name := range []string{"amd64/prologue", "amd64/drap1", "amd64/plt", "aarch64/pac", "s390x/prologue"} {
			b, _, err := inMemory(testfile.Read(t, filepath.Join(fixtures, name)), convert.Options{Version: version})
			if err != nil {
				t.Fatal(err)
			}
			want := goldenDump(t, name, version)
			if got := dumpOutput(t, b); got != want {
				t.Errorf("%s:\n%s", name, firstDifference(got, want))
			}
			if !strings.HasPrefix(name, "s390x") {
				if got := dumpOutput(t, withoutSections(t, b)); got != want {
					t.Errorf("%s, without section headers:\n%s", name, firstDifference(got, want))
				}
			}
			section, s := sectionOf(t, b, ".sframe")
			got := dumpOutput(t, section)
			if maskAddresses(got) != maskAddresses(want) {
				t.Errorf("%s, the section alone:\n%s", name, firstDifference(maskAddresses(got), maskAddresses(want)))
			}
			const code = 0x438 // start of the code in the fixture "prologue"
			first := fmt.Sprintf("pc = %#x,", code-s.Addr)
			if name == "amd64/prologue" && !strings.Contains(got, first) {
				t.Errorf("%s, the section alone, has no %q:\n%s", name, first, got)
			}
		}
	}
}

// TestDumpObject prints the offsets of functions in their sections, which have no addresses yet.
func TestDumpObject(t *testing.T) {
	for _, opt := range []convert.Options{{}, {PCRel: true}, {Version: sframe.V3}} {
		o := elftest.NewObject()
		o.Code(".text.cold", 32)
		// It overlaps the previous FDE, and has the same row.
		o.FDEIn(elftest.ObjFrame, elftest.ObjRela, 2, uint32(elf.R_X86_64_PC32), 8, 16, 0x0e, 16)
		b, res, err := inMemory(o.Bytes(), opt)
		if err != nil || res.Facts[0].Covered != 64+32 {
			t.Fatalf("%v: %+v, error %v", opt.Version, res, err)
		}
		got := dumpOutput(t, b)
		for _, want := range []string{title, "pc = 0x0, size = 64 bytes", "pc = 0x0, size = 32 bytes"} {
			if strings.Count(got, want) != 1 {
				t.Errorf("%v: %q does not occur exactly once:\n%s", opt.Version, want, got)
			}
		}
		c, err := check(b)
		if err != nil || len(c.Mismatches) > 0 || c.Covered != 96 || c.Described != 96 || c.Sorted || c.FDEs != 2 {
			t.Errorf("%v: checked, it is %+v, error %v", opt.Version, c, err)
		}
	}
}

// limited is a writer that accepts a limited number of bytes.
type limited struct{ left int }

func (w *limited) Write(b []byte) (int, error) {
	if w.left -= len(b); w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

// TestNoSFrame expects errors for files without an .sframe, for malformed sections, and for writers that fail.
func TestNoSFrame(t *testing.T) {
	prog := testfile.Read(t, filepath.Join(fixtures, "amd64/prologue"))
	with := converted(t, "prologue", convert.Options{})
	section, s := sectionOf(t, with, ".sframe")
	damaged := func(change func(p *elftest.Patcher)) []byte {
		p := elftest.Patch(t.Fatalf, with)
		change(p)
		return p.B
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"an empty file", nil, "ELF"},
		{"one byte", []byte{0xe2}, "ELF"},
		{"text", []byte("text"), "ELF"},
		{"a program without .sframe", prog, "no .sframe section and no PT_GNU_SFRAME"},
		{"an object without .sframe", elftest.NewObject().Bytes(), "no .sframe section"},
		{"a truncated section", section[:20], ".sframe+0x0: section of 20 bytes is shorter than a header (28 bytes)"},
		{"no magic number", damaged(func(p *elftest.Patcher) { p.Put16(int(s.Offset), 0) }), "magic"},
		{"outside the file", damaged(func(p *elftest.Patcher) { p.Put64(p.Section(".sframe")+elftest.ShOff, 1<<40) }),
			"0x10000000000"},
		{"outside the file, without sections", withoutSections(t, damaged(func(p *elftest.Patcher) {
			p.Put64(p.Segment(elf.ProgType(sframe.PTGNUSFrame), 0)+elftest.PhOff, 1<<40)
		})), "PT_GNU_SFRAME"},
		{"two sections", damaged(func(p *elftest.Patcher) {
			p.Put32(p.Section(".strtab")+elftest.ShType, sframe.SHTGNUSFrame)
		}), "are both .sframe, but a file may have only one"},
	} {
		var text bytes.Buffer
		if err := dumpRead(&text, bytes.NewReader(tt.b), int64(len(tt.b))); err == nil ||
			!strings.Contains(err.Error(), tt.want) || text.Len() > 0 {
			t.Errorf("%s: %q printed, error %v; want %q", tt.name, text.String(), err, tt.want)
		}
		if tt.name == "a truncated section" {
			continue // only Dump supports it
		}
		if c, err := check(tt.b); err == nil || c != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: checked, it is %+v, error %v; want %q", tt.name, c, err, tt.want)
		}
	}
	all := len(dumpOutput(t, with))
	for n := 0; n < all; n += max(1, all/20) {
		if err := dumpRead(&limited{n}, bytes.NewReader(with), int64(len(with))); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("a writer that takes %d of %d bytes: %v", n, all, err)
		}
	}
	if err := dumpRead(&limited{all}, bytes.NewReader(with), int64(len(with))); err != nil {
		t.Errorf("a writer that takes all: %v", err)
	}
}

// TestCheckMismatches modifies a row of a function, and expects a mismatch from the start of the row to the start of
// the next, within the code described by the golden file.
func TestCheckMismatches(t *testing.T) {
	with := converted(t, "prologue", convert.Options{Version: sframe.V2, Share: convert.ShareOff})
	section, s := sectionOf(t, with, ".sframe")
	const header, fde = 28, 20 // bytes, of V2
	rows := header + 4*fde
	// A row consists of a 1-byte start, an info byte, and a 1-byte offset for the CFA and for each saved register. The
	// first function has a single row of 3 bytes; the rows of the second function follow.
	second := rows + 3
	for _, tt := range []struct {
		name       string
		at         int // offset of the byte in the section
		begin, end uint64
	}{
		{"the only row of the first function", rows + 2, 0x438, 0x440},
		{"the first row of the second", second + 2, 0x440, 0x445},
		{"the second row of the second", second + 3 + 2, 0x445, 0x448},
	} {
		p := elftest.Patch(t.Fatalf, with)
		off := int(s.Offset) + tt.at
		if p.B[off] != section[tt.at] || p.B[off] != 8 && p.B[off] != 16 {
			t.Fatalf("%s: the byte is %d", tt.name, p.B[off])
		}
		p.B[off] += 8
		c, err := check(p.B)
		if err != nil || len(c.Mismatches) != 1 {
			t.Fatalf("%s: %+v, error %v", tt.name, c, err)
		}
		m := c.Mismatches[0]
		if m.Begin != tt.begin || m.End != tt.end || !strings.Contains(m.What, "CFA differs") {
			t.Errorf("%s: %+v; want %#x-%#x", tt.name, m, tt.begin, tt.end)
		}
		if c.Described != 107 || c.Covered != 107-(tt.end-tt.begin) || c.FDEs != 4 || c.FREs != 19 || !c.Sorted ||
			c.Version != sframe.V2 || c.ABI != sframe.AMD64Little {
			t.Errorf("%s: %+v", tt.name, c)
		}
	}

	// Mismatches are listed in address order. If FDESorted is not set, FDEs are searched linearly.
	p := elftest.Patch(t.Fatalf, with)
	p.B[int(s.Offset)+second+3+2] += 8
	p.B[int(s.Offset)+rows+2] += 8
	p.B[int(s.Offset)+3] &^= byte(sframe.FDESorted)
	c, err := check(p.B)
	if err != nil || len(c.Mismatches) != 2 || c.Mismatches[0].Begin != 0x438 || c.Mismatches[1].Begin != 0x445 ||
		c.Sorted {
		t.Errorf("two rows: %+v, error %v", c, err)
	}
}

// TestReadErrors makes each read of a file fail once, in all operations on files in memory. Nothing may be written,
// and the error must be the system's, not one about a malformed file.
func TestReadErrors(t *testing.T) {
	prog, object := testfile.Read(t, filepath.Join(fixtures, "amd64/drap1")), elftest.NewObject()
	with := converted(t, "drap1", convert.Options{})
	objectWith, _ := must.Two(inMemory(object.Bytes(), convert.Options{}))(t)
	section, _ := sectionOf(t, with, ".sframe")
	alone, _ := must.Two(runBytes(prog, detach(convert.Options{})))(t)
	undescribed := elftest.Patch(t.Fatalf, testfile.Read(t, filepath.Join(fixtures, "amd64/plt")))
	for _, name := range []string{".eh_frame", ".eh_frame_hdr"} {
		undescribed.Put32(undescribed.Section(name), 0) // without a name
	}
	undescribed.Put32(undescribed.Segment(elf.PT_GNU_EH_FRAME, 0), uint32(elf.PT_NULL))
	narrow := bytes.Clone(prog)
	narrow[elf.EI_CLASS] = byte(elf.ELFCLASS32)
	into := func(j job) func(io.ReaderAt, int64) (bool, error) {
		return func(r io.ReaderAt, size int64) (bool, error) {
			out, res, err := runReader(r, size, j)
			return res != nil || len(out) > 0, err
		}
	}
	one := func(opt convert.Options) job {
		opt.Workers = 1
		return add(opt)
	}
	checked := func(r io.ReaderAt, size int64) (bool, error) {
		c, err := checkRead(r, size, "")
		return c != nil, err
	}
	dumped := func(r io.ReaderAt, size int64) (bool, error) {
		var out bytes.Buffer
		err := dumpRead(&out, r, size)
		return out.Len() > 0, err
	}
	for _, tt := range []struct {
		name string
		b    []byte
		do   func(io.ReaderAt, int64) (bool, error)
	}{
		{"convert", prog, into(one(convert.Options{}))},
		{"dry run", prog, into(dry(one(convert.Options{})))},
		{"replace", with, into(one(convert.Options{Force: true, Version: sframe.V3}))},
		{"remove", with, into(remove(""))},
		{"object", object.Bytes(), into(one(convert.Options{}))},
		{"replace in an object", objectWith, into(one(convert.Options{Force: true}))},
		{"remove from an object", objectWith, into(remove(""))},
		{"archive", ar(prog, []byte("odd"), object.Bytes()), into(one(convert.Options{}))},
		{"update", with, into(dry(skip(one(convert.Options{Update: true}))))},
		{"update an object", objectWith, into(dry(one(convert.Options{Update: true})))},
		{"detach", prog, into(skip(detach(convert.Options{Workers: 1})))},
		{"attach", prog, into(skip(attach(alone)))},
		{"a detached file", alone, func(r io.ReaderAt, size int64) (bool, error) {
			_, res, err := runBytes(prog, attachRead(r, size))
			return res != nil, err
		}},
		{"skip a script", []byte("#!/bin/sh\n" + strings.Repeat("echo text\n", 20)),
			into(dry(skip(one(convert.Options{}))))},
		{"skip a tar archive", make([]byte, 1024), into(dry(skip(one(convert.Options{}))))},
		{"skip a 32-bit file", narrow, into(dry(skip(one(convert.Options{}))))},
		{"infer", undescribed.B, into(one(convert.Options{Infer: true}))},
		{"contradictions", prog, func(r io.ReaderAt, size int64) (bool, error) {
			f, err := elffile.New(r, size)
			if err != nil {
				return false, err
			}
			table, err := convert.LoadCFI(t.Context(), f, convert.Loading{Infer: true})
			a := &convert.Agreement{}
			if err == nil {
				_, a, err = convert.Contradictions(t.Context(), f, table)
			}
			err = cmp.Or(f.ReadError(), err)
			return err == nil && a.ByRegister > 0, err
		}},
		{"check", with, checked},
		{"check an object", objectWith, checked},
		{"dump", with, dumped},
		{"dump without section headers", withoutSections(t, with), dumped},
		{"dump an object", objectWith, dumped},
		{"dump a section", section, dumped},
	} {
		for failure, want := range map[error]string{syscall.EIO: "input/output error", io.EOF: " early"} {
			saved := bytes.Clone(tt.b)
			n := 0
			for ; ; n++ {
				r := &testfile.FailingReader{ReaderAt: bytes.NewReader(tt.b), Err: failure}
				r.Left.Store(int64(n))
				done, err := tt.do(r, int64(len(tt.b)))
				if r.Left.Load() >= 0 { // no more reads
					if err != nil || !done {
						t.Errorf("%s: all of %d reads succeed, and the error is %v", tt.name, n, err)
					}
					break
				}
				if err == nil || !strings.Contains(err.Error(), want) || done {
					t.Errorf("%s: read %d fails with %v, and the error is %v; there is a result: %t", tt.name, n,
						failure, err, done)
				}
			}
			if n < 2 || !bytes.Equal(tt.b, saved) {
				t.Errorf("%s: %d reads, or the file was changed", tt.name, n)
			}
		}
	}
}

// TestStarting expects Starting to be called with the size of the file, and of each member of an archive.
func TestStarting(t *testing.T) {
	prog, object := testfile.Read(t, filepath.Join(fixtures, "amd64/drap1")), elftest.NewObject().Bytes()
	library := ar(prog, []byte("odd"), object)
	work := func(b []byte) convert.Work {
		cfi, _ := sectionOf(t, b, ".eh_frame")
		return convert.Work{Size: uint64(len(b)), CFI: uint64(len(cfi))}
	}
	for _, tt := range []struct {
		b        []byte
		wrap     func(job) job
		starting []convert.Work
	}{
		{prog, skip, []convert.Work{work(prog)}},
		{prog, dry, []convert.Work{work(prog)}},
		{library, skip, []convert.Work{{Size: uint64(len(library)), Archive: true}, work(prog), work(object)}},
	} {
		var starting []convert.Work
		_, res, err := runBytes(tt.b, tt.wrap(func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
			run.Starting = func(w convert.Work) { starting = append(starting, w) }
			return convert.Add(ctx, run, convert.Options{})
		}))
		if err != nil || !slices.Equal(starting, tt.starting) {
			t.Errorf("told of %+v, error %v; want %+v", starting, err, tt.starting)
		}
		if res.Archive && (len(res.Facts) != 2 || res.Facts[0].Member != "0.o" || res.Facts[1].Member != "2.o" ||
			len(res.Kept) != 1 || res.Kept[0].Member != "1.o") {
			t.Errorf("members: %+v", res)
		}
	}
}

// TestKept expects objects without CFI to be unchanged, and linked files without CFI to be rejected.
func TestKept(t *testing.T) {
	without := elftest.NewObject()
	without.Sections[elftest.ObjFrame].Data = nil
	without.Sections[elftest.ObjRela].Data = nil
	object := without.Bytes()
	for i, j := range []job{add(convert.Options{}), remove(""), dry(add(convert.Options{})), dry(remove(""))} {
		got, res, err := runBytes(object, j)
		if err != nil || len(res.Kept) != 1 || res.Kept[0].Member != "" || res.Kept[0].Why.Error() == "" ||
			len(res.Facts) > 0 {
			t.Errorf("%d: %+v, error %v", i, res, err)
		}
		if i < 2 && !bytes.Equal(got, object) || i >= 2 && len(got) > 0 {
			t.Errorf("%d: %d bytes are written, of %d", i, len(got), len(object))
		}
	}
	var frames elftest.Frames
	frames.FDE(frames.CIEOf("B?", 1, nil, elftest.Sound), 0x438, 8)
	unusable := elftest.Patch(t.Fatalf, testfile.Read(t, filepath.Join(fixtures, "amd64/prologue")))
	unusable.Contents(".eh_frame", append(frames.B, 0, 0, 0, 0))
	if got, res, err := inMemory(unusable.B, convert.Options{}); err == nil ||
		!strings.Contains(err.Error(), "no usable CFI: ") || res != nil || len(got) > 0 {
		t.Errorf("a program with unusable CFI: %+v, error %v", res, err)
	}
}

// inexpressible returns an object whose only function has a CFA that no row can express.
func inexpressible(sections func(*elftest.Object)) []byte {
	o := elftest.NewObject()
	o.Sections[elftest.ObjFrame].Data, o.Sections[elftest.ObjRela].Data = nil, nil
	body := append([]byte{0, 0, 0, 0, 1}, "zR\x00\x01\x78\x10\x01\x1b"...)
	o.Record(elftest.ObjFrame, append(body, 0x0f, 3, 0x77, 0, 0x1f, 0x90, 1)) // CFA = -rsp
	at := len(o.Sections[elftest.ObjFrame].Data)
	o.Record(elftest.ObjFrame, append([]byte{byte(at + 4), 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0}, 0))
	o.Rela(elftest.ObjRela, uint64(at+8), 1, uint32(elf.R_X86_64_PC32), 0)
	sections(o)
	return o.Bytes()
}

// TestObjectWithoutRows expects no .sframe in an object without rows, because linkers reject an empty section. If
// an existing .sframe may be replaced, it is removed.
func TestObjectWithoutRows(t *testing.T) {
	b := inexpressible(func(*elftest.Object) {})
	got, res, err := inMemory(b, convert.Options{})
	if err != nil || !bytes.Equal(got, b) || len(res.Facts) != 1 || res.Facts[0].Described != 64 ||
		res.Facts[0].Covered != 0 {
		t.Errorf("%d of %d bytes, %+v, error %v", len(got), len(b), res, err)
	}
	old := inexpressible(func(o *elftest.Object) {
		o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, []byte{0xe2, 0xde, 2, 0})
	})
	if got, res, err := inMemory(old, convert.Options{}); !errors.Is(err, elfwrite.ErrExists) || res != nil ||
		len(got) > 0 {
		t.Errorf("with an .sframe: %+v, error %v", res, err)
	}
	two := elftest.Patch(t.Fatalf, old)
	two.Put32(two.Section(".strtab")+elftest.ShType, sframe.SHTGNUSFrame)
	if _, res, err := inMemory(two.B, convert.Options{Force: true}); err == nil ||
		!strings.Contains(err.Error(), "are both .sframe") {
		t.Errorf("with two: %+v, error %v", res, err)
	}
	got, _ = must.Two(inMemory(old, convert.Options{Force: true}))(t)
	f, err := elf.NewFile(bytes.NewReader(got))
	if err != nil || f.Section(".sframe") != nil || f.Section(".text") == nil {
		t.Errorf("its .sframe is still present, error %v", err)
	}
	v1 := add(convert.Options{Version: sframe.V1})
	for _, j := range []job{v1, dry(v1)} {
		if got, res, err := runBytes(elftest.NewObject().Bytes(), j); err == nil || res != nil || len(got) > 0 ||
			err.Error() != "relocatable objects can be converted to format 2 or 3 only" {
			t.Errorf("to V1: %+v, error %v", res, err)
		}
	}
}

// TestDryRun expects a dry run to return the same result as a normal run, and NoVerify to skip the check.
func TestDryRun(t *testing.T) {
	for name, b := range map[string][]byte{
		"program": testfile.Read(t, filepath.Join(fixtures, "amd64/drap1")), "object": elftest.NewObject().Bytes(),
		"object without rows": inexpressible(func(*elftest.Object) {}),
	} {
		for _, opt := range []convert.Options{{}, {NoVerify: true}} {
			out, want, err := inMemory(b, opt)
			if err != nil || len(out) < len(b) {
				t.Fatalf("%s: %d bytes, error %v", name, len(out), err)
			}
			out, got, err := runBytes(b, dry(add(opt)))
			if err != nil || len(out) > 0 {
				t.Fatalf("%s: %d bytes, error %v", name, len(out), err)
			}
			g, w := &got.Facts[0], &want.Facts[0]
			if g.Covered != w.Covered || g.Described != w.Described || g.FDEs != w.FDEs || g.FREs != w.FREs ||
				g.Size != w.Size || !maps.Equal(g.Sums, w.Sums) {
				t.Errorf("%s: %+v; want %+v", name, g, w)
			}
			if g.Verified != (!opt.NoVerify && g.FDEs > 0) {
				t.Errorf("%s: verified is %t", name, g.Verified)
			}
		}
	}
}

// TestShare parses valid and invalid names of Share values.
func TestShare(t *testing.T) {
	for _, want := range []convert.Share{convert.ShareAuto, convert.ShareOn, convert.ShareOff} {
		if got, err := convert.ParseShare(want.String()); err != nil || got != want {
			t.Errorf("%v is %v, error %v", want, got, err)
		}
	}
	const want = `"On" is not known; use auto, on or off`
	if _, err := convert.ParseShare("On"); err == nil || err.Error() != want {
		t.Errorf("error is %v, want %s", err, want)
	}
	// By default, FRE lists are shared only in little-endian output. Adjacent functions share FDEs in both byte orders.
	for name, shared := range map[string]bool{
		"aarch64/fponly": true, "aarch64_be/fponly": false, "s390x/offsets": false,
	} {
		b := testfile.Read(t, filepath.Join(fixtures, name))
		size := make(map[convert.Share]uint64)
		for _, share := range []convert.Share{convert.ShareOn, convert.ShareAuto, convert.ShareOff} {
			_, res := must.Two(inMemory(b, convert.Options{Version: sframe.V2, Share: share}))(t)
			size[share] = res.Facts[0].Size
		}
		if (size[convert.ShareAuto] == size[convert.ShareOn]) != shared ||
			size[convert.ShareAuto] >= size[convert.ShareOff] {
			t.Errorf("%s: bytes by sharing: %v; want lists to be shared by default: %t", name, size, shared)
		}
	}
}

// TestMisplaced updates a correct section that is not where readers look for it.
func TestMisplaced(t *testing.T) {
	with := converted(t, "prologue", convert.Options{})
	p := elftest.Patch(t.Fatalf, with)
	p.Put32(p.Segment(elf.ProgType(sframe.PTGNUSFrame), 0), uint32(elf.PT_NULL))
	if got, res, err := inMemory(p.B, convert.Options{Update: true}); err != nil || res.Stays != "" ||
		!bytes.Equal(got, with) {
		t.Errorf("without PT_GNU_SFRAME: %+v, error %v", res, err)
	}
	for _, tt := range []struct {
		version sframe.Version
		wrong   uint32 // section type
	}{{sframe.V2, sframe.SHTGNUSFrame}, {sframe.V3, uint32(elf.SHT_PROGBITS)}} {
		object, _ := must.Two(inMemory(elftest.NewObject().Bytes(), convert.Options{Version: tt.version}))(t)
		p = elftest.Patch(t.Fatalf, object)
		p.Put32(p.Section(".sframe")+elftest.ShType, tt.wrong)
		if got, res, err := inMemory(p.B, convert.Options{Version: tt.version, Update: true}); err != nil ||
			res.Stays != "" || !bytes.Equal(got, object) {
			t.Errorf("%v with the section type of other linkers: %+v, error %v", tt.version, res, err)
		}
	}
}

// TestBytesAfterTable checks sections that are larger than their table. Linkers that do not merge .sframe concatenate
// the sections of their inputs. Linux and libsframe ignore what follows the first table.
func TestBytesAfterTable(t *testing.T) {
	b := converted(t, "plt", convert.Options{})
	h := elftest.Patch(t.Fatalf, b)
	header := h.Section(".sframe")
	off, size := h.U64(header+elftest.ShOff), h.U64(header+elftest.ShSize)
	table := b[off : off+size]
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"zeros", append(bytes.Clone(table), make([]byte, 7)...), ""},
		{"another table", append(elftest.Pad(bytes.Clone(table), 8), table...),
			fmt.Sprintf(".sframe+%#x: readers ignore the bytes ", size)},
		{"a byte", append(bytes.Clone(table), 1), fmt.Sprintf(".sframe+%#x: readers ignore the bytes ", size)},
	} {
		p := elftest.Patch(t.Fatalf, bytes.Clone(b))
		p.Contents(".sframe", tt.data)
		c, err := check(p.B)
		if tt.want == "" && (err != nil || c.Covered != 171) {
			t.Errorf("%s: %+v, %v", tt.name, c, err)
		}
		if tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		bare, err := convert.ReadBare(bytes.NewReader(tt.data), int64(len(tt.data)))
		if (err == nil) != (tt.want == "") {
			t.Errorf("%s alone: %v, %v", tt.name, bare, err)
		}
	}
}
