package survey

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/translate"
)

const fixtures = "../../../../testdata/bin/"

func run(t *testing.T, opt Options, paths ...string) *Survey {
	t.Helper()
	return must.Get(Run(t.Context(), paths, opt))(t)
}

// wantSums holds the expected sums for a fixture, computed from the fixture's source.
type wantSums struct {
	functions             uint64
	described, withoutCFI uint64
	code                  uint64    // the sum of described and withoutCFI
	whole                 [2]uint64 // functions, by format
	covered               [2]uint64 // bytes
	gaps                  map[string]translate.Sum
}

// fromSource holds sums computed from testdata/asm: sizes of the instructions between directives that change the row.
var fromSource = map[string]wantSums{
	// In realign (50 bytes), the CFA is rsp+8 for 5 bytes, r10+0 for 14, *(rbp-8) for 25, r10+0 for 5, and rsp+8 for
	// the ret, where CFI still says that rbp is saved at rbp+0. _start has no CFI.
	"amd64/drap1": {
		functions: 2, described: 53, withoutCFI: 14, code: 67, whole: [2]uint64{1, 2}, covered: [2]uint64{8, 53},
	},
	// The CFA is based on rbx in 8 bytes of on_stack and in the last 10 bytes of on_stack_last.
	"amd64/rbxcfa.so": {functions: 3, described: 50, code: 50, whole: [2]uint64{1, 3}, covered: [2]uint64{32, 50}},
	// resume moves rcx to rsp (3 bytes), and jumps through rcx (2 bytes); ra_mid has its return address in r11 during a
	// move and a push (4 bytes).
	"amd64/rareg.so": {functions: 3, described: 55, code: 55, whole: [2]uint64{1, 3}, covered: [2]uint64{46, 55}},
	// The function "marked" (3 bytes) and the trampoline (10 bytes) are signal frames. 15 bytes of padding and the 103
	// bytes of _start have no CFI.
	"amd64/signal": {
		functions: 4, described: 27, withoutCFI: 103, code: 27 + 103, whole: [2]uint64{2, 4},
		covered: [2]uint64{14, 27},
	},
	// 42 bytes of _start and 16 bytes of new_stack have no caller. In fp_lost, rbp is undefined for 12 bytes.
	"amd64/undefra": {
		functions: 4, described: 96, code: 96, whole: [2]uint64{3, 3}, covered: [2]uint64{84, 84},
		gaps: map[string]translate.Sum{translate.FPUndefined.Name(): {Functions: 1, Ranges: 1, Bytes: 12}},
	},
	// In three functions, the CFA is based on r14 or r1 from the lay to the lgr: 24 bytes each. leaf is 6 bytes long,
	// clash 62, clash_fp 64 and clash_leaf 38; _start, without CFI, is 28 bytes long, and the linker aligns the end to
	// 4.
	"s390x/stackclash": {
		functions: 4, described: 170, withoutCFI: 30, code: 200, whole: [2]uint64{1, 4}, covered: [2]uint64{98, 170},
	},
}

func TestFixtures(t *testing.T) {
	for name, want := range fromSource {
		s := run(t, Options{}, fixtures+name)
		got := wantSums{
			functions: s.Total.Functions, described: s.Total.Described, withoutCFI: s.Total.WithoutCFI,
			code: s.Total.Code,
		}
		if s.Total.Files != 1 || s.Total.WithCFI != 1 {
			t.Errorf("%s: %d files, %d with CFI", name, s.Total.Files, s.Total.WithCFI)
		}
		for i, v := range Formats {
			f := format(s.Total.Formats, v)
			got.whole[i], got.covered[i] = f.Whole, f.Covered
			if f.Unwindable != want.covered[i] {
				t.Errorf("%s: %d bytes are unwindable in %v; want %d", name, f.Unwindable, v, want.covered[i])
			}
		}
		for _, g := range s.Total.Gaps {
			if got.gaps == nil {
				got.gaps = make(map[string]translate.Sum)
			}
			got.gaps[g.Reason] = translate.Sum{Functions: int(g.Functions), Ranges: int(g.Ranges), Bytes: g.Bytes}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, but the source says\n%+v", name, got, want)
		}
	}
}

// TestWorst checks which files and functions lose the most.
func TestWorst(t *testing.T) {
	s := run(t, Options{}, fixtures+"amd64/drap1", fixtures+"amd64/undefra", fixtures+"amd64/rbxcfa.so")
	if len(s.Worst) != 1 || filepath.Base(s.Worst[0].File) != "undefra" {
		t.Errorf("worst files %+v; want undefra", s.Worst)
	}
	f := s.Functions[0]
	if len(s.Functions) != 1 || f.Function != "fp_lost" || f.Reason != "fp-undefined" || f.Lost != 12 || f.Size != 31 ||
		f.File != s.Worst[0].File {
		t.Errorf("worst functions %+v; want fp_lost, 12 of 31 bytes", s.Functions)
	}
}

// tree makes a directory with files of many kinds.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		testfile.Write(t, path, b)
	}
	drap := testfile.Read(t, fixtures+"amd64/drap1")
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
	write("a/short", drap[:10])               // truncated in the ELF header
	write("a/thin.a", []byte("!<thin>\nxxx")) // damaged, but archives are not requested
	must.Do(t, os.Link(filepath.Join(dir, "a/prog"), filepath.Join(dir, "a/same")))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "b"), 0o777))
	must.Do(t, os.Symlink("../a/prog", filepath.Join(dir, "b/link")))
	must.Do(t, os.Symlink("..", filepath.Join(dir, "b/loop")))
	must.Do(t, os.Symlink("gone", filepath.Join(dir, "b/dangling")))
	must.Do(t, os.Link(filepath.Join(dir, "a/prog"), filepath.Join(dir, "b/hard")))
	return dir
}

func refusedBy(s *Sums) map[convert.Reason]uint64 {
	out := make(map[convert.Reason]uint64)
	for _, r := range s.Refused {
		out[r.Status] = r.Files
	}
	return out
}

// TestTree expects each file to be counted once, and no file to abort the survey.
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
	if want := (Skipped{Objects: 2, Other: 2}); s.Skipped != want {
		t.Errorf("skipped %+v; want %+v", s.Skipped, want)
	}
	for name, files := range map[string]uint64{"/b/link": 1, "/b/loop": 5, "/a/text": 0} {
		if s := run(t, Options{}, dir+name); s.Total.Files != files {
			t.Errorf("%s as a path: %d files; want %d", name, s.Total.Files, files)
		}
	}
}

// TestMergeErrors expects errors for invalid or contradictory records, and for invalid shards. merge.txtar tests
// successful merges.
func TestMergeErrors(t *testing.T) {
	out := t.TempDir()
	sound := filepath.Join(out, "sound")
	var b bytes.Buffer
	must.Do(t, run(t, Options{}, fixtures+"amd64/drap1").JSON(&b))
	testfile.Write(t, sound, b.Bytes())
	first, _, _ := strings.Cut(b.String(), "\n")
	for _, tt := range []struct{ text, want string }{
		{strings.Replace(first, `"abi":"`, `"functions":1,"abi":"x`, 1), "differs from the file of the same name in "},
		{strings.Replace(first, `"file":"`, `"name":"`, 1), "record without a file name; use the output of survey"},
		{`{"file":"x","status":"lost"}`, `unknown status "lost"`},
		{`{"file":"x","formats":[{"format":9}]}`, "unknown format 9"},
		{`{"file":"x","gaps":[{"reason":"mood"}]}`, `unknown reason "mood"`},
		{`{"file":`, "not a JSON survey: offset 0: unexpected EOF"},
		{"\x7fELF", "not a JSON survey: offset 0: "},
	} {
		bad := filepath.Join(out, "bad")
		testfile.Write(t, bad, tt.text)
		if _, err := Merge([]string{sound, bad}); err == nil || !strings.Contains(err.Error(), bad+": ") ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.100s: %v; want %s", tt.text, err, tt.want)
		}
	}
	for _, text := range []string{"", "1", "0/2", "3/2", "1/0", "a/b", "1/1048577"} {
		if _, err := ParseShard(text); err == nil {
			t.Errorf("%q is a shard", text)
		}
	}
}

// allFormats returns the survey as text, JSON and HTML.
func allFormats(t *testing.T, s *Survey) string {
	t.Helper()
	var b bytes.Buffer
	for _, err := range []error{s.Text(&b), s.JSON(&b), s.HTML(&b, "heading", "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestObjects surveys an object, an archive that contains it repeatedly, and a damaged archive.
func TestObjects(t *testing.T) {
	peer.Look(t, "as")
	peer.Look(t, "ar")
	dir := t.TempDir()
	for _, args := range [][]string{
		{"as", "--64", "-o", dir + "/drap1.o", "../../../../testdata/asm/amd64/drap1.s"},
		{"ar", "cr", dir + "/lib.a", dir + "/drap1.o", "../../../../testdata/asm/amd64/drap1.s", dir + "/drap1.o"},
		{"ar", "qS", dir + "/lib.a", dir + "/drap1.o"},
	} {
		must.Run(t, exec.Command(args[0], args[1:]...))
	}
	testfile.Write(t, dir+"/thin.a", "!<thin>\n")
	s := run(t, Options{Objects: true}, dir)
	members := s.Total.WithCFI
	if members < 3 || s.Total.Files != members+1 || refusedBy(&s.Total)["damaged"] != 1 {
		t.Errorf("%+v", s.Total)
	}
	want := fromSource["amd64/drap1"]
	for i, v := range Formats {
		if f := format(s.Total.Formats, v); f.Covered != members*want.covered[i] ||
			f.Described != members*want.described {
			t.Errorf("format %d of %d objects: %+v", f.Format, members, f)
		}
	}
	if s := run(t, Options{}, dir); s.Total.Files != 0 || s.Skipped != (Skipped{Objects: 3}) {
		t.Errorf("without --objects: %d files, %+v skipped", s.Total.Files, s.Skipped)
	}
}

// TestDeterminism expects the same output for any number of workers.
func TestDeterminism(t *testing.T) {
	dir := tree(t)
	first := ""
	for _, jobs := range []int{1, 2, 3, 16} {
		got := allFormats(t, run(t, Options{Objects: true, Jobs: jobs}, fixtures, dir))
		if first == "" {
			first = got
		} else if got != first {
			t.Errorf("the output with %d workers differs from that with 1", jobs)
		}
	}
}

func TestCancellation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	examined := 0
	s, err := Run(ctx, []string{fixtures}, Options{Jobs: 1, Starting: func(_, _ uint64) {
		if examined++; examined == 2 {
			cancel()
		}
	}})
	if examined != 2 {
		t.Errorf("%d files were examined", examined)
	}
	if s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v, %v", s, err)
	}
	if _, err := Run(ctx, []string{fixtures}, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returns %v when the context has ended", err)
	}
}

func TestTextAndHTML(t *testing.T) {
	dir := t.TempDir()
	b := testfile.Read(t, fixtures+"amd64/undefra")
	testfile.Write(t, dir+"/<b>\x1b", b)
	s := run(t, Options{}, dir, fixtures+"s390x")
	var text, page bytes.Buffer
	must.Do(t, s.Text(&text))
	for _, want := range []string{
		"Survey: 6 ELF files, 6 of them with CFI\n", "\n  s390x ", "\n  all ", "Gaps in format 3\n",
		" 12  31  fp-undefined  ", "  fp_lost\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	if strings.ContainsAny(text.String(), "\x1b\t\r") {
		t.Error("control characters in the text")
	}
	must.Do(t, s.HTML(&page, dir, ""))
	for _, bad := range []string{"<b>", "\x1b", "http:", "https:", "<script>alert", "src="} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("%q is in the page", bad)
		}
	}
	if n := strings.Count(page.String(), "<script"); n != 2 {
		t.Errorf("%d scripts; want data and the page's own", n)
	}
	for _, want := range []string{"<!DOCTYPE html>", "prefers-color-scheme: dark", "&lt;b&gt;", "fp_lost", "</html>"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}
