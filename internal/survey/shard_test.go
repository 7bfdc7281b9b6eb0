package survey

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runIn surveys paths as they are from a directory.
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

// plant makes a tree of six files in a directory.
func plant(t testing.TB, dir string) {
	t.Helper()
	b, err := os.ReadFile(fixtures + "amd64/drap1")
	err = errors.Join(err, os.MkdirAll(dir+"/tree/sub", 0o777), os.MkdirAll(dir+"/tree/image/blobs", 0o777),
		os.Symlink("tree", dir+"/link"))
	for name, b := range map[string][]byte{
		"prog": b, "sub/prog": b, "sub/short": b[:64], "text": []byte("text"), "image/oci-layout": []byte("{}"),
		"image/blobs/0": []byte("blob"),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "tree", name), b, 0o666))
	}
	if err != nil {
		t.Fatal(err)
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

// TestShards divides files by their names: each is in one shard, whatever other files there are.
func TestShards(t *testing.T) {
	const n = 7
	of := make(map[string]int)
	sizes := make([]int, n)
	for i := range 7000 {
		name := fmt.Sprintf("dir%d/file%d", i%10, i)
		for index := range n {
			if (Shard{index + 1, n}).has(name) {
				if of[name] > 0 {
					t.Errorf("%s is in shards %d and %d", name, of[name], index+1)
				}
				of[name] = index + 1
				sizes[index]++
			}
		}
		if of[name] == 0 || !(Shard{}).has(name) || !(Shard{1, 1}).has(name) {
			t.Errorf("%s is in no shard", name)
		}
	}
	if least, most := slices.Min(sizes), slices.Max(sizes); least < 900 || most > 1100 {
		t.Errorf("shards have %d files", sizes)
	}
}

// TestChangingTree adds, removes and renames files while shards are made: the others count once.
func TestChangingTree(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir)
	b, err := os.ReadFile(fixtures + "amd64/drap1")
	if err != nil {
		t.Fatal(err)
	}
	p := &puzzle{t, rand.New(rand.NewPCG(1, 4)), t.TempDir(), 0}
	const n = 5
	var parts []string
	for i := range n {
		parts = append(parts, p.part(runIn(t, dir, Options{Shard: Shard{i + 1, n}}, "tree")))
		at := func(name string) string { return fmt.Sprintf("%s/tree/%s%d", dir, name, i) }
		if err := errors.Join(os.WriteFile(at("old"), b, 0o666), os.WriteFile(at("gone"), b, 0o666),
			os.Rename(at("old"), at("new")), os.Remove(at("gone"))); err != nil {
			t.Fatal(err)
		}
	}
	s := p.join(parts)
	var names []string
	for _, r := range s.Files {
		if !strings.Contains(r.File, "tree/new") {
			names = append(names, r.File)
		}
	}
	if want := []string{"tree/prog", "tree/sub/prog", "tree/sub/short"}; !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	empty := t.TempDir()
	parts = nil
	for i := range n {
		parts = append(parts, p.part(runIn(t, empty, Options{Shard: Shard{i + 1, n}}, ".")))
	}
	differ(t, "an empty directory", forms(t, p.join(parts)), forms(t, runIn(t, empty, Options{}, ".")))
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"1/1": {1, 1}, "3/8": {3, 8}, "1048576/1048576": {1 << 20, 1 << 20}} {
		if got, err := ParseShard(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/", "1", "1/", "/1", "0/1", "2/1", "-1/2", "1/2/3", "1/1048577",
		"1/99999999999999999999", "a/b", " 1/2", "1.0/2"} {
		if got, err := ParseShard(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
