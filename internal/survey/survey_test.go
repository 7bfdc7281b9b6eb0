package survey

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/translate"
)

const fixtures = "../../testdata/bin/"

func run(t *testing.T, opt Options, paths ...string) *Survey {
	t.Helper()
	s, err := Run(t.Context(), paths, opt, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// what are the sums of one fixture that its source tells.
type what struct {
	drap, otherCFA        bool
	functions             uint64
	described, withoutCFI uint64
	code                  uint64    // both without padding
	whole                 [3]uint64 // functions, by format
	covered               [3]uint64 // bytes
	gaps                  map[translate.Reason]translate.Sum
}

// fromSource has what testdata/asm says: sizes are those of the instructions there, between
// the directives that change the row.
var fromSource = map[string]what{
	// realign has 50 bytes: 5 with rsp+8, 14 with r10+0, 25 with *(rbp-8), 5 with r10+0, and a
	// ret with rsp+8 and rbp at *(rbp+0). _start has no CFI.
	"amd64/drap1": {
		drap: true, otherCFA: true, functions: 2, described: 53, withoutCFI: 14, code: 67,
		whole: [3]uint64{1, 1, 2}, covered: [3]uint64{8, 8, 53},
		gaps: map[translate.Reason]translate.Sum{
			translate.DRAP: {Functions: 1, Ranges: 3, Bytes: 44}, translate.FPRule: {Functions: 1, Ranges: 1, Bytes: 1},
		},
	},
	// rbx is the base for 8 bytes of on_stack and the last 10 of on_stack_last.
	"amd64/rbxcfa.so": {
		otherCFA: true, functions: 3, described: 50, code: 50,
		whole: [3]uint64{1, 1, 3}, covered: [3]uint64{32, 32, 50},
		gaps: map[translate.Reason]translate.Sum{translate.CFARegister: {Functions: 2, Ranges: 2, Bytes: 18}},
	},
	// resume moves rcx to rsp (3 bytes), and jumps by rcx (2 bytes); ra_mid has its return
	// address in r11 during a move and a push (4 bytes).
	"amd64/rareg.so": {
		otherCFA: true, functions: 3, described: 55, code: 55,
		whole: [3]uint64{1, 1, 3}, covered: [3]uint64{46, 46, 55},
		gaps: map[translate.Reason]translate.Sum{
			translate.CFARegister: {Functions: 1, Ranges: 1, Bytes: 3}, translate.RARegister: {Functions: 2, Ranges: 2,
				Bytes: 6},
		},
	},
	// Signal frames are marked (3 bytes) and the trampoline (10 bytes). 15 bytes of padding
	// and 103 of _start have no CFI.
	"amd64/signal": {
		drap: true, functions: 4, described: 27, withoutCFI: 118, code: 27 + 103,
		whole: [3]uint64{2, 2, 4}, covered: [3]uint64{14, 14, 27},
		gaps: map[translate.Reason]translate.Sum{translate.SignalFrame: {Functions: 2, Ranges: 2, Bytes: 13}},
	},
	// No caller: 42 bytes of _start and 16 of new_stack. fp_lost has no rbp for 12 bytes.
	"amd64/undefra": {
		functions: 4, described: 96, code: 96,
		whole: [3]uint64{3, 3, 3}, covered: [3]uint64{84, 84, 84},
		gaps: map[translate.Reason]translate.Sum{
			translate.Outermost: {Functions: 2, Ranges: 2, Bytes: 58}, translate.FPUndefined: {Functions: 1, Ranges: 1,
				Bytes: 12},
		},
	},
	// Three functions have r14 or r1 as the base from the lay to the lgr: 24 bytes each.
	// leaf has 6, clash 62, clash_fp 64 and clash_leaf 38 bytes; _start, without CFI, 28, and the
	// linker aligns the end to 4.
	"s390x/stackclash": {
		otherCFA: true, functions: 4, described: 170, withoutCFI: 30, code: 200,
		whole: [3]uint64{0, 1, 4}, covered: [3]uint64{0, 98, 170},
		gaps: map[translate.Reason]translate.Sum{translate.CFARegister: {Functions: 3, Ranges: 3, Bytes: 72}},
	},
}

func TestFixtures(t *testing.T) {
	for name, want := range fromSource {
		s := run(t, Options{}, fixtures+name)
		got := what{
			drap: s.Total.DRAP == 1, otherCFA: s.Total.OtherCFA == 1,
			functions: s.Total.Functions, described: s.Total.Described, withoutCFI: s.Total.WithoutCFI,
			code: s.Total.Code,
		}
		if s.Total.Files != 1 || s.Total.WithCFI != 1 {
			t.Errorf("%s: %d files, %d with CFI", name, s.Total.Files, s.Total.WithCFI)
		}
		for i, v := range Formats {
			f := s.Total.format(v)
			got.whole[i], got.covered[i] = f.Whole, f.Covered
			if f.Unwindable != want.covered[i] {
				t.Errorf("%s: %d bytes are unwindable in %v; want %d", name, f.Unwindable, v, want.covered[i])
			}
		}
		if got.drap != want.drap || got.otherCFA != want.otherCFA || got.functions != want.functions ||
			got.described != want.described || got.code != want.code ||
			got.withoutCFI != want.withoutCFI || got.whole != want.whole || got.covered != want.covered {
			t.Errorf("%s:\n%+v, but the source says\n%+v", name, got, want)
		}
		gaps := make(map[translate.Reason]translate.Sum)
		for _, g := range s.Total.Gaps {
			gaps[reasons[g.Reason]] = translate.Sum{Functions: int(g.Functions), Ranges: int(g.Ranges), Bytes: g.Bytes}
		}
		if !maps.Equal(gaps, want.gaps) {
			t.Errorf("%s: gaps %+v, but the source says %+v", name, gaps, want.gaps)
		}
	}
}

// TestPLT does not take the expression of a PLT for DRAP, with section headers or without.
func TestPLT(t *testing.T) {
	for name, drap := range map[string]uint64{"plt": 0, "drap3": 1} {
		b, err := os.ReadFile(fixtures + "amd64/" + name)
		if err != nil {
			t.Fatal(err)
		}
		bare := slices.Clone(b)
		clear(bare[0x28:0x30]) // e_shoff
		clear(bare[0x3c:0x40]) // e_shnum, e_shstrndx
		for _, b := range [][]byte{b, bare} {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			if s := run(t, Options{}, path); s.Total.WithCFI != 1 || s.Total.DRAP != drap {
				t.Errorf("%s: %d files with CFI, %d with DRAP; want 1 and %d", name, s.Total.WithCFI,
					s.Total.DRAP, drap)
			}
		}
	}
}

// TestWorst expects the functions of the fixtures that lose most, by name.
func TestWorst(t *testing.T) {
	paths := []string{fixtures + "amd64/drap1", fixtures + "amd64/rbxcfa.so", fixtures + "amd64/rareg.so", fixtures +
		"amd64/undefra"}
	s := run(t, Options{}, paths...)
	var files, functions []string
	for _, f := range s.WorstBytes[:3] {
		files = append(files, filepath.Base(f.File)+" "+f.Reason)
	}
	for _, f := range s.WorstFunctions[:3] {
		functions = append(functions, f.Function+" "+f.Reason+" "+strconv.FormatUint(f.Lost, 10)+" of "+
			strconv.FormatUint(f.Size, 10))
	}
	if want := []string{"drap1 drap", "rbxcfa.so cfa-register", "undefra fp-undefined"}; !slices.Equal(files, want) {
		t.Errorf("worst files %q; want %q", files, want)
	}
	if want := []string{"realign drap 45 of 50", "fp_lost fp-undefined 12 of 31",
		"on_stack_last cfa-register 10 of 21"}; !slices.Equal(functions, want) {
		t.Errorf("worst functions %q; want %q", functions, want)
	}
	if f := s.WorstShare[0]; filepath.Base(f.File) != "drap1" || f.Lost != 45 || f.Described != 53 {
		t.Errorf("the worst file by share is %+v", f)
	}
}

// TestOccurrence compares with what readelf prints, as scripts/lab occurrence counts it.
func TestOccurrence(t *testing.T) {
	peer.Look(t, "readelf")
	peer.Look(t, "bash")
	peer.Root(t, "sid")
	for _, abi := range []string{"amd64", "aarch64", "aarch64_be", "s390x"} {
		s := run(t, Options{}, fixtures+abi)
		var lines []string
		for _, l := range s.Files {
			if l.DRAP || strings.HasSuffix(l.File, "/repeat") { // which has the expression of PLTs in other code
				lines = append(lines, "DRAP "+l.File)
			}
			if l.OtherCFA {
				lines = append(lines, "non-SP/FP CFA "+l.File)
			}
		}
		cmd := exec.Command("../../lab/sh/occurrence", "--list", fixtures+abi)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		theirs := strings.Split(strings.TrimSpace(string(out)), "\n")
		if !slices.Equal(lines, theirs[:len(theirs)-1]) {
			t.Errorf("%s: %q\nscripts/lab occurrence finds %q", abi, lines, theirs)
		}
	}
}

// tree makes a directory with files of many kinds.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	drap, err := os.ReadFile(fixtures + "amd64/drap1")
	must(err)
	edit := func(off int, v ...byte) []byte {
		b := slices.Clone(drap)
		copy(b[off:], v)
		return b
	}
	write("a/prog", drap)
	write("a/text", []byte("text"))
	write("a/empty", nil)
	write("a/32", edit(4, 1))                 // EI_CLASS
	write("a/mips", edit(18, 8))              // e_machine
	write("a/object.o", edit(16, 1))          // e_type
	write("a/garbage", edit(40, 0xff, 0xff))  // e_shoff
	write("a/short", drap[:10])               // cut off in the ELF header
	write("a/thin.a", []byte("!<thin>\nxxx")) // damaged, but not asked for
	must(os.Link(filepath.Join(dir, "a/prog"), filepath.Join(dir, "a/same")))
	must(os.MkdirAll(filepath.Join(dir, "b"), 0o777))
	must(os.Symlink("../a/prog", filepath.Join(dir, "b/link")))
	must(os.Symlink("..", filepath.Join(dir, "b/loop")))
	must(os.Symlink("gone", filepath.Join(dir, "b/dangling")))
	must(os.Link(filepath.Join(dir, "a/prog"), filepath.Join(dir, "b/hard")))
	return dir
}

func refusedBy(s *Sums) map[convert.Reason]uint64 {
	out := make(map[convert.Reason]uint64)
	for _, r := range s.Refused {
		if r.Files > 0 {
			out[r.Reason] = r.Files
		}
	}
	return out
}

// TestTree counts every file once, and stops at none.
func TestTree(t *testing.T) {
	dir := tree(t)
	s := run(t, Options{}, dir+"/b", dir+"/a", dir, dir+"/b/link")
	if s.Total.Files != 5 || s.Total.WithCFI != 1 {
		t.Errorf("%d files, %d with CFI; want 5 and 1", s.Total.Files, s.Total.WithCFI)
	}
	refused := refusedBy(&s.Total)
	if refused["32-bit"] != 1 || refused["machine"] != 1 || refused["damaged"] != 2 || len(refused) != 3 {
		t.Errorf("refused %v", refused)
	}
	if want := (Skipped{Objects: 2, Archives: 1, Other: 2}); s.Total.Skipped != want {
		t.Errorf("skipped %+v; want %+v", s.Total.Skipped, want)
	}
	for i, want := range []uint64{5, 0, 0, 0} { // the outermost path that leads to a file has it
		if p := s.Paths[i]; p.Files != want {
			t.Errorf("%d files below %s; want %d", p.Files, p.Name, want)
		}
	}
	if len(s.Errors) != 2 || !strings.HasSuffix(s.Errors[0].File, "a/garbage") || s.Errors[0].Error == "" {
		t.Errorf("errors %+v", s.Errors)
	}
	for name, files := range map[string]uint64{"/b/link": 1, "/b/loop": 5, "/a/text": 0} {
		if s := run(t, Options{}, dir+name); s.Total.Files != files {
			t.Errorf("%s as a path: %d files; want %d", name, s.Total.Files, files)
		}
	}
}

// TestMachineFails surveys a file that reads as one on a broken disk: nothing is mapped at address 0.
func TestMachineFails(t *testing.T) {
	const mem = "/proc/self/mem"
	peer.File(t, mem)
	s, err := Run(t.Context(), []string{fixtures + "amd64/drap1", mem}, Options{}, nil)
	if !errors.Is(err, syscall.EIO) || !strings.HasPrefix(err.Error(), mem+": ") {
		t.Errorf("%+v, %v; want %v", s, err, syscall.EIO)
	}
	if _, err := Run(t.Context(), []string{t.TempDir() + "/gone"}, Options{}, nil); err == nil {
		t.Error("a path that is not there is no error")
	}
}

// TestObjects surveys an object and an archive of it twice, and an archive that is none.
func TestObjects(t *testing.T) {
	peer.Look(t, "as")
	peer.Look(t, "ar")
	dir := t.TempDir()
	for _, args := range [][]string{
		{"as", "--64", "-o", dir + "/drap1.o", "../../testdata/asm/amd64/drap1.s"},
		{"ar", "cr", dir + "/lib.a", dir + "/drap1.o", "../../testdata/asm/amd64/drap1.s", dir + "/drap1.o"},
		{"ar", "qS", dir + "/lib.a", dir + "/drap1.o"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(dir+"/thin.a", []byte("!<thin>\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	s := run(t, Options{Settings: Settings{Objects: true}}, dir)
	members := s.Total.WithCFI
	if members < 3 || s.Total.Files != members+1 || s.Total.DRAP != members || refusedBy(&s.Total)["damaged"] != 1 {
		t.Errorf("%+v", s.Total)
	}
	want := fromSource["amd64/drap1"]
	for i, v := range Formats {
		n, f := members, s.Total.format(v)
		if v == 1 {
			n = 0 // objects are not converted to format 1
		}
		if f.Covered != n*want.covered[i] || f.Functions != n*want.functions {
			t.Errorf("format %d of %d objects: %+v", f.Format, members, f)
		}
	}
	if n := len(s.WorstFunctions); n != int(members) { // also those of members with one name
		t.Errorf("%d of the worst functions in %d members with one each", n, members)
	}
	if f := s.WorstFunctions[0]; f.Function != "realign" || f.Section != ".text" || f.Begin != 3 {
		t.Errorf("the worst function is %+v; want realign at .text+3", f)
	}
	if name := s.WorstFunctions[len(s.WorstFunctions)-1].File; name != dir+"/lib.a(drap1.o)" {
		t.Errorf("the last of the worst functions is in %s", name)
	}
	if s := run(t, Options{}, dir); s.Total.Files != 0 || s.Total.Skipped != (Skipped{Objects: 3, Archives: 2}) {
		t.Errorf("unless asked for: %d files, %+v skipped", s.Total.Files, s.Total.Skipped)
	}
}

// TestDeterminism writes the same with any number of workers.
func TestDeterminism(t *testing.T) {
	dir := tree(t)
	var first []byte
	for _, jobs := range []int{1, 2, 3, 16} {
		calls, last := 0, 0
		s, err := Run(t.Context(), []string{fixtures, dir}, Options{Settings: Settings{Objects: true}, Jobs: jobs},
			func(done, total int) {
				calls++
				if done != calls || total < done {
					t.Errorf("progress %d of %d in call %d", done, total, calls)
				}
				last = total
			})
		if err != nil {
			t.Fatal(err)
		}
		if calls != last || calls == 0 {
			t.Errorf("%d calls of progress for %d files", calls, last)
		}
		var out bytes.Buffer
		for _, form := range Forms {
			if err := s.Write(&out, form); err != nil {
				t.Fatal(err)
			}
		}
		if first == nil {
			first = out.Bytes()
		} else if !bytes.Equal(first, out.Bytes()) {
			t.Errorf("other output with %d workers than with 1", jobs)
		}
	}
}

func TestCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Run(ctx, []string{fixtures}, Options{Jobs: 1}, func(done, total int) {
		if done == 2 {
			cancel()
		}
		if done > 4 {
			t.Errorf("%d of %d files are done", done, total)
		}
	})
	if s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v, %v", s, err)
	}
	if _, err := Run(ctx, []string{fixtures}, Options{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v when the context has ended", err)
	}
}

// TestCSV adds up the lines, and expects the sums.
func TestCSV(t *testing.T) {
	s := run(t, Options{}, fixtures, tree(t))
	var out bytes.Buffer
	if err := s.CSV(&out, nil); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(&out).ReadAll() // which wants as many columns in each
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != len(s.Files)+1 || s.Total.Files != uint64(len(s.Files)) {
		t.Fatalf("%d lines for %d files", len(records)-1, s.Total.Files)
	}
	doc, err := os.ReadFile("../../docs/survey.md")
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]uint64)
	for i, name := range records[0] {
		if slices.Index(records[0], name) != i {
			t.Errorf("there are two columns %s", name)
		}
		documented := name
		for _, r := range translate.Reasons() {
			documented = strings.Replace(documented, r.Name()+"_", "REASON_", 1)
		}
		if documented[0] == 'v' && documented[1] >= '1' && documented[1] <= '3' {
			documented = "vN" + documented[2:]
		}
		if !bytes.Contains(doc, []byte("`"+documented+"`")) {
			t.Errorf("docs/survey.md does not describe %s", documented)
		}
		for _, r := range records[1:] {
			n, _ := strconv.ParseUint(r[i], 10, 64) // those that are no numbers have no sum
			sums[name] += n
		}
	}
	want := map[string]uint64{
		"drap": s.Total.DRAP, "non_sp_fp_cfa": s.Total.OtherCFA, "functions": s.Total.Functions,
		"described": s.Total.Described, "without_cfi": s.Total.WithoutCFI, "code": s.Total.Code,
		"v2_unwindable": s.Total.Formats[1].Unwindable,
		"v1_covered":    s.Total.Formats[0].Covered, "v2_outermost": s.Total.Formats[1].Outermost,
		"v3_functions_covered": s.Total.Formats[2].Whole, "v3_topmost": s.Total.Formats[2].Topmost,
	}
	for _, g := range s.Total.Gaps {
		want[g.Reason+"_functions"], want[g.Reason+"_ranges"], want[g.Reason+"_bytes"] = g.Functions, g.Ranges, g.Bytes
		if g.Loss {
			want["lost"] += g.Bytes
		}
	}
	for name, n := range want {
		if sums[name] != n {
			t.Errorf("column %s adds up to %d; the sum is %d", name, sums[name], n)
		}
	}
	if want["lost"] == 0 || want["v3_topmost"] == 0 {
		t.Error("the sums are empty")
	}
}

func TestTextAndHTML(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(fixtures + "amd64/rbxcfa.so")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/<b>\x1b.so", b, 0o666); err != nil {
		t.Fatal(err)
	}
	s := run(t, Options{}, dir, fixtures+"s390x")
	var text, page bytes.Buffer
	if err := s.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Survey: 6 ELF files, 6 of them with CFI\n", "Left out in format 2: s390x\n", "Left out in format 2: all\n",
		" 10  21  cfa-register  ", "  on_stack_last\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	if strings.ContainsAny(text.String(), "\x1b\t\r") {
		t.Error("control characters in the text")
	}
	if err := s.HTML(&page, nil, ""); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<b>", "\x1b", "http:", "https:", "<script>alert", "src="} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if n := strings.Count(page.String(), "<script"); n != 2 {
		t.Errorf("%d scripts; want data and the page's own", n)
	}
	for _, want := range []string{"<!DOCTYPE html>", "prefers-color-scheme: dark", "&lt;b&gt;", "on_stack_last",
		"</html>"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}
