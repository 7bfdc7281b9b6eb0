package corpus

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// A way is how a file is started.
type way string

const (
	// program: its loader has to come to the constructors, of which the first, that of
	// a preloaded library, ends the process. Nothing of the program itself runs.
	program way = "program"
	// static: executables without a loader make the same system calls; see trace.
	static way = "static program"
	// library: dlopen.
	library way = "library"
	// interpreter: ld.so, which is given a program to load.
	interpreter way = "interpreter"
)

// An outcome is what became of one start.
type outcome struct {
	mark string // what shows that it started, or ""
	why  string // otherwise, why it did not
}

func (o outcome) String() string {
	if o.mark != "" {
		return o.mark
	}
	return "not started: " + o.why
}

// starter starts originals and results, and counts. Nothing is run in the place where
// it was found: copies without special modes or capabilities are.
type starter struct {
	places *places
	mu     sync.Mutex
	counts map[string]*count // by system and way
	skips  map[string]int    // by reason
	differ int
}

type count struct {
	before, after, differ int
	failed                map[string]int // not started before, by reason
}

func newStarter(root string) (*starter, error) {
	p, err := newPlaces(root)
	if err != nil {
		return nil, err
	}
	return &starter{places: p, counts: make(map[string]*count), skips: make(map[string]int)}, nil
}

func (s *starter) close() { s.places.close() }

// check starts the file and what became of it in all ways that there are, in a
// scratch folder inside the root.
func (s *starter) check(original, result, scratch string) error {
	k, err := kindOf(original)
	if err != nil {
		s.skip(err.Error())
		return nil
	}
	if len(k.ways) == 0 {
		s.skip(k.none)
		return nil
	}
	systems, err := s.places.systems(k.machine)
	if err != nil {
		s.skip(err.Error())
		return nil
	}
	name := filepath.Base(original)
	before, after := filepath.Join(scratch, "before", name), filepath.Join(scratch, "after", name)
	if err := copyFile(original, before); err != nil {
		return err
	}
	if err := copyFile(result, after); err != nil {
		return err
	}
	dirs := k.libraryDirs(s.places.inside(filepath.Dir(original)))
	for _, sys := range systems {
		for _, w := range k.ways {
			if w == static && sys.emulator != nil {
				s.skip("static program for " + sys.name)
				continue
			}
			b, a := sys.start(w, before, dirs), sys.start(w, after, dirs)
			s.count(original, sys.name+" "+string(w), b, a)
		}
	}
	return nil
}

func (s *starter) skip(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skips[reason]++
}

func (s *starter) count(file, what string, before, after outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[what]
	if c == nil {
		c = &count{failed: make(map[string]int)}
		s.counts[what] = c
	}
	if before.mark == "" {
		c.failed[before.why]++
	} else {
		c.before++
	}
	if after.mark != "" {
		c.after++
	}
	if before.mark != "" && before.mark != after.mark {
		c.differ++
		s.differ++
		fmt.Printf("WRONG %s: as a %s: original %.400q, converted %.400q\n", file, what, before, after)
	}
}

func (s *starter) print() {
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		c := s.counts[what]
		failed := 0
		for _, n := range c.failed {
			failed += n
		}
		fmt.Printf("started as %s: %d before, %d after, %d differences; %d did not start before\n", what, c.before, c.after, c.differ, failed)
		printCounts(c.failed)
	}
	n := 0
	for _, k := range s.skips {
		n += k
	}
	fmt.Printf("not tried to start: %d\n", n)
	printCounts(s.skips)
	for _, note := range s.places.notes {
		fmt.Println("note:", note)
	}
}

func printCounts(counts map[string]int) {
	keys := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	for _, k := range keys {
		fmt.Printf("  %6d: %s\n", counts[k], k)
	}
}

// kind is what the headers of a file say about starting it.
type kind struct {
	machine elf.Machine
	ways    []way
	none    string   // why there is no way
	paths   []string // where it looks for libraries itself
}

func kindOf(path string) (*kind, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("debug/elf cannot read it: %s", generalize(err.Error()))
	}
	defer f.Close()
	k := &kind{machine: f.Machine}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		k.none = fmt.Sprint(f.Type)
		return k, nil
	}
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, err := f.DynString(tag)
		if err != nil {
			continue // without a dynamic section
		}
		for _, v := range values {
			k.paths = append(k.paths, strings.Split(v, ":")...)
		}
	}
	loaded := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	flags, _ := f.DynValue(elf.DT_FLAGS_1)
	pie := len(flags) > 0 && elf.DynFlag1(flags[0])&elf.DF_1_PIE != 0
	soname, _ := f.DynString(elf.DT_SONAME)
	switch {
	case loaded:
		k.ways = append(k.ways, program)
	case f.Type == elf.ET_EXEC || pie:
		k.ways = append(k.ways, static)
	case f.Entry != 0 && strings.HasPrefix(filepath.Base(path), "ld"):
		k.ways = append(k.ways, interpreter)
	}
	// libc.so.6 is a library with a loader, and ld.so one without.
	if f.Type == elf.ET_DYN && !pie && (!loaded || len(soname) > 0) {
		k.ways = append(k.ways, library)
	}
	return k, nil
}

// libraryDirs returns where the file's libraries are, for a copy of it in another
// folder. Plugins rely on the program that loads them to know the folder they are in.
func (k *kind) libraryDirs(origin string) []string {
	var dirs []string
	for _, p := range k.paths {
		p = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(p)
		if filepath.IsAbs(p) {
			dirs = append(dirs, filepath.Clean(p))
		}
	}
	return append(dirs, origin)
}

// copyFile makes a copy that can be run.
func copyFile(from, to string) error {
	// A process that another goroutine forks in between would have the copy open for
	// writing, and until it has closed it, nobody can run it.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return cmp.Or(err, dst.Close())
}

// because shortens what a failed start printed to a reason: the last line.
func because(output, status string) string {
	output = strings.TrimSpace(output)
	if output == "" {
		return status
	}
	return fmt.Sprintf("%s, %s", status, generalize(fmt.Sprintf("%.120q", output[strings.LastIndex(output, "\n")+1:])))
}
