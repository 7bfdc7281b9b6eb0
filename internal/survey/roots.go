package survey

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/internal/outfile"
)

// A root is one of the given paths.
type root struct {
	name    string  // as it was given, but clean: names of files begin with it
	real    string  // where it leads to
	skipped Skipped // below it
	partial bool    // there are shards of it that are missing
}

// place returns what a file below the path is called where that leads to, whichever of the paths that lead there is given.
func (r *root) place(file string) string {
	if r.real == r.name {
		return file
	}
	return filepath.Join(r.real, strings.TrimPrefix(file, r.name))
}

// newRoots finds out where the paths lead to. They are sorted by name, and one that is given twice is one.
func newRoots(paths []string) ([]root, error) {
	var out []root
	for _, given := range paths {
		real, err := filepath.EvalSymlinks(given)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", given, outfile.Plain(err))
		}
		name := filepath.Clean(given)
		if !sameFile(name, given) { // as link/.. is not what it is lexically
			name = real
		}
		out = append(out, root{name: name, real: real})
	}
	slices.SortFunc(out, func(a, b root) int { return cmp.Compare(a.name, b.name) })
	return slices.CompactFunc(out, func(a, b root) bool { return a.name == b.name }), nil
}

func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// absolute returns where the roots lead to from anywhere.
func absolute(roots []root) []string {
	out := make([]string, len(roots))
	for i := range roots {
		out[i] = roots[i].real
		if abs, err := filepath.Abs(out[i]); err == nil {
			out[i] = abs
		}
	}
	return out
}

// A nest says which paths lie in which others.
type nest struct {
	real  []string
	first map[string]int // index of the first path that leads there
}

func newNest(real []string) *nest {
	n := &nest{real: real, first: make(map[string]int, len(real))}
	for i, name := range real {
		if _, ok := n.first[name]; !ok {
			n.first[name] = i
		}
	}
	return n
}

// around returns the paths that one lies in, the outermost last. Of those that lead to the same place the first has the others
// in it.
func (n *nest) around(i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if j := n.first[n.real[i]]; j != i && !yield(j) {
			return
		}
		for dir, ok := parent(n.real[i]); ok; dir, ok = parent(dir) {
			if j, ok := n.first[dir]; ok && !yield(j) {
				return
			}
		}
	}
}

// covers says for each of the paths which is the outermost one that it lies in, so that nothing is left for it to lead to. It is
// -1 for a path that lies in no other.
func covers(real []string) []int {
	n := newNest(real)
	out := make([]int, len(real))
	for i := range real {
		out[i] = -1
		for j := range n.around(i) {
			out[i] = j
		}
	}
	return out
}

// parent returns the folder that a path lies in, as far as its name tells.
func parent(name string) (string, bool) {
	dir := filepath.Dir(name)
	return dir, dir != name && filepath.Base(name) != ".."
}
