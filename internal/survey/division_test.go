package survey

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/long"
)

// runIn surveys paths as they are from a folder.
func runIn(t testing.TB, dir string, opt Options, paths ...string) *Survey {
	t.Helper()
	from, err := os.Getwd()
	if err == nil {
		err = os.Chdir(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Run(t.Context(), paths, opt, nil)
	if err := errors.Join(err, os.Chdir(from)); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDivision digests what has a part in the division, file by file, and nothing else.
func TestDivision(t *testing.T) {
	// The length of each name and the name, its size, the index of its path, and what it is: a file, unreadable, or a folder.
	digest := func(b string) string {
		h := sha256.Sum256([]byte(b))
		return hex.EncodeToString(h[:16])
	}
	closed := errors.New("closed")
	for _, tt := range []struct {
		all  []candidate
		want string
	}{
		{nil, ""},
		{[]candidate{{name: "a", size: 5}}, "\x01a\x05\x00\x00"},
		{[]candidate{{name: "a", path: 1, given: true, size: 300}}, "\x01a\xac\x02\x01\x00"},
		{[]candidate{{name: "a", err: closed, size: 0}}, "\x01a\x00\x00\x01"},
		{[]candidate{{name: "a", pack: true, size: 5}}, "\x01a\x05\x00\x02"},
		{[]candidate{{name: "a", pack: true, err: closed, size: 0}}, "\x01a\x00\x00\x01"},
		// The largest is first, and then they are by name.
		{[]candidate{{name: "b", size: 1}, {name: "a", size: 1}, {name: "\xff", size: 2}}, "\x01\xff\x02\x00\x00\x01a\x01\x00\x00\x01b\x01\x00\x00"},
	} {
		want := Division{uint64(len(tt.all)), digest(tt.want)}
		for _, n := range []int{2, 3, 1 << 10} {
			if _, got := (Shard{2, n}).pick(slices.Clone(tt.all)); got != want {
				t.Errorf("%+v: %+v; %+v was expected", tt.all, got, want)
			}
		}
	}
}

// plant makes a tree of six files in a folder.
func plant(t testing.TB, dir string) {
	t.Helper()
	b, err := os.ReadFile(fixtures + "amd64/drap1")
	err = errors.Join(err, os.MkdirAll(dir+"/tree/sub", 0o777), os.MkdirAll(dir+"/tree/image/blobs", 0o777), os.Symlink("tree", dir+"/link"))
	for name, b := range map[string][]byte{
		"prog": b, "sub/prog": b, "sub/short": b[:64], "text": []byte("text"), "image/oci-layout": []byte("{}"), "image/blobs/0": []byte("blob"),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "tree", name), b, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDividedApart merges shards of two trees of the same name, of which one has changed. That is refused where it can have changed the
// division, in one step and in several, and the message says which shards are of which tree.
func TestDividedApart(t *testing.T) {
	opened := Options{Settings: Settings{Packages: true}}
	for _, tt := range []struct {
		name          string
		change        func(at func(string) string) error
		opt           Options
		first, second int // files there, if they differ
	}{
		{"nothing", func(at func(string) string) error { return nil }, Options{}, 0, 0},
		{"other contents", func(at func(string) string) error { return os.WriteFile(at("text"), []byte("TEXT"), 0o666) }, Options{}, 0, 0},
		{"a folder more", func(at func(string) string) error { return os.Mkdir(at("more"), 0o777) }, Options{}, 0, 0},
		{"a symbolic link more", func(at func(string) string) error { return os.Symlink("text", at("more")) }, Options{}, 0, 0},
		{"another name of a file", func(at func(string) string) error { return os.Link(at("text"), at("z")) }, Options{}, 0, 0},
		{"a file less", func(at func(string) string) error { return os.Remove(at("text")) }, Options{}, 6, 5},
		{"an empty file more", func(at func(string) string) error { return os.WriteFile(at("more"), nil, 0o666) }, Options{}, 6, 7},
		{"another size", func(at func(string) string) error { return os.Truncate(at("text"), 3) }, Options{}, 6, 6},
		{"another name", func(at func(string) string) error { return os.Rename(at("text"), at("txet")) }, Options{}, 6, 6},
		{"another first name", func(at func(string) string) error { return os.Link(at("text"), at("a")) }, Options{}, 6, 6},
		{"another folder", func(at func(string) string) error { return os.Rename(at("sub"), at("bus")) }, Options{}, 6, 6},
		{"two files that are one", func(at func(string) string) error {
			return errors.Join(os.Remove(at("sub/prog")), os.Link(at("prog"), at("sub/prog")))
		}, Options{}, 6, 5},
		{"other contents of an image", func(at func(string) string) error { return os.WriteFile(at("image/blobs/0"), []byte("BLOB"), 0o666) }, opened, 0, 0},
		{"another file in an image", func(at func(string) string) error { return os.Rename(at("image/blobs/0"), at("image/blobs/1")) }, opened, 0, 0},
		{"an image of another size", func(at func(string) string) error { return os.Truncate(at("image/blobs/0"), 3) }, opened, 5, 5},
		{"no image", func(at func(string) string) error { return os.Remove(at("image/oci-layout")) }, opened, 5, 5},
		{"a file of the size of an image", func(at func(string) string) error {
			return errors.Join(os.RemoveAll(at("image")), os.WriteFile(at("image"), []byte("{}blob"), 0o666))
		}, opened, 5, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dirs := [2]string{t.TempDir(), t.TempDir()}
			p := &puzzle{t, rand.New(rand.NewPCG(1, 4)), t.TempDir(), 0}
			var shards [2][3]string
			for i, dir := range dirs {
				plant(t, dir)
				if i == 1 {
					if err := tt.change(func(name string) string { return filepath.Join(dir, "tree", name) }); err != nil {
						t.Fatal(err)
					}
				}
				for k := range shards[i] {
					tt.opt.Shard = Shard{k + 1, 3}
					shards[i][k] = p.part(runIn(t, dir, tt.opt, "tree"))
				}
			}
			tt.opt.Shard = Shard{}
			want := forms(t, runIn(t, dirs[0], tt.opt, "tree"))
			merge := func(parts ...string) (*Survey, error) {
				return Merge(t.Context(), parts, MergeOptions{Partial: true}, nil)
			}
			some := func(parts ...string) string {
				s, err := merge(parts...)
				if err != nil {
					t.Fatal(err)
				}
				return p.part(s)
			}
			a, b := &shards[0], &shards[1]
			both := some(a[2], a[0])
			for _, other := range []struct {
				parts []string
				in    string // which part has the shards of the first tree
			}{
				{a[:], ""}, // without a change
				{[]string{a[0], b[1], a[2]}, fmt.Sprintf("%s and 1 other", a[0])},
				{[]string{b[1], both}, both},
				{[]string{some(b[1]), both}, both},
				{[]string{both, a[0], b[1], a[2]}, ""},
			} {
				s, err := merge(other.parts...)
				if tt.first == 0 || other.parts[0] == a[0] && other.parts[1] == a[1] {
					if err != nil {
						t.Fatal(err)
					}
					differ(t, "merged", forms(t, s), want)
					continue
				}
				if err == nil {
					t.Fatalf("%q are merged", other.parts)
				}
				const start = "shards of 3 of tree do not fit, as names, sizes or unreadable files differ: "
				for _, want := range []string{
					fmt.Sprintf("shards 1 and 3 of a state with %d files (%s", tt.first, other.in),
					fmt.Sprintf("shard 2 of a state with %d files (", tt.second), "; survey all shards of one state",
				} {
					if !strings.HasPrefix(err.Error(), start) || !strings.Contains(err.Error(), want) {
						t.Errorf("%q: error is %v; %q was expected", other.parts, err, want)
					}
				}
			}
		})
	}
}

// TestDivisionsNamed names three divisions.
func TestDivisionsNamed(t *testing.T) {
	dir := t.TempDir()
	var parts []string
	for i, files := range []int{4, 4, 1000, 4, 9} {
		b := smallPart(t, Options{Shard: Shard{i + 1, 6}})
		parts = append(parts, filepath.Join(dir, fmt.Sprint(i+1)))
		if err := os.WriteFile(parts[i], bytes.Replace(b, []byte(`"divided":{"files":4,`), fmt.Appendf(nil, `"divided":{"files":%d,`, files), 1), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		rand.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		_, err := Merge(t.Context(), parts, MergeOptions{}, nil)
		want := fmt.Sprintf("shards of 6 of . do not fit, as names, sizes or unreadable files differ: shards 1, 2 and 4 of a state with 4 files (%[1]s/1 and 2 others), "+
			"shard 3 of a state with 1,000 files (%[1]s/3), shard 5 of a state with 9 files (%[1]s/5); survey all shards of one state", dir)
		if err == nil || err.Error() != want {
			t.Errorf("%v; %s was expected", err, want)
		}
	}
}

// TestDividedElsewhere merges shards of the same tree at two places, to which a symbolic link of the same name leads.
func TestDividedElsewhere(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		plant(t, dir)
	}
	if err := errors.Join(os.Remove(dirs[1]+"/link"), os.Symlink(dirs[0]+"/tree", dirs[1]+"/link")); err != nil {
		t.Fatal(err)
	}
	p := &puzzle{t, rand.New(rand.NewPCG(1, 5)), t.TempDir(), 0}
	var parts []string
	for i := range 5 {
		parts = append(parts, p.part(runIn(t, dirs[i%2], Options{Shard: Shard{i + 1, 5}}, "link")))
	}
	want := runIn(t, dirs[1], Options{}, "link") // an absolute name is before the other one
	differ(t, "by two links", forms(t, p.join(parts)), forms(t, want))
}

// TestDividedOtherwise merges shards of two states of a tree, which are of other numbers of shards or other paths: nothing of the
// divisions is compared, and what they have in common has not changed. A shard without files counts as any other.
func TestDividedOtherwise(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	p := &puzzle{t, rand.New(rand.NewPCG(1, 6)), t.TempDir(), 0}
	shard := func(i, n int, paths ...string) string {
		return p.part(runIn(t, dir, Options{Shard: Shard{i, n}}, paths...))
	}
	before := []string{shard(1, 3, "tree"), shard(2, 3, "tree"), shard(20, 20, "tree")}
	if err := os.Remove(dir + "/tree/text"); err != nil {
		t.Fatal(err)
	}
	whole := p.part(runIn(t, dir, Options{}, "tree/sub"))
	for _, after := range []string{shard(1, 2, "tree"), shard(3, 3, "tree/sub"), shard(3, 3, "tree", "tree/sub"), whole} {
		for _, part := range before {
			if _, err := Merge(t.Context(), []string{part, after}, MergeOptions{Partial: true}, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for _, part := range []string{shard(19, 20, "tree"), shard(20, 20, "tree")} {
		if _, err := Merge(t.Context(), []string{before[2], part}, MergeOptions{Partial: true}, nil); err == nil || !strings.Contains(err.Error(), "do not fit") {
			t.Errorf("a shard without files: error is %v", err)
		}
	}
	empty := t.TempDir()
	var parts []string
	for i := range 3 {
		parts = append(parts, p.part(runIn(t, empty, Options{Shard: Shard{i + 1, 3}}, ".")))
	}
	differ(t, "an empty folder", forms(t, p.join(parts)), forms(t, runIn(t, empty, Options{}, ".")))
}

// TestDividedAtRandom changes one thing in one of two folders while shards of them are made. That is refused, in whatever steps they are
// merged, if there are shards of that folder from before and from after.
func TestDividedAtRandom(t *testing.T) {
	refused, seeds := 0, long.Pick(t, uint64(40), 300)
	for seed := range seeds {
		p := &puzzle{t, rand.New(rand.NewPCG(seed, 7)), t.TempDir(), 0}
		dir := t.TempDir()
		var names []string
		at := func(name string) string { return filepath.Join(dir, name) }
		write := func() error {
			name := fmt.Sprintf("x/%c/%d", 'a'+rune(p.IntN(3)), len(names))
			if len(names)%3 == 2 {
				name = "y" + name[1:]
			}
			names = append(names, name)
			b := bytes.Repeat([]byte{0}, p.IntN(20))
			if p.IntN(2) == 0 {
				b = append([]byte("\x7fELF\x01"), b...)
			}
			return errors.Join(os.MkdirAll(filepath.Dir(at(name)), 0o777), os.WriteFile(at(name), b, 0o666))
		}
		for range 3 + p.IntN(30) {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		groups := [][]string{{"x"}, {"y"}}
		if p.IntN(2) == 0 {
			groups = [][]string{{"x", "y"}}
		}
		type part struct {
			group []string
			shard Shard
			after bool
		}
		var planned []part
		states := make(map[bool]bool) // of x
		for _, group := range groups {
			n := 2 + p.IntN(8)
			late := p.IntN(3) // of ten shards
			for i := range n {
				made := part{group, Shard{i + 1, n}, p.IntN(10) < late*late}
				planned = append(planned, made)
				if slices.Contains(group, "x") {
					states[made.after] = true
				}
			}
		}
		var parts []string
		survey := func(after bool) {
			for _, part := range planned {
				if part.after == after {
					parts = append(parts, p.part(runIn(t, dir, Options{Shard: part.shard}, part.group...)))
				}
			}
		}
		survey(false)
		name := names[0] // which is in x
		var err error
		switch p.IntN(4) {
		case 0:
			err = os.Remove(at(name))
		case 1:
			err = os.Rename(at(name), at("x/renamed"))
		case 2:
			err = os.WriteFile(at(name), make([]byte, 100), 0o666)
		case 3:
			err = os.WriteFile(at("x/more"), nil, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		survey(true)
		var merged *Survey
		for len(parts) > 0 && err == nil {
			p.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
			n := 1 + p.IntN(len(parts))
			if merged, err = Merge(t.Context(), parts[:n], MergeOptions{Partial: true}, nil); err == nil && n < len(parts) {
				parts = append(parts[n:], p.part(merged))
			} else {
				break
			}
		}
		switch {
		case len(states) == 2:
			refused++
			if err == nil || !strings.Contains(err.Error(), " do not fit") || !strings.Contains(err.Error(), p.dir) {
				t.Fatalf("seed %d: error is %v", seed, err)
			}
		case err != nil:
			t.Fatalf("seed %d: %v", seed, err)
		case states[true]:
			differ(t, fmt.Sprint("seed ", seed), forms(t, merged), forms(t, runIn(t, dir, Options{}, "x", "y")))
		}
	}
	if n := int(seeds); refused < n/4 || refused > n*3/4 {
		t.Errorf("%d of %d are refused", refused, n)
	}
}
