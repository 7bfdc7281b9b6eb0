package survey

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// forms returns the survey in all its forms.
func forms(t *testing.T, s *Survey) map[string][]byte {
	t.Helper()
	out := make(map[string][]byte)
	for _, form := range Forms {
		var b bytes.Buffer
		if err := s.Write(&b, form); err != nil {
			t.Fatal(err)
		}
		out[form] = b.Bytes()
	}
	return out
}

// differ says where two forms are different.
func differ(t *testing.T, what string, got, want map[string][]byte) {
	t.Helper()
	for _, form := range Forms {
		g, w := bytes.Split(got[form], []byte("\n")), bytes.Split(want[form], []byte("\n"))
		for i := range max(len(g), len(w)) {
			a, b := []byte("(nothing)"), []byte("(nothing)")
			if i < len(g) {
				a = g[i]
			}
			if i < len(w) {
				b = w[i]
			}
			if !bytes.Equal(a, b) {
				t.Fatalf("%s: %s, line %d: %.400q; one survey has %.400q", what, form, i+1, a, b)
			}
		}
	}
}

// A puzzle makes parts of surveys, and puts them together.
type puzzle struct {
	*testing.T
	*rand.Rand
	dir   string
	files int
}

// part writes a survey to a file.
func (p *puzzle) part(s *Survey) string {
	p.Helper()
	p.files++
	name := filepath.Join(p.dir, fmt.Sprintf("%d.json", p.IntN(1<<30)*1000+p.files))
	f, err := os.Create(name)
	if err == nil {
		err = errors.Join(s.JSON(f), f.Close())
	}
	if err != nil {
		p.Fatal(err)
	}
	return name
}

// cut surveys paths in parts: some paths together, some of them in several parts, or divided into shards.
func (p *puzzle) cut(paths []string, opt Options) []string {
	p.Helper()
	paths = slices.Clone(paths)
	var parts []string
	for len(paths) > 0 {
		p.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		n := 1 + p.IntN(len(paths))
		these := paths[:n]
		shards := 1 + max(0, p.IntN(12)-6)
		for i := range shards {
			opt.Shard = Shard{i + 1, shards}
			opt.Jobs = 1 + p.IntN(3)
			parts = append(parts, p.part(run(p.T, opt, these...)))
		}
		if keep := p.IntN(5); keep > 0 { // or else they are also in another part
			paths = paths[n:]
		}
	}
	return parts
}

// join merges the parts: all together, or some before the others.
func (p *puzzle) join(parts []string) *Survey {
	p.Helper()
	for p.IntN(2) == 0 {
		p.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		n := 1 + p.IntN(len(parts))
		s, err := Merge(p.Context(), parts[:n], MergeOptions{Partial: true, Jobs: 1 + p.IntN(3)}, nil)
		if err != nil && strings.Contains(err.Error(), ", which has missing shards") {
			continue
		}
		if err != nil {
			p.Fatal(err)
		}
		made := p.part(s)
		if p.IntN(3) > 0 { // or else they are there twice
			parts = parts[n:]
		}
		parts = append(parts, made)
	}
	s, err := Merge(p.Context(), parts, MergeOptions{}, nil)
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// jungle makes a tree with everything that names and files can be.
func jungle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, b []byte) {
		t.Helper()
		must(os.MkdirAll(filepath.Dir(at(name)), 0o777))
		must(os.WriteFile(at(name), b, 0o666))
	}
	must(os.CopyFS(at("all"), os.DirFS(fixtures)))
	var names []string
	must(filepath.WalkDir(at("all/amd64"), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	}))
	for i, name := range names {
		b, err := os.ReadFile(name)
		must(err)
		write(fmt.Sprintf("sub/%d.d/%s", i%3, filepath.Base(name)), b)
		write(fmt.Sprintf("sub/%d/%s", i%3, filepath.Base(name)), b) // 0.d/x goes before 0/x
		if i%4 == 0 {
			must(os.Link(name, at(fmt.Sprintf("sub/hard%d", i))))
			write(fmt.Sprintf("bad/\xff%d\xfe", i), b)
			write(fmt.Sprintf("bad/�%d�", i), b)
			write(fmt.Sprintf("bad/<&\"\n\x1b,%d", i), b[:len(b)/2])
			write(fmt.Sprintf("bad/short%d", i), b[:20])
		}
	}
	must(os.Link(at("all/amd64/drap1"), at("sub/0/also"))) // which is met before the next one, but comes after it
	must(os.Link(at("sub/0/also"), at("sub/0.d/also")))
	drap, err := os.ReadFile(at("all/amd64/drap1"))
	must(err)
	object := slices.Clone(drap)
	object[16] = 1 // ET_REL
	write("lib/object.o", object)
	write("lib/lib.a", elftest.Ar(elftest.ArMember("z.o/", drap), elftest.ArMember("a.o/", drap),
		elftest.ArMember("z.o/", drap), elftest.ArMember("\xff/", drap)))
	write("lib/\xfe.a", elftest.Ar(elftest.ArMember("a.o/", drap), elftest.ArMember("(b)/", drap[:50])))
	write("lib/lib.a(z.o)", drap)
	write("lib/empty.a", elftest.Ar())
	write("lib/broken.a", []byte("!<arch>\nxxx"))
	for i := range 9 {
		write(fmt.Sprintf("text/%d/text", i), bytes.Repeat([]byte("text"), i*i))
	}
	must(os.Link(at("text/1/text"), at("lib/text")))
	must(os.Symlink("sub", at("link")))
	must(os.Symlink("../all/amd64/drap1", at("bad/file")))
	must(os.Symlink("..", at("sub/loop")))
	must(os.Symlink("gone", at("sub/dangling")))
	return dir
}

// TestPartitions cuts a survey into parts at random, and expects what they make to be what one survey is.
func TestPartitions(t *testing.T) {
	t.Parallel()
	dir := jungle(t)
	var all []string // files and directories, and symbolic links to both
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if _, stat := os.Stat(name); err == nil && stat == nil {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	nested := []string{dir} // those that lie in one another, lead to one another, or have files with names in others
	for _, name := range []string{"sub", "link", "sub/0.d", "sub/0", "sub/loop", "all", "all/amd64", "lib", "text",
		"text/1"} {
		nested = append(nested, filepath.Join(dir, name))
	}
	for seed := range long.Pick(t, uint64(6), 60) {
		p := &puzzle{t, rand.New(rand.NewPCG(seed, 0)), t.TempDir(), 0}
		var paths []string
		for range 1 + p.IntN(8) {
			from := all
			if p.IntN(2) == 0 {
				from = nested
			}
			paths = append(paths, from[p.IntN(len(from))])
		}
		opt := Options{Settings: Settings{Objects: p.IntN(2) == 0}}
		want := run(t, opt, paths...)
		differ(t, fmt.Sprintf("seed %d, %q", seed, paths), forms(t, p.join(p.cut(paths, opt))), forms(t, want))
	}
}

// TestOverlap merges parts of a directory and of one in there: what is of both counts once, also by another name.
func TestOverlap(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(fixtures + "amd64/drap1")
	if err == nil {
		err = errors.Join(os.Mkdir(dir+"/in", 0o777), os.Symlink("in", dir+"/link"),
			os.WriteFile(dir+"/text", b[4:], 0o666), os.WriteFile(dir+"/in/text", b[4:], 0o666))
	}
	for _, name := range []string{"a", "b", "in/c", "in/d", "in/e", "in/f"} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
	if err := errors.Join(err, os.Link(dir+"/a", dir+"/in/hard")); err != nil {
		t.Fatal(err)
	}
	p := &puzzle{t, rand.New(rand.NewPCG(1, 1)), t.TempDir(), 0}
	var shards []string
	for i := range 3 {
		shards = append(shards, p.part(run(t, Options{Shard: Shard{i + 1, 3}}, dir)))
	}
	for _, inner := range []string{"in", "link"} {
		in := p.part(run(t, Options{}, dir+"/"+inner))
		_, err := Merge(t.Context(), []string{shards[0], in}, MergeOptions{Partial: true}, nil)
		if want := fmt.Sprintf("%s/%s lies in %s, which has missing shards; add them, or merge the two apart", dir,
			inner, dir); err == nil || err.Error() != want {
			t.Errorf("error is %v, want %s", err, want)
		}
		s, err := Merge(t.Context(), append(shards, in), MergeOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		differ(t, inner, forms(t, s), forms(t, run(t, Options{}, dir, dir+"/"+inner)))
	}
	// The same file with other contents, by whatever name.
	before := p.part(run(t, Options{}, dir+"/in"))
	if err := os.WriteFile(dir+"/in/d", b[:len(b)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/in", "/link", "/in/d", ""} {
		after := p.part(run(t, Options{}, dir+path))
		_, err := Merge(t.Context(), []string{before, after}, MergeOptions{}, nil)
		if err == nil || !strings.Contains(err.Error(), before) || !strings.Contains(err.Error(), after) ||
			!strings.Contains(err.Error(), "/d differs from that in ") {
			t.Errorf("%s: error is %v", path, err)
		}
	}
	// A file more or less, and other ones that are not ELF.
	for what, change := range map[string]func() error{
		"/in/f is not in ": func() error { return os.Remove(dir + "/in/f") },
		"not ELF: 1":       func() error { return os.Remove(dir + "/in/text") },
	} {
		before := p.part(run(t, Options{}, dir+"/in"))
		if err := change(); err != nil {
			t.Fatal(err)
		}
		after := p.part(run(t, Options{}, dir+"/in"))
		if _, err := Merge(t.Context(), []string{before, after}, MergeOptions{}, nil); err == nil ||
			!strings.Contains(err.Error(), before) ||
			!strings.Contains(err.Error(), after) || !strings.Contains(err.Error(), what) {
			t.Errorf("error is %v; want %q", err, what)
		}
	}
}

// TestPartialMerges merges some of the parts of surveys of paths that lie in one another: the result does not depend on
// the order.
func TestPartialMerges(t *testing.T) {
	t.Parallel()
	dir := jungle(t)
	nested := []string{dir}
	for _, name := range []string{"sub", "link", "sub/0.d", "sub/0", "sub/loop", "bad/file", "all/amd64/drap1",
		"link/loop/sub", "text", "text/1", "link/0"} {
		nested = append(nested, filepath.Join(dir, name))
	}
	for seed := range long.Pick(t, uint64(2), 20) {
		p := &puzzle{t, rand.New(rand.NewPCG(seed, 3)), t.TempDir(), 0}
		var paths []string
		for range 2 + p.IntN(5) {
			paths = append(paths, nested[p.IntN(len(nested))])
		}
		parts := p.cut(paths, Options{})
		p.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		parts = parts[:1+p.IntN(len(parts))]
		var want map[string][]byte
		for range 3 {
			s, err := Merge(t.Context(), parts, MergeOptions{Partial: true}, nil)
			if err != nil && strings.Contains(err.Error(), ", which has missing shards") {
				break
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			got := forms(t, s)
			if want != nil {
				differ(t, fmt.Sprintf("seed %d, %q", seed, paths), got, want)
			}
			want = got
			for i, name := range parts { // the parts are read in the order of their names
				to := filepath.Join(p.dir, fmt.Sprintf("%d.%d.json", p.IntN(1<<30), i))
				if err := os.Rename(name, to); err != nil {
					t.Fatal(err)
				}
				parts[i] = to
			}
		}
	}
}

// TestSystem has the same for the programs and libraries of this machine, and of others.
func TestSystem(t *testing.T) {
	t.Parallel()
	long.Test(t)
	var paths []string
	for _, root := range []string{"", peer.Root(t, "sid"), peer.Root(t, "trixie")} {
		for _, dir := range []string{"/usr/bin", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/libexec"} {
			entries, err := os.ReadDir(root + dir)
			if err != nil {
				t.Log(err)
			}
			for _, e := range entries {
				name := filepath.Join(root, dir, e.Name())
				if _, err := os.Stat(name); err == nil {
					paths = append(paths, name)
				}
			}
		}
	}
	opt := Options{Settings: Settings{Objects: true}}
	want := run(t, opt, paths...)
	if want.Total.Files < 5000 {
		peer.Missing(t, fmt.Sprintf("%d ELF files here; want 5,000", want.Total.Files))
	}
	p := &puzzle{t, rand.New(rand.NewPCG(1, 1)), t.TempDir(), 0}
	differ(t, "merged", forms(t, p.join(p.cut(paths, opt))), forms(t, want))
	t.Logf("%d files below %d paths, in %d parts", want.Total.Files, len(paths), p.files)
}

// TestFirstName counts a file with several names by the first of them, which need not be the one that is met first.
func TestFirstName(t *testing.T) {
	dir := jungle(t) + "/sub"
	for _, shard := range []Shard{{}, {1, 1}, {1, 2}, {2, 2}} {
		for _, l := range run(t, Options{Shard: shard}, dir).Files {
			if l.File == dir+"/0/also" {
				t.Errorf("%+v: %s is there; want 0.d/also", shard, l.File)
			}
		}
	}
}

// TestOrder has the same for paths in any order.
func TestOrder(t *testing.T) {
	dir := jungle(t)
	paths := []string{dir + "/all", dir + "/sub/../sub/", dir + "/lib/lib.a", dir + "/all", dir + "/sub/0.d",
		dir + "/link"}
	want := forms(t, run(t, Options{}, paths...))
	for range 5 {
		rand.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		differ(t, strings.Join(paths, " "), forms(t, run(t, Options{}, paths...)), want)
	}
}

// TestManyPaths has rows for those paths with most files, and says that there are more.
func TestManyPaths(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(fixtures + "amd64/drap1")
	if err != nil {
		t.Fatal(err)
	}
	const n = maxPaths + 1003
	var paths []string
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("path%04d", i))
		paths = append(paths, path)
		files := 1
		if i >= 1000 && i < 1000+maxPaths {
			files = 2
		}
		for j := range files {
			err := os.MkdirAll(path, 0o777)
			if err == nil {
				err = os.WriteFile(filepath.Join(path, fmt.Sprint(j)), b, 0o666)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(paths[1000], "text"), []byte("text"), 0o666); err != nil {
		t.Fatal(err)
	}
	out := forms(t, run(t, Options{}, paths...))
	const note = "Of 1,023 paths the 20 with most files have rows; there are 1,003 more, which the JSON form has."
	// unwindable code, occurrence, coverage, and what is not translated
	if got := strings.Count(string(out["text"]), note+"\n"); got != 4 {
		t.Errorf("%d notes in\n%s", got, out["text"])
	}
	for i, path := range paths {
		shown := i >= 1000 && i < 1000+maxPaths
		if bytes.Contains(out["text"], []byte("\n  "+path+" ")) != shown {
			t.Errorf("%s: a row is expected: %t", path, shown)
		}
		if !bytes.Contains(out["json"], []byte(fmt.Sprintf("{\"name\":%q", path))) {
			t.Errorf("%s is not in the JSON form", path)
		}
	}
	if !bytes.Contains(out["html"], []byte(note)) {
		t.Error("the page has no note")
	}
}

// TestTies has more functions with equal losses than a survey keeps, in a path that gets another name by a part
// that is merged with it. Which of them count must not depend on that.
func TestTies(t *testing.T) {
	dir := t.TempDir()
	b, err := os.ReadFile(fixtures + "amd64/drap1")
	err = errors.Join(err, os.MkdirAll(dir+"/a/b", 0o777), os.MkdirAll(dir+"/d", 0o777), os.Symlink("a", dir+"/sa"))
	for i := range maxWorst {
		err = errors.Join(err, os.WriteFile(fmt.Sprintf("%s/a/b/%02d", dir, i), b, 0o666))
	}
	if err = errors.Join(err, os.WriteFile(dir+"/d/x", b, 0o666)); err != nil {
		t.Fatal(err)
	}
	p := &puzzle{t, rand.New(rand.NewPCG(1, 3)), t.TempDir(), 0}
	one, two := p.part(run(t, Options{}, dir+"/a/b", dir+"/d")), p.part(run(t, Options{}, dir+"/sa"))
	s, err := Merge(t.Context(), []string{one, two}, MergeOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	differ(t, "merged", forms(t, s), forms(t, run(t, Options{}, dir+"/a/b", dir+"/d", dir+"/sa")))
	if n := len(s.WorstFunctions); n != maxWorst || s.WorstFunctions[0].File != dir+"/sa/b/00" {
		t.Errorf("%d functions, the first of them of %s; want %d, and sa/b/00", n,
			s.WorstFunctions[0].File, maxWorst)
	}
}
