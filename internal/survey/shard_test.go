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

// TestShards has each file in the shard that the rule says: by size, the largest first and then by name, each to the first of
// those that have least.
func TestShards(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	elf := []byte("\x7fELF\x01") // of 32 bits, which is refused, and counted
	type file struct {
		name string
		size int
		elf  bool
	}
	var files []file
	for i := range 200 {
		f := file{filepath.Join(dir, fmt.Sprintf("%c%d", 'a'+r.IntN(26), i)), r.IntN(30), i%3 > 0}
		b := make([]byte, f.size)
		if f.elf {
			b = append(slices.Clone(elf), b...)
		}
		f.size = len(b)
		files = append(files, f)
		if err := os.WriteFile(f.name, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(files, func(a, b file) int {
		if a.size != b.size {
			return b.size - a.size
		}
		return strings.Compare(a.name, b.name)
	})
	for _, n := range []int{1, 2, 3, 7, 199, 300} {
		sums, names, others := make([]int, n), make([][]string, n), make([]int, n)
		for _, f := range files {
			to := slices.Index(sums, slices.Min(sums))
			sums[to] += f.size
			if f.elf {
				names[to] = append(names[to], f.name)
			} else {
				others[to]++
			}
		}
		if n < 8 && slices.Max(sums)-slices.Min(sums) > 30 {
			t.Fatalf("%d shards have sizes %v", n, sums)
		}
		for i := range n {
			s := run(t, Options{Shard: Shard{i + 1, n}}, dir)
			var got []string
			for _, l := range s.Files {
				got = append(got, l.File)
			}
			slices.Sort(names[i])
			if !slices.Equal(got, names[i]) || s.Total.Skipped.Other != uint64(others[i]) {
				t.Errorf("shard %d of %d: %q, and %d others; %q, %d were expected", i+1, n, got, s.Total.Skipped.Other, names[i], others[i])
			}
		}
	}
}

// TestShardErrors has what cannot be read in the first shard. A shard whose sum has no 64 bits stays as it was:
// only holes make such sizes.
func TestShardErrors(t *testing.T) {
	all := []candidate{
		{name: "huge1", size: 1<<64 - 1}, {name: "huge2", size: 1<<64 - 1}, {name: "huge3", size: 1<<64 - 1}, {name: "small", size: 1},
		{name: "closed", err: errors.New("closed")}, {name: "shut", err: errors.New("shut")},
	}
	for i, want := range []string{"closed huge1 huge3 shut small", "huge2"} {
		var got []string
		own, _ := Shard{i + 1, 2}.pick(slices.Clone(all))
		for _, c := range own {
			got = append(got, c.name)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("shard %d: %q; %q was expected", i+1, got, want)
		}
	}
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"1/1": {1, 1}, "3/8": {3, 8}, "1048576/1048576": {1 << 20, 1 << 20}} {
		if got, err := ParseShard(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "/", "1", "1/", "/1", "0/1", "2/1", "-1/2", "1/2/3", "1/1048577", "1/99999999999999999999", "a/b", " 1/2", "1.0/2"} {
		if got, err := ParseShard(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
