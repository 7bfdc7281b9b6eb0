package debian

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A system is one suite on one architecture.
type system struct {
	name     string
	packages []*pkg
	files    []*file
}

// A file has what the survey and the conversions say of it.
type file struct {
	name   string // with the system and the package
	pkg    *pkg
	row    map[string]string // its line of the survey, by column
	result *result
}

// number returns a column of the survey.
func (f *file) number(column string) uint64 {
	n, _ := strconv.ParseUint(f.row[column], 10, 64) // empty if it does not apply
	return n
}

// converted reports whether there is a new file of the version.
func (f *file) converted(version int) bool {
	o := f.result.Outcomes[version]
	return o.Kept == "" && o.Error == ""
}

// loadAll reads all results in a directory.
func loadAll(dir string) ([]*system, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.results.json"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no results; scripts/lab debian convert makes them", dir)
	}
	var all []*system
	for _, name := range names {
		s, err := load(strings.TrimSuffix(name, ".results.json"))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	// amd64 first, and stable before unstable.
	slices.SortFunc(all, func(a, b *system) int {
		return cmp.Or(cmp.Compare(strings.Count(b.name, "amd64"), strings.Count(a.name, "amd64")),
			cmp.Compare(b.name, a.name))
	})
	return all, nil
}

// load reads the results whose names begin with base. Before convert has run, files have no result.
func load(base string) (*system, error) {
	s := &system{name: filepath.Base(base)}
	results := make(map[string]*result)
	if err := readJSON(base+".packages.json", &s.packages); err != nil {
		return nil, err
	}
	if err := readJSON(base+".results.json", &results); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r, err := os.Open(base + ".csv")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s.csv: %w", base, err)
	}
	for _, line := range lines[min(1, len(lines)):] {
		f := &file{row: make(map[string]string)}
		for i, column := range lines[0] {
			f.row[column] = line[i]
		}
		f.name = f.row["file"]
		below, _ := strings.CutPrefix(f.name, s.name+"/")
		name, _, _ := strings.Cut(below, "/")
		i := slices.IndexFunc(s.packages, func(p *pkg) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s.csv: %s is in no package of the list", base, f.name)
		}
		f.pkg, f.result = s.packages[i], results[f.name]
		s.files = append(s.files, f)
	}
	return s, nil
}

func readJSON(name string, v any) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
