package survey

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/internal/outfile"
)

// newPaths resolves paths. They are sorted by name, without duplicates.
func newPaths(paths []string) ([]Part, error) {
	var out []Part
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, outfile.Plain(err))
		}
		name := filepath.Clean(path)
		if strings.Contains(path, "..") { // link/.. is not the directory of link
			name = real
		}
		out = append(out, newPath(name, real))
	}
	slices.SortFunc(out, func(a, b Part) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b Part) bool { return a.Name == b.Name }), nil
}

func newPath(name, real string) Part {
	p := Part{Name: valid(name), path: name, real: real}
	if real != name {
		p.Real = valid(real)
	}
	return p
}

// leadsTo returns where the path leads to.
func (p *Part) leadsTo() string { return cmp.Or(p.Real, p.Name) }

// place returns where the name of a file below the path leads to. It is the same for all paths that lead there.
func (p *Part) place(file string) string {
	if p.Real == "" {
		return file
	}
	return filepath.Join(p.Real, strings.TrimPrefix(file, p.Name))
}

// enclosing returns a function that lists the paths that a path lies in, the outermost last. real is where paths lead
// to. Of paths that lead to the same place the first encloses the others.
func enclosing(real []string) func(i int) []int {
	first := make(map[string]int, len(real))
	for i, name := range slices.Backward(real) {
		first[name] = i
	}
	return func(i int) (out []int) {
		if j := first[real[i]]; j != i {
			out = append(out, j)
		}
		for dir, ok := parent(real[i]); ok; dir, ok = parent(dir) {
			if j, ok := first[dir]; ok {
				out = append(out, j)
			}
		}
		return out
	}
}

// parent returns the directory that a path lies in, as far as its name tells.
func parent(name string) (string, bool) {
	dir := filepath.Dir(name)
	return dir, dir != name && filepath.Base(name) != ".."
}

// reals returns where paths lead to.
func reals(paths []Part) []string {
	out := make([]string, len(paths))
	for i := range paths {
		out[i] = paths[i].leadsTo()
	}
	return out
}

// skippedBelow adds up what was skipped below paths. Paths that lie in others do not count.
func skippedBelow(paths []Part) Skipped {
	var sum Skipped
	around := enclosing(reals(paths))
	for i := range paths {
		if len(around(i)) == 0 {
			sum.add(paths[i].Skipped)
		}
	}
	return sum
}
