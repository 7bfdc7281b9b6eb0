package debian

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A system is one of a suite and an architecture, with what is known of it.
type system struct {
	name     string
	packages map[string]*pkg // by folder
	files    []file
}

// A file has what the survey and the conversions say of it.
type file struct {
	pkg  *pkg
	name string            // below the package's folder
	row  map[string]string // its line of the survey, by column
	res  *result           // nil where it is not converted, as objects
}

// number returns a column of the survey.
func (f *file) number(column string) uint64 {
	n, _ := strconv.ParseUint(f.row[column], 10, 64) // empty where it does not apply
	return n
}

// outcome returns what became of the file in a version, or nil.
func (f *file) outcome(format int) *outcome {
	if f.res == nil {
		return nil
	}
	return f.res.Outcomes[format]
}

// lost returns the bytes of which a stack trace loses something.
func (f *file) lost(format int) uint64 {
	var n uint64
	if o := f.outcome(format); o != nil {
		for _, b := range o.Lost {
			n += b
		}
	}
	return n
}

// loadAll reads all results in a folder.
func loadAll(folder string) ([]*system, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.csv"))
	if err != nil {
		return nil, err
	}
	var all []*system
	for _, name := range names {
		s, err := load(strings.TrimSuffix(name, ".csv"))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no results of a survey; scripts/lab debian survey makes them", folder)
	}
	// Stable before unstable, and the larger systems first.
	slices.SortFunc(all, func(a, b *system) int {
		return cmp.Or(cmp.Compare(strings.Count(b.name, "amd64"), strings.Count(a.name, "amd64")),
			cmp.Compare(b.name[:1], a.name[:1]), cmp.Compare(a.name, b.name))
	})
	return all, nil
}

// load reads the results whose names begin with base.
func load(base string) (*system, error) {
	s := &system{name: filepath.Base(base), packages: make(map[string]*pkg)}
	b, err := os.ReadFile(base + ".packages.json")
	if err != nil {
		return nil, err
	}
	var list []*pkg
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s.packages.json: %w", base, err)
	}
	for _, p := range list {
		s.packages[p.Folder] = p
	}
	results, err := readResults(base + ".jsonl")
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*result)
	for _, c := range results {
		for i := range c.Files {
			byName[c.Folder+"/"+c.Files[i].File] = &c.Files[i]
		}
	}
	r, err := os.Open(base + ".csv")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	lines := csv.NewReader(r)
	head, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("%s.csv: %w", base, err)
	}
	for {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s.csv: %w", base, err)
		}
		f := file{row: make(map[string]string)}
		for i, column := range head {
			f.row[column] = record[i]
		}
		below, ok := strings.CutPrefix(f.row["file"], s.name+"/")
		folder, name, _ := strings.Cut(below, "/")
		f.name, f.pkg, f.res = name, s.packages[folder], byName[below]
		if !ok || f.pkg == nil {
			return nil, fmt.Errorf("%s.csv: %s is in no package of the list", base, f.row["file"])
		}
		s.files = append(s.files, f)
	}
}

// choose prints files at random, among those that are converted in both versions.
func choose(s *settings, out io.Writer) error {
	all, err := loadAll(s.results)
	if err != nil {
		return err
	}
	var names []string
	for _, sys := range all {
		for i := range sys.files {
			f := &sys.files[i]
			if a, b := f.outcome(2), f.outcome(3); a != nil && b != nil && a.done() && b.done() {
				names = append(names, filepath.Join(sys.name, f.pkg.Folder, f.name))
			}
		}
	}
	r := rand.New(rand.NewPCG(s.seed, 0))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	names = names[:min(len(names), s.number)]
	slices.Sort(names)
	for _, n := range names {
		if _, err := fmt.Fprintln(out, n); err != nil {
			return err
		}
	}
	return nil
}
