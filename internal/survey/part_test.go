package survey

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
)

// smallPart returns the JSON form of a small survey with something of everything.
func smallPart(t testing.TB, opt Options) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, size := range map[string]int{"drap1": -1, "rbxcfa.so": -1, "short": 20, "text": 0} {
		b := []byte("text")
		if size != 0 {
			var err error
			if b, err = os.ReadFile(fixtures + "amd64/" + strings.Replace(name, "short", "drap1", 1)); err != nil {
				t.Fatal(err)
			}
		}
		if size > 0 {
			b = b[:size]
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := runIn(t, dir, opt, ".")
	var out bytes.Buffer
	if err := s.JSON(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// mergeBytes merges parts.
func mergeBytes(t testing.TB, opt MergeOptions, parts ...[]byte) (*Survey, error) {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for i, b := range parts {
		names = append(names, filepath.Join(dir, fmt.Sprintf("%d.json", i)))
		if err := os.WriteFile(names[i], b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Merge(t.Context(), names, opt, nil)
	if err != nil && !strings.Contains(err.Error(), dir) && !strings.Contains(err.Error(), "missing") {
		t.Errorf("no file in %q", err)
	}
	return s, err
}

// TestDamagedParts changes one thing in a part, and expects to be told what and where.
func TestDamagedParts(t *testing.T) {
	good := string(smallPart(t, Options{}))
	shard := string(smallPart(t, Options{Shard: Shard{2, 3}}))
	first := func(of, old, new string) string {
		if !strings.Contains(of, old) {
			t.Fatalf("%q is not in\n%s", old, of)
		}
		return strings.Replace(of, old, new, 1)
	}
	last := func(of, old, new string) string {
		i := strings.LastIndex(of, old)
		if i < 0 {
			t.Fatalf("%q is not in\n%s", old, of)
		}
		return of[:i] + new + of[i+len(old):]
	}
	for _, tt := range []struct{ name, part, want string }{
		{"nothing", "", "not a survey in JSON: offset 0: EOF"},
		{"a list", "[]", "not a survey in JSON: offset 2: json: cannot unmarshal array"},
		{"text", "text", "not a survey in JSON: offset 0: invalid character"},
		{"a second survey", good + good, "cannot unmarshal object"},
		{"no fields", "{}", "schema 0; this version of cfi2sframe reads schema 4"},
		{"the old schema", first(good, `"schema":4`, `"schema":3`), "schema 3; this"},
		{"a later schema", first(good, `"schema":4`, `"schema":5`), "schema 5; this"},
		{"another tool", first(good, `"tool":""`, `"tool":"cfi2sframe 7"`),
			`made by "cfi2sframe 7"; only parts of "" can be merged`},
		{"no total", first(good, `"total":{`, `"later":{`), "the total is not the sum of the files"},
		{"less than no files", first(good, `"skipped":{"other":1}`, `"skipped":{"other":-1}`), `offset `},
		{"other files than in total", first(good, `"skipped":{"other":1}`, `"skipped":{"other":2}`),
			"damaged: the total is not the sum of the files"},
		{"another total", last(good, `"described":`, `"described":1`), "the total is not the sum of the files"},
		{"a line less", good[:strings.LastIndex(good, "{\"file")], "the total is not the sum of the files"},
		{"a path that is not there", last(good, `{"file":`, `{"path":1,"file":`),
			`file "short" has a number out of range`},
		{"a path before the first", last(good, `{"file":`, `{"path":-1,"file":`), "out of range"},
		{"a file without a name", last(good, `{"file":"short"`, `{"file":""`), "out of range"},
		{"a file twice", last(good, `{"file":"short"`, `{"file":"drap1"`), "drap1 is listed twice"},
		{"a file in a longer one", last(good, `{"file":"short"`, `{"disk":9,"file":"short"`), "out of range"},
		{"no status", last(good, `"status":"damaged"`, `"status":"tired"`), `short: unknown "tired"`},
		{"no version", last(good, `"format":3`, `"format":9`), `unknown "format 9"`},
		{"no reason", last(good, `"reason":"cfa-register"`, `"reason":"bad-luck"`), `unknown "bad-luck"`},
		{"a function in a longer file", first(good, `{"file":"rbxcfa.so","function"`,
			`{"disk":19,"file":"rbxcfa.so","function"`), "a function of file \"rbxcfa.so\" has a number out of range"},
		{"a deep value", good + strings.Repeat("[", 1<<20), "exceeded max depth"},
		{"shard 0", first(shard, `"shard":2`, `"shard":0`), "a shard has a number out of range"},
		{"shard 4", first(shard, `"shard":2`, `"shard":4`), "a shard has a number out of range"},
		{"too many shards", first(shard, `"of":3`, `"of":99999999`), "a shard has a number out of range"},
		{"shards of no path", first(shard, `"paths":[0]`, `"paths":[3]`), "a shard has a number out of range"},
		{"files skipped below no path", first(shard, `"skipped":{"0":`, `"skipped":{"7":`),
			"a shard has a number out of range"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := mergeBytes(t, MergeOptions{Partial: true}, []byte(tt.part)); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
	for _, part := range []string{good, shard} {
		if _, err := mergeBytes(t, MergeOptions{Partial: true}, []byte(part)); err != nil {
			t.Error(err)
		}
	}
}

// TestGroups names what is missing of paths that were divided apart, and of ten of them at most.
func TestGroups(t *testing.T) {
	part := string(smallPart(t, Options{Shard: Shard{2, 9}}))
	var parts [][]byte
	for i := range 12 {
		name := fmt.Sprintf("dir%02d", i)
		b := strings.NewReplacer(`"name":"."`, `"name":"`+name+`"`, `"file":"`, `"file":"`+name+`/`, `"of":9`,
			fmt.Sprintf(`"of":%d`, 9+i%2)).Replace(part)
		parts = append(parts, []byte(b))
	}
	_, err := mergeBytes(t, MergeOptions{}, parts[:2]...)
	if want := "missing: shards 1 and 3 to 9 of 9 of dir00 and shards 1 and 3 to 10 of 10 of dir01; add them, or use --partial"; err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	if _, err = mergeBytes(t, MergeOptions{}, parts...); err == nil ||
		!strings.HasSuffix(err.Error(), "of dir09 and 2 other paths; add them, or use --partial") {
		t.Error(err)
	}
	s, err := mergeBytes(t, MergeOptions{Partial: true}, parts...)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Only(); !strings.HasPrefix(got, "Only shard 2 of 9 of dir00, shard 2 of 10 of dir01, ") ||
		!strings.HasSuffix(got, " of dir09 and 2 other paths.") {
		t.Error(got)
	}
	for _, tt := range []struct {
		have []int
		of   int
		want string
	}{
		{[]int{2, 4, 5, 9}, 9, "shards 1, 3 and 6 to 8 of 9 of x"},
		{[]int{1, 2}, 3, "shard 3 of 3 of x"},
		{[]int{2}, 4, "shards 1, 3 and 4 of 4 of x"},
		{[]int{3, 6, 9, 12, 15, 18, 21, 24, 27, 30}, 32,
			"shards 1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29 and 2 other ranges of 32 of x"},
	} {
		var g []Piece
		for _, i := range tt.have {
			g = append(g, Piece{Shard: Shard{i, tt.of}, Paths: []int{0}})
		}
		if got := missing(g, []Part{{Name: "x"}}); got != tt.want {
			t.Errorf("%v of %d: %s; want %s", tt.have, tt.of, got, tt.want)
		}
	}
}

// TestTruncatedPart cuts a part at every byte.
func TestTruncatedPart(t *testing.T) {
	good := smallPart(t, Options{})
	step := long.Pick(t, 37, 1)
	for n := 0; n < len(good)-1; n += step { // the last byte is a newline
		if _, err := mergeBytes(t, MergeOptions{}, good[:n]); err == nil {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
	}
}

// TestChangedParts changes bytes at random. What is taken nevertheless can be written in all forms.
func TestChangedParts(t *testing.T) {
	good := smallPart(t, Options{Shard: Shard{1, 2}})
	other := smallPart(t, Options{Shard: Shard{2, 2}})
	r := rand.New(rand.NewPCG(1, 2))
	taken, all := 0, long.Pick(t, 400, 4000)
	for range all {
		b := bytes.Clone(good)
		for range 1 + r.IntN(3) {
			const likely = `0123456789-"{}[],:abcdefghijklmnopqrstuvwxyz`
			b[r.IntN(len(b))] = likely[r.IntN(len(likely))]
		}
		s, err := mergeBytes(t, MergeOptions{Partial: true}, b, other)
		if err != nil {
			continue
		}
		taken++
		forms(t, s)
	}
	if taken == 0 || taken > all/2 {
		t.Errorf("%d of %d are taken", taken, all)
	}
}

// TestNoFile expects the name of what is not a regular file.
func TestNoFile(t *testing.T) {
	for _, name := range []string{t.TempDir(), "/dev/zero", "/gone"} {
		if _, err := Merge(t.Context(), []string{name}, MergeOptions{}, nil); err == nil ||
			!strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// FuzzPart merges what may be a part.
func FuzzPart(f *testing.F) {
	f.Add(smallPart(f, Options{}))
	f.Add(smallPart(f, Options{Shard: Shard{1, 2}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := mergeBytes(t, MergeOptions{Partial: true}, b)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := s.JSON(&again); err != nil {
			t.Fatal(err)
		}
		forms := forms(t, s)
		if s, err = mergeBytes(t, MergeOptions{Partial: true}, again.Bytes()); err != nil {
			t.Fatalf("what was merged is no part: %v\n%s", err, &again)
		}
		for _, form := range Forms {
			var b bytes.Buffer
			if err := s.Write(&b, form); err != nil || !bytes.Equal(b.Bytes(), forms[form]) {
				t.Fatalf("%s is another one after merging once more: %v\n%s\n%s", form, err, &b, forms[form])
			}
		}
	})
}
