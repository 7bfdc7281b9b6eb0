package convert_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/plain"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

var update = flag.Bool("update", false, "rewrite the golden files; TestObjdump checks them")

const (
	fixtures = "../testdata/bin"
	goldens  = "../testdata/golden"
)

func fixtureNames(t *testing.T, abi string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(fixtures, abi, "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	var names []string
	for _, f := range paths {
		names = append(names, filepath.Base(f))
	}
	return names
}

// tryRun converts a file to a temporary file.
func tryRun(t *testing.T, path string, opt convert.Options) (string, error) {
	return tryJob(t, path, add(opt))
}

// tryJob runs a job on a file, with output to a temporary file.
func tryJob(t *testing.T, path string, j job) (string, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	info := must.Get(os.Stat(path))(t)
	b, _, err := runBytes(testfile.Read(t, path), j)
	if err == nil {
		err = os.WriteFile(out, b, info.Mode().Perm())
	}
	return out, err
}

// A conversion holds the facts about a file, and its gaps.
type conversion struct {
	convert.Facts
	Gaps []gap
}

// A gap is a translate.Gap in text form.
type gap struct {
	Begin, End           uint64
	Reason, Column, Rule string
}

// note wraps a job so that the facts and gaps are recorded.
func (c *conversion) note(j job) job {
	report := func(d *convert.Details) error {
		c.Facts = *d.Facts
		for i := range d.Translation.Gaps {
			g := &d.Translation.Gaps[i]
			rule := g.RuleText(d.Facts.ABI)
			if g.Err != nil {
				rule = g.Err.Error()
			}
			c.Gaps = append(c.Gaps, gap{g.Begin, g.End, g.Reason.Name(), g.Column.String(), rule})
		}
		return nil
	}
	return func(ctx context.Context, run *convert.Run) (*convert.Result, error) {
		run.Report = report
		return j(ctx, run)
	}
}

// run converts a file, by default to V2, and expects success.
func run(t *testing.T, path string, opt convert.Options) (string, *conversion) {
	t.Helper()
	if opt.Version == 0 {
		opt.Version = sframe.V2
	}
	return runJob(t, path, add(opt))
}

// runJob runs a job on a file, and expects success.
func runJob(t *testing.T, path string, j job) (string, *conversion) {
	t.Helper()
	c := &conversion{}
	out, err := tryJob(t, path, c.note(j))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out, c
}

func open(t *testing.T, path string) *elffile.File {
	t.Helper()
	return elftest.Parse(t, testfile.Read(t, path))
}

// dump prints the .sframe of a file.
func dump(t *testing.T, path string) string {
	t.Helper()
	d := must.Get(convert.ReadSection(open(t, path)))(t)
	var out strings.Builder
	must.Do(t, d.Dump(&out, nil))
	return out.String()
}

// golden returns the expected result of a conversion: all gaps, and the section.
func golden(t *testing.T, out string, c *conversion) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "described %d covered %d\n", c.Described, c.Rows())
	for _, g := range c.Gaps {
		fmt.Fprintf(&b, "gap %#x-%#x: %s %s %s\n", g.Begin, g.End, g.Reason, g.Column, g.Rule)
	}
	return b.String() + dump(t, out)
}

// TestGolden converts the fixtures of each ABI to each version, with and without errata.
func TestGolden(t *testing.T) {
	v1, v2, v3 := sframe.V1, sframe.V2, sframe.V3
	for _, v := range []struct {
		abi, suffix string
		opt         convert.Options
	}{
		{"amd64", ".v1", convert.Options{Version: v1}},
		{"amd64", "", convert.Options{Version: v2}},
		{"amd64", ".errata", convert.Options{Version: v2, PCRel: true, Outermost: true}},
		{"amd64", ".v3", convert.Options{Version: v3}},
		{"aarch64", "", convert.Options{Version: v2}},
		{"aarch64", ".v3", convert.Options{Version: v3}},
		{"s390x", "", convert.Options{Version: v2}},
		{"s390x", ".v3", convert.Options{Version: v3}},
	} {
		for _, name := range fixtureNames(t, v.abi) {
			in := filepath.Join(fixtures, v.abi, name)
			out, c := run(t, in, v.opt)
			if !c.Verified {
				t.Errorf("%s: not verified", in)
			}
			got := golden(t, out, c)
			path := filepath.Join(goldens, v.abi, name+v.suffix+".txt")
			_, err := os.Stat(path)
			var want string
			if v.opt.PCRel && err != nil { // every function has a caller
				want = withErrata(t, string(testfile.Read(t, filepath.Join(goldens, v.abi, name+".txt"))))
			} else {
				if *update {
					testfile.Write(t, path, got)
				}
				want = string(testfile.Read(t, path))
			}
			if got != want {
				t.Errorf("%s differs from %s:\n%s", in, path, firstDifference(got, want))
			}
			if err := image.Compare(open(t, in), open(t, out)); err != nil {
				t.Errorf("%s: %v", in, err)
			}
		}
	}
}

// withErrata returns the expected result with both errata, from the result without them, for a file in which every
// function has a caller. Erratum 1 only sets a flag ("SFrame Flags", 0x4): start addresses are then encoded relative to
// their own fields, but the dump is the same.
func withErrata(t *testing.T, plain string) string {
	t.Helper()
	const sorted = "    Flags: SFRAME_F_FDE_SORTED"
	before, after, ok := strings.Cut(plain, sorted+"\n")
	if !ok {
		t.Fatalf("no line %q in\n%s", sorted, plain)
	}
	return before + sorted + ",\n           SFRAME_F_FDE_FUNC_START_PCREL\n" + after
}

// converted returns the result of converting a fixture.
func converted(t *testing.T, name string, opt convert.Options) []byte {
	t.Helper()
	b, _ := must.Two(inMemory(testfile.Read(t, filepath.Join(fixtures, "amd64", name)), opt))(t)
	return b
}

// TestByteOrder expects the same result for both byte orders of aarch64, whose fixtures have the same sources.
func TestByteOrder(t *testing.T) {
	for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
		for _, name := range fixtureNames(t, "aarch64") {
			opt := convert.Options{Version: version, Share: convert.ShareOn} // off by default for big-endian output
			x, cx := run(t, filepath.Join(fixtures, "aarch64", name), opt)
			y, cy := run(t, filepath.Join(fixtures, "aarch64_be", name), opt)
			if little, big := maskAddresses(golden(t, x, cx)), maskAddresses(golden(t, y, cy)); little != big {
				t.Errorf("%s, V%d, differs by byte order:\n%s", name, version, firstDifference(big, little))
			}
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// TestRebuilt assembles and links the fixtures again, and expects the same result as for the committed files, except
// for addresses.
func TestRebuilt(t *testing.T) {
	peer.Binutils(t, "2.40") // other versions use different layouts
	dir := t.TempDir()
	must.Run(t, exec.Command("../scripts/fixtures", dir))
	for _, name := range fixtureNames(t, "amd64") {
		x, cx := run(t, filepath.Join(fixtures, "amd64", name), convert.Options{})
		y, cy := run(t, filepath.Join(dir, name), convert.Options{})
		want, got := maskAddresses(golden(t, x, cx)), maskAddresses(golden(t, y, cy))
		if got != want {
			t.Errorf("%s, rebuilt, has a different result:\n%s", name, firstDifference(got, want))
		}
	}
}

var hex = regexp.MustCompile(`0x[0-9a-f]+-0x[0-9a-f]+|pc = 0x[0-9a-f]+|[0-9a-f]{16}`)

// maskAddresses replaces each address with ADDR.
func maskAddresses(s string) string { return hex.ReplaceAllString(s, "ADDR") }

// TestObjdump compares our dump with GNU objdump's, for each version and ABI that a release of binutils reads: 2.40
// reads V1, 2.44 V2 without errata, and 2.47 V2 with errata and V3. Big-endian sections are read on a little-endian
// machine.
func TestObjdump(t *testing.T) {
	v1, v2, v3 := sframe.V1, sframe.V2, sframe.V3
	for _, v := range []struct {
		suite, prefix, abi string
		opts               []convert.Options // formats to convert to; sections other than V1 are also detached
	}{
		{"", "", "amd64", []convert.Options{{Version: v1}}},
		{"trixie", "", "amd64", []convert.Options{{Version: v2}}},
		{"sid", "", "amd64", []convert.Options{
			{Version: v2}, {Version: v2, PCRel: true}, {Version: v2, PCRel: true, Outermost: true}, {Version: v3},
		}},
		{"trixie", "aarch64-linux-gnu-", "aarch64", []convert.Options{{Version: v2}}},
		{"sid", "aarch64-linux-gnu-", "aarch64",
			[]convert.Options{{Version: v2}, {Version: v2, PCRel: true, Outermost: true}, {Version: v3}}},
		{"sid", "aarch64-linux-gnu-", "aarch64_be", []convert.Options{{Version: v2}, {Version: v3}}},
		{"sid", "s390x-linux-gnu-", "s390x",
			[]convert.Options{{Version: v2}, {Version: v2, PCRel: true, Outermost: true}, {Version: v3}}},
	} {
		t.Run(v.suite+" "+v.abi, func(t *testing.T) {
			if v.suite == "" {
				peer.Binutils(t, "2.40")
			}
			objdump, readelf := peer.Tool(t, v.suite, v.prefix+"objdump"), peer.Tool(t, v.suite, v.prefix+"readelf")
			compared := 0
			for _, path := range subjects(t, v.abi) {
				for _, opt := range v.opts {
					for _, alone := range []bool{false, true} {
						if alone && opt.Version == v1 {
							continue
						}
						j, all := add(opt), "--file-header"
						if alone {
							j, all = detach(opt), "--all"
						}
						out, err := tryJob(t, path, j)
						if err != nil {
							continue // such as s390x in V1; scripts/lab corpus lists all failures
						}
						compared++
						b, err := objdump("--sframe=.sframe", out).CombinedOutput()
						if err != nil {
							t.Fatalf("objdump %s: %v\n%s", path, err, b)
						}
						_, theirs, ok := strings.Cut(string(b), "Contents of the SFrame section .sframe:\n")
						mine := dump(t, out)
						if opt.Version == v1 {
							mine = asV1(mine)
						}
						if !ok || strings.TrimRight(theirs, "\n") != strings.TrimRight(mine, "\n") {
							t.Errorf("%s, %+v: objdump's dump differs:\n%s", path, opt,
								firstDifference(mine, theirs))
						}
						b, err = readelf("--wide", all, "--sframe=.sframe", out).CombinedOutput()
						if err != nil || bytes.Contains(bytes.ToLower(b), []byte("warning")) {
							t.Errorf("readelf %s: %v\n%.1000s", path, err, b)
						}
					}
				}
			}
			if compared < 5 {
				t.Errorf("%d files were compared; want at least 5", compared)
			}
		})
	}
}

// asV1 converts a dump to the format of binutils 2.40, which does not print fixed offsets.
func asV1(s string) string {
	s = strings.Replace(s, "    CFA fixed RA offset: -8\n", "", 1)
	return regexp.MustCompile(`(?m) f            $`).ReplaceAllString(s, " u            ")
}

// subjects returns the fixtures of an ABI, and system files.
func subjects(t *testing.T, abi string) []string {
	t.Helper()
	files := must.Get(filepath.Glob("../testdata/bin/" + abi + "/*"))(t)
	var more []string
	switch abi {
	case "amd64":
		more = []string{"/bin/ls", "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
	case "aarch64":
		more = []string{"libc.so.6", "ld-linux-aarch64.so.1", "libm.so.6", "libmvec.so.1", "libgcc_s.so.1"}
	case "s390x":
		more = []string{"libc.so.6", "ld64.so.1", "libm.so.6", "libgcc_s.so.1"}
	}
	for _, f := range long.Pick(t, more[:min(len(more), 1)], more) {
		if !filepath.IsAbs(f) {
			f = filepath.Join(peer.Root(t, "sid"), "usr", abi+"-linux-gnu/lib", f)
		}
		if _, err := os.Stat(f); err == nil {
			files = append(files, plain.File(t, f))
		}
	}
	return files
}

// linkScript links an amd64 object with a linker script.
func linkScript(t *testing.T, path, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	testfile.Write(t, file, script)
	return peer.Linked(t, path, "-T", file)
}

// TestAlike converts rows and functions that are similar but not equal: results for one must not be reused for another.
func TestAlike(t *testing.T) {
	function := func(lines ...string) string {
		return ".cfi_startproc\n" + strings.Join(lines, "\n") + "\nnop\n.cfi_endproc\n"
	}
	push := ".cfi_def_cfa_offset 16\n.cfi_offset rbp, -16"
	gap := function("nop", push, "nop", ".cfi_escape 0x0f, 3, 0x77, 0, 0x1f") // CFA = -rsp
	for _, tt := range []struct {
		name                        string
		source                      string
		described, covered, topmost uint64
	}{
		{"an expression with the offset and register of the previous row",
			function(".cfi_def_cfa rax, 8", "nop", ".cfi_escape 0x0f, 2, 0x77, 8"), 2, 2, 1},
		{"functions with a gap at the end", gap + gap + gap, 9, 6, 0},
		{"functions with rows for topmost frames", strings.Repeat(function("nop", ".cfi_def_cfa r10, 8"), 3), 6, 6, 3},
		{"the return address in a different column", function("nop", push) + function(".cfi_return_column rbx", "nop",
			push), 4, 2, 0},
	} {
		in := peer.Linked(t, peer.Assembled(t, ".globl _start\n_start:\n"+tt.source))
		_, c := run(t, in, convert.Options{Version: sframe.V3})
		if c.Described != tt.described || c.Covered != tt.covered || c.Topmost != tt.topmost {
			t.Errorf("%s: %d of %d bytes are covered, %d in topmost frames; want %d of %d, %d", tt.name,
				c.Covered, c.Described, c.Topmost, tt.covered, tt.described, tt.topmost)
		}
	}
}

// TestWorkers expects the same output for any number of workers.
func TestWorkers(t *testing.T) {
	files := []string{plain.File(t, "/bin/bash"), plain.File(t, "/bin/ls")}
	for _, abi := range []string{"amd64", "aarch64", "s390x"} {
		for _, name := range fixtureNames(t, abi) {
			files = append(files, filepath.Join(fixtures, abi, name))
		}
	}
	for _, in := range files {
		for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
			for _, share := range []convert.Share{convert.ShareAuto, convert.ShareOff} {
				var want []byte
				var first *conversion
				for _, workers := range []int{1, 2, 3, 8} {
					out, c := run(t, in, convert.Options{Version: version, Share: share, Workers: workers})
					got := testfile.Read(t, out)
					if want == nil {
						want, first = got, c
					}
					if !bytes.Equal(got, want) || !reflect.DeepEqual(c, first) {
						t.Errorf("%s, share %v: %d workers: the file differs, or facts %+v, want %+v", in, share,
							workers, c, first)
					}
				}
			}
		}
	}
}
