package sframediff_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// function returns assembly for a function with CFI. If name is empty, the function has no symbol.
func function(name string, lines ...string) string {
	text := ".cfi_startproc\n" + strings.Join(lines, "\n") + "\nnop\n.cfi_endproc\n"
	if name != "" {
		text = fmt.Sprintf(".type \"%[1]s\", @function\n\"%[1]s\":\n%[2]s.size \"%[1]s\", . - \"%[1]s\"\n", name, text)
	}
	return text
}

// frame returns the directive that sets the CFA offset.
func frame(size int) string { return fmt.Sprintf(".cfi_def_cfa_offset %d", size) }

// changesOf returns the function, kind and offset of each change, and the CFA rules of both rows.
func changesOf(d *report.Diff) []string {
	var all []string
	for _, c := range d.Changes {
		old, _, _ := strings.Cut(c.OldRow, ",")
		new, _, _ := strings.Cut(c.NewRow, ",")
		all = append(all, strings.TrimRight(fmt.Sprintf("%s %s +%d %s > %s", c.Function, c.Kind, c.Offset, old, new),
			" >"))
	}
	return all
}

// TestDiffNames compares programs with different code, whose functions are matched by name. The differences are known.
func TestDiffNames(t *testing.T) {
	old, _ := run(t, link(t, function("same", "nop", frame(16))+
		function("gone", "nop", frame(16))+
		function("moved", "nop", frame(16))+
		function("grown", "nop", frame(16))+
		function("larger", "nop", frame(16))+
		function("changed.constprop.0", "nop", frame(24))+
		function("twin", "nop", frame(32))+function("twin2", "nop")), convert.Options{})
	new, _ := run(t, link(t, function("fresh", "nop", frame(64))+
		function("same", "nop", frame(16))+
		function("moved", "nop", "nop", frame(16))+
		function("grown", "nop", frame(16), "nop")+
		function("larger", "nop", frame(160))+
		function("changed.isra.7", "nop", frame(40))+
		function("twin2", "nop")+function("twin", "nop", frame(32))), convert.Options{})
	d := diff(t, old, new)
	want := []string{
		"fresh only_new +0",
		"moved offsets +1 CFA sp+16 > CFA sp+8",
		"grown offsets +2 CFA sp+16 > CFA sp+16",
		"larger rows +1 CFA sp+16 > CFA sp+160",
		"changed.isra.7 rows +1 CFA sp+24 > CFA sp+40",
		"gone only_old +0",
	}
	if got := changesOf(d); !slices.Equal(got, want) {
		t.Errorf("there is\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := (report.DiffFunctions{Same: 3, Offsets: 2, Rows: 2, OnlyOld: 1, OnlyNew: 1}); d.Functions != n || d.Same ||
		d.SameCode || len(d.Gaps) > 0 {
		t.Errorf("%+v; want %+v", d, n)
	}
	if same := diff(t, old, old); !same.Same || !same.SameCode || same.Functions != (report.DiffFunctions{Same: 8}) {
		t.Errorf("with itself: %+v", same)
	}
}

// TestDiffNameless compares functions without symbols, which are named after their sections. Functions with the same
// rows are matched first, and the remaining functions in order if both files have the same number of them.
func TestDiffNameless(t *testing.T) {
	program := func(sizes ...int) string {
		t.Helper()
		source := "nop\n.type _start, @function\n.size _start, 1\n"
		for _, n := range sizes {
			source += function("", "nop", frame(n))
		}
		out, _ := run(t, link(t, source+function("", strings.Repeat("nop\n", len(sizes)+sizes[0]))), convert.Options{})
		return out
	}
	for _, tt := range []struct {
		old, new []int
		want     report.DiffFunctions
	}{
		{[]int{16, 32, 48}, []int{48, 16, 40}, report.DiffFunctions{Same: 2, Offsets: 1, Rows: 1}},
		{[]int{16, 32, 48}, []int{48, 16}, report.DiffFunctions{Same: 2, OnlyOld: 2, OnlyNew: 1}},
	} {
		d := diff(t, program(tt.old...), program(tt.new...))
		// The last function differs only in size. Although no other function has a single row, this function is matched
		// like the others.
		if n := d.Functions; n.Same != tt.want.Same || n.OnlyOld != tt.want.OnlyOld || n.OnlyNew != tt.want.OnlyNew ||
			n.Rows+n.Offsets != tt.want.Rows+tt.want.Offsets {
			t.Errorf("%v and %v: %+v; want %+v", tt.old, tt.new, n, tt.want)
		}
	}
}

// TestDiffFormats compares a file in V2 and V3: the code is the same, V3 has rows that V2 cannot express, and the
// totals equal those of the reports on each file. A file without section headers equals itself.
func TestDiffFormats(t *testing.T) {
	for _, name := range []string{"amd64/undefra", "amd64/drap1", "amd64/plt", "amd64/plt-ibt", "amd64/signal",
		"amd64/rareg.so", "amd64/static", "amd64/pltlib.so", "aarch64/pac", "s390x/prologue"} {
		in := filepath.Join(fixtures, name)
		two, a := run(t, in, convert.Options{Version: sframe.V2})
		three, b := run(t, in, convert.Options{Version: sframe.V3})
		sums := make(map[string][2]uint64)
		for i, c := range []*report.Coverage{a, b} {
			for _, g := range c.Reasons {
				s := sums[g.Name]
				s[i] = g.Bytes
				sums[g.Name] = s
			}
		}
		bare := filepath.Join(t.TempDir(), "bare")
		if !strings.HasPrefix(name, "s390x") {
			testfile.Write(t, bare, withoutSections(t, testfile.Read(t, three)))
			if d := diff(t, bare, bare); !d.Same || d.Functions.Same == 0 {
				t.Errorf("%s without section headers differs from itself: %+v", name, d)
			}
		}
		d := diff(t, two, three)
		if d.Old.Format != 2 || d.New.Format != 3 || !d.SameCode || d.Same || d.Old.Covered != a.Covered ||
			d.New.Covered != b.Covered || d.Old.Described != a.Described {
			t.Errorf("%s: %+v and %+v; want %d and %d bytes covered", name, d.Old, d.New, a.Covered, b.Covered)
		}
		for _, g := range d.Gaps {
			if s := sums[g.Reason]; g.Old != s[0] || g.New != s[1] || g.Old+g.Gained-g.Lost != g.New {
				t.Errorf("%s: %+v; want %d and %d bytes", name, g, s[0], s[1])
			}
			delete(sums, g.Reason)
		}
		if len(sums) > 0 {
			t.Errorf("%s: %v are not reported as gaps", name, slices.Collect(maps.Keys(sums)))
		}
		if more := b.Covered-b.Outermost > a.Covered-a.Outermost; more != (d.Functions.Rows > 0) ||
			d.Functions.OnlyOld+d.Functions.OnlyNew+d.Functions.Offsets > 0 {
			t.Errorf("%s: %+v", name, d.Functions)
		}
		if !strings.HasPrefix(name, "s390x") { // not supported by V1
			one, _ := run(t, in, convert.Options{Version: sframe.V1})
			if d := diff(t, one, two); d.Old.Format != 1 || !d.SameCode || d.Same || d.Old.Described != a.Described {
				t.Errorf("%s in V1: %+v", name, d.Old)
			} else if len(d.Changes) > 0 {
				t.Errorf("%s in V1: %+v", name, d.Changes)
			}
		}
		back := diff(t, three, two)
		if len(back.Changes) != len(d.Changes) || back.Functions != d.Functions {
			t.Errorf("%s: in reverse order: %+v; want %+v", name, back.Functions, d.Functions)
		}
		for i, c := range back.Changes {
			if o := d.Changes[i]; c.OldRow != o.NewRow || c.NewRow != o.OldRow || c.Offset != o.Offset {
				t.Errorf("%s: in reverse order: %+v; want %+v", name, c, o)
			}
		}
	}
}

// TestDiffWords checks the descriptions of special rows.
func TestDiffWords(t *testing.T) {
	for name, want := range map[string]string{"undefra": "no caller", "signal": ", signal frame", "rareg.so": "RA r"} {
		in := filepath.Join(fixtures, "amd64", name)
		two, _ := run(t, in, convert.Options{Version: sframe.V2})
		three, _ := run(t, in, convert.Options{Version: sframe.V3})
		d := diff(t, two, three)
		if !slices.ContainsFunc(d.Changes, func(c report.Change) bool {
			return strings.Contains(c.NewRow, want) && !strings.Contains(c.OldRow, want)
		}) {
			t.Errorf("%s: no row is said to be %q: %+v", name, want, d.Changes)
		}
	}
}

// TestDiffObjects compares objects, whose offsets are relative to sections. V3 covers more of the objects' code than
// V2.
func TestDiffObjects(t *testing.T) {
	in := peer.Assembled(t, ".section .text.one, \"ax\"\n"+function("one", "nop", frame(16))+
		".section .text.two, \"ax\"\nnop\n"+function("two", "nop", ".cfi_undefined rip", "nop"))
	two, _ := run(t, in, convert.Options{Version: sframe.V2})
	three, _ := run(t, in, convert.Options{Version: sframe.V3})
	d := diff(t, two, three)
	if len(d.Changes) != 1 || !d.SameCode || d.Functions != (report.DiffFunctions{Same: 1, Rows: 1}) {
		t.Fatalf("%+v", d)
	}
	c := d.Changes[0]
	if c.Function != "two" || c.Offset != 1 || c.OldRow != "" || c.NewRow != "no caller" ||
		*c.Old != (report.DiffFunction{Section: ".text.two", Begin: 1, Size: 3, Rows: 1, Covered: 1}) ||
		*c.New != (report.DiffFunction{Section: ".text.two", Begin: 1, Size: 3, Rows: 2, Covered: 3}) {
		t.Errorf("%+v, %+v, %+v", c, c.Old, c.New)
	}
	if len(d.Gaps) != 1 || d.Gaps[0].Old != 2 || d.Gaps[0].New != 0 || d.Gaps[0].Lost != 2 {
		t.Errorf("%+v", d.Gaps)
	}
}

// TestDiffNotWritten compares a section with a copy that lacks the rows of a function, although SFrame can express
// them.
func TestDiffNotWritten(t *testing.T) {
	full, _ := run(t, filepath.Join(fixtures, "amd64/prologue"),
		convert.Options{Version: sframe.V2, Share: convert.ShareOff})
	b := testfile.Read(t, full)
	sec := sectionOf(t, b, ".sframe")
	p := elftest.Patch(t.Fatalf, b)
	// The last FDE in V2: its size is at offset 4, its number of rows at offset 12.
	last := int64(sec.Offset) + 28 + 20*int64(b[sec.Offset+8]-1)
	size := uint64(b[last+4]) | uint64(b[last+5])<<8
	p.Put32(int(last)+12, 0)
	p.Put32(int(sec.Offset)+12, uint32(b[sec.Offset+12])-uint32(b[last+12])) // the header's row count
	less := filepath.Join(t.TempDir(), "less")
	testfile.Write(t, less, p.B)
	for _, files := range [][2]string{{full, less}, {less, full}} {
		d := diff(t, files[0], files[1])
		if len(d.Gaps) != 1 || d.Gaps[0].Reason != "not-written" || d.Gaps[0].Old+d.Gaps[0].New != size ||
			d.Functions.Rows != 1 {
			t.Errorf("%+v, %+v; want %d bytes less", d.Gaps, d.Functions, size)
		}
	}
}

// TestDiffErrors expects errors for files that cannot be compared.
func TestDiffErrors(t *testing.T) {
	dir := t.TempDir()
	good, _ := run(t, filepath.Join(fixtures, "amd64/prologue"),
		convert.Options{Version: sframe.V2, Share: convert.ShareOff})
	sec := sectionOf(t, testfile.Read(t, good), ".sframe")
	damaged := func(name string, at int, bytes ...byte) string {
		t.Helper()
		b := testfile.Read(t, good)
		copy(b[int(sec.Offset)+at:], bytes)
		path := filepath.Join(dir, name)
		testfile.Write(t, path, b)
		return path
	}
	text := filepath.Join(dir, "text")
	testfile.Write(t, text, "This is no ELF file.")
	// Bits 5 and 6 of a row's info, which follows its start, encode the size of its words; 3 is undefined.
	wrongRow := damaged("row", 28+20*int(testfile.Read(t, good)[sec.Offset+8])+1, 0x63)
	start := testfile.Read(t, good)[sec.Offset+28 : sec.Offset+32]
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file or directory",
		text:                          "",
		filepath.Join(fixtures, "amd64/prologue"):  "no .sframe section",
		damaged("magic", 0, 0, 0):                  "",
		damaged("overlap", 28+20, start...):        "overlap",
		damaged("machine", 4, 2):                   "ABI ",
		damaged("rows", 28+8, 0xff, 0xff, 0xff, 0): "",
		wrongRow: "undefined data word size 3",
	} {
		if side, err := load(path, files.Sources{}); side != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
	if _, err := load(good, files.Sources{DebugFile: filepath.Join(dir, "missing")}); err == nil ||
		!strings.Contains(err.Error(), "missing: no such file") {
		t.Errorf("a debug file that is missing: %v", err)
	}
	if _, err := load(good, files.Sources{CFI: cfi.DebugFrame}); err == nil {
		t.Error("without .debug_frame there is no error")
	}
}

// TestDiffManyChanges compares programs with more changes than are listed.
func TestDiffManyChanges(t *testing.T) {
	long.Test(t)
	const many = 70000
	program := func(size int) string {
		t.Helper()
		out, _ := run(t, link(t, strings.Repeat(function("", "nop", frame(size)), many)),
			convert.Options{Share: convert.ShareOff})
		return out
	}
	d := diff(t, program(16), program(24))
	if n := len(d.Changes); d.Functions.Rows != many || d.Omitted == 0 || n+d.Omitted != many || !d.SameCode {
		t.Errorf("%+v, %d changes and %d more; want %d", d.Functions, n, d.Omitted, many)
	}
}

// TestDiffPadding compares programs with and without rows for the padding after a function.
func TestDiffPadding(t *testing.T) {
	in := link(t, ".type one, @function\none: .cfi_startproc\ncall two\n.cfi_endproc\n.size one, . - one\n.balign "+
		"32, 0x90\n"+function("two", "nop", frame(16)))
	with, _ := run(t, in, convert.Options{})
	without, _ := run(t, in, convert.Options{NoPadding: true})
	d := diff(t, without, with)
	if d.Old.Padding != 0 || d.New.Padding == 0 || d.Same || d.Functions != (report.DiffFunctions{Same: 2}) {
		t.Errorf("%+v and %+v, %+v", d.Old, d.New, d.Functions)
	}
}
