// Package survey sums up what SFrame can and cannot say of many files: programs and
// libraries below some paths, without writing anything.
//
// A survey asks what could be translated, not what could be written: whether a file has
// room for two more program headers, and how far its code is from the new section, play
// no part. A file that cannot be read is counted with the reason.
//
// What is kept of a file is a line of a few hundred bytes; of gaps and functions it is sums
// and the worst ones. CFI is in memory only while its file is worked on, and budget
// bounds how much of it there is at a time.
package survey

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"

	"cfi2sframe/sframe"
)

// Schema is the version of the JSON form, which survey.schema.json describes. It changes
// when a field changes its meaning or goes; new fields may come without that.
const Schema = 2

// Settings say what counts. Only surveys with the same ones can be merged.
type Settings struct {
	Objects  bool `json:"objects,omitzero"`  // relocatable objects and archives, too
	Packages bool `json:"packages,omitzero"` // packages that are not given themselves are opened, too
}

// Options say what to survey.
type Options struct {
	Settings
	Tool  string // the program and its version
	Shard Shard  // of what the paths lead to
	Jobs  int    // files that are worked on at a time; 0: as many as there are processors
	Worst int    // how long the lists of the worst are at most; 0: 20
	// Starting, if not nil, is called before a file is worked on, with the bytes of its CFI and its own.
	// It is called for several at a time.
	Starting func(cfi, size uint64)
}

const defaultWorst = 20

// Formats are the versions of SFrame that a survey translates to.
var Formats = sframe.Versions()

// detailed is the index in Formats of the version whose gaps are listed.
const detailed = 1

// A Survey is what there is to say of many files. It does not depend on Options.Jobs. What JSON has beside the fields is
// made of the unexported ones.
type Survey struct {
	Schema int
	Tool   string
	Settings
	Shards []Shards // those that it is of, where others are missing
	ABIs   []Part   // those that there are files of
	// Each file is in one of these: what is of two languages has a name of both.
	Languages []Part
	Compilers []Part
	Total     Sums

	// The worst in format 2, by what a stack trace loses.
	WorstBytes     []BadFile
	WorstShare     []BadFile
	WorstFunctions []BadFunction

	// Errors are those of files that are damaged or cannot be read, the first ones.
	Errors        []FileError
	ErrorsOmitted int

	worst int     // how long the lists are at most
	roots []root  // the paths, by name
	lines []*line // of all files, by their names on the disk
}

// A BadFile is one of the worst files.
type BadFile struct {
	File      string `json:"file"`
	ABI       string `json:"abi"`
	Described uint64 `json:"described"`
	Lost      uint64 `json:"lost"`   // code in gaps by which a stack trace loses something
	Reason    string `json:"reason"` // of most of that

	index int // of its line
}

// A BadFunction is one of the worst functions.
type BadFunction struct {
	File     string `json:"file"`
	RawFile  []byte `json:"file_raw,omitempty"` // the same, if it is no UTF-8
	Disk     int    `json:"disk,omitzero"`      // how many bytes of the name are that of the file on the disk, if it is in one
	Function string `json:"function,omitempty"` // as the source has it
	Symbol   string `json:"symbol,omitempty"`   // the mangled name, if it is another
	Section  string `json:"section,omitempty"`  // in a relocatable object, what Begin counts from
	Begin    uint64 `json:"begin,omitzero"`     // address
	Size     uint64 `json:"size"`               // of what the CFI describes
	Lost     uint64 `json:"lost"`
	Reason   string `json:"reason"` // of most of that

	disk  string // its file's name on the disk
	path  int32  // index of the path that led there, where surveys are merged
	place string // see root; there
	rank  int    // place among those of the same file, there
}

// A FileError says why a file was refused.
type FileError struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
	Error  string `json:"error"`
}

// Run surveys the ELF files that the paths are, or that are below them. A file counts once, for the outermost path that leads to
// it; one with several names below a path by the first of them. progress may be nil; it is called with the number of files done
// and of all files, archives being one file. An error means that a path is not there, or that ctx ended.
func Run(ctx context.Context, paths []string, opt Options, progress func(done, total int)) (*Survey, error) {
	if opt.Jobs <= 0 {
		opt.Jobs = runtime.GOMAXPROCS(0)
	}
	roots, err := newRoots(paths)
	if err != nil {
		return nil, err
	}
	found, err := walk(ctx, roots, opt)
	if err != nil {
		return nil, err
	}
	for i := range roots {
		roots[i].skipped, roots[i].partial = found.skipped[i], !opt.Shard.whole()
	}
	c := newCollector(roots, opt)
	work := make(chan int)
	var wg sync.WaitGroup
	workers := min(opt.Jobs, len(found.files))
	c.idle = make(chan struct{}, opt.Jobs)
	for range opt.Jobs - workers {
		c.idle <- struct{}{}
	}
	for range workers {
		wg.Go(func() {
			for i := range work {
				f := &found.files[i]
				if f.pack && f.err == nil {
					c.pack(ctx, f)
				} else {
					lines, functions := c.file(ctx, f)
					c.add(f, lines, functions)
				}
				c.done(progress, len(found.files))
			}
			c.idle <- struct{}{}
		})
	}
	for i := 0; i < len(found.files) && ctx.Err() == nil; i++ {
		work <- i
	}
	close(work)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := c.finish()
	if !opt.Shard.whole() {
		s.Shards = []Shards{s.shard(opt.Shard, found.divided)}
	}
	return s, nil
}

// A collector makes a Survey of what several workers find.
type collector struct {
	budget   *budget
	idle     chan struct{} // for each worker that has nothing to do
	objects  bool
	worst    int
	starting func(cfi, size uint64) // or nil

	mu        sync.Mutex
	survey    *Survey
	functions worst[function]
	finished  int
}

func newCollector(roots []root, opt Options) *collector {
	s := newSurvey(roots, opt)
	return &collector{
		budget: newBudget(maxCFI), objects: opt.Objects, worst: s.worst, starting: opt.Starting, survey: s,
		functions: worst[function]{max: s.worst, cmp: byLoss},
	}
}

// newSurvey returns a survey of no files yet.
func newSurvey(roots []root, opt Options) *Survey {
	if opt.Worst <= 0 {
		opt.Worst = defaultWorst
	}
	return &Survey{Schema: Schema, Tool: valid(opt.Tool), Settings: opt.Settings, worst: opt.Worst, roots: roots}
}

// add adds what was found in a file on the disk: a line, or in an archive any number of them.
func (c *collector) add(f *candidate, lines []line, functions []function) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range lines {
		l := &lines[i]
		l.path, l.seq, l.disk = int32(f.path), int32(i), f.name
		c.survey.lines = append(c.survey.lines, l)
	}
	for _, fn := range functions {
		fn.place = c.survey.roots[f.path].place(f.name)
		c.functions.add(fn)
	}
}

func (c *collector) done(progress func(done, total int), total int) {
	if progress == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finished++
	progress(c.finished, total)
}

// finish puts everything in order.
func (c *collector) finish() *Survey {
	s := c.survey
	s.WorstFunctions = named(c.functions.list())
	s.sum()
	return s
}

// sum puts the lines in order, and adds them up.
func (s *Survey) sum() {
	slices.SortFunc(s.lines, func(a, b *line) int {
		return cmp.Or(cmp.Compare(a.disk, b.disk), cmp.Compare(a.seq, b.seq))
	})
	s.Total = newSums()
	for i, outer := range covers(reals(s.roots)) {
		if outer < 0 {
			s.Total.Skipped.add(s.roots[i].skipped)
		}
	}
	abis, languages, compilers := make(sortedParts), make(sortedParts), make(sortedParts)
	bytes := worst[BadFile]{max: s.worst, cmp: byBytes}
	share := worst[BadFile]{max: s.worst, cmp: byShare}
	for i, l := range s.lines {
		s.Total.add(l)
		if l.abi != 0 {
			abis.add(l.abi.String(), l)
		}
		languages.add(l.origin.language(), l)
		compilers.add(l.origin.compiler(), l)
		if l.message != "" {
			if len(s.Errors) < s.worst {
				s.Errors = append(s.Errors, FileError{l.file, refusals[l.status].name, l.message})
			} else {
				s.ErrorsOmitted++
			}
		}
		if lost, reason := l.lost(); lost > 0 {
			bad := BadFile{File: l.file, ABI: l.abi.String(), Described: l.described, Lost: lost, Reason: reason.Name(), index: i}
			bytes.add(bad)
			share.add(bad)
		}
	}
	s.ABIs, s.Languages, s.Compilers = abis.list(), languages.list(), compilers.list()
	s.WorstBytes, s.WorstShare = bytes.list(), share.list()
}

// sortedParts are sums by name.
type sortedParts map[string]*Part

func (p sortedParts) add(name string, l *line) {
	if p[name] == nil {
		p[name] = &Part{Name: name, Sums: newSums()}
	}
	p[name].add(l)
}

// list returns the parts by name.
func (p sortedParts) list() []Part {
	var out []Part
	for _, name := range slices.Sorted(maps.Keys(p)) {
		out = append(out, *p[name])
	}
	return out
}

// byBytes puts first the file of which most is lost.
func byBytes(a, b *BadFile) int {
	return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.index, b.index))
}

// byShare puts first the file of which the largest share is lost.
func byShare(a, b *BadFile) int {
	share := func(f *BadFile) float64 { return float64(f.Lost) / float64(f.Described) }
	return cmp.Or(cmp.Compare(share(b), share(a)), byBytes(a, b))
}

// reals returns where the roots lead to.
func reals(roots []root) []string {
	out := make([]string, len(roots))
	for i := range roots {
		out[i] = roots[i].real
	}
	return out
}

// Paths returns the sums of each path, sorted by name.
func (s *Survey) Paths() []Part {
	all := make([]int, len(s.roots))
	for i := range all {
		all[i] = i
	}
	return slices.Collect(s.parts(all))
}

// parts returns the sums of some of the paths, one after the other: there can be as many paths as files.
func (s *Survey) parts(paths []int) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		by, at := s.byPath()
		for _, i := range paths {
			r := &s.roots[i]
			p := Part{Name: r.name, Partial: r.partial, Sums: newSums()}
			if r.real != r.name {
				p.Real = r.real
			}
			p.Skipped = r.skipped
			for _, j := range by[at[i]:at[i+1]] {
				p.add(s.lines[j])
			}
			if !yield(p) {
				return
			}
		}
	}
}

// byPath returns the indexes of the lines by their paths, and where those of each path begin.
func (s *Survey) byPath() (by []int32, at []int) {
	at = make([]int, len(s.roots)+1)
	for _, l := range s.lines {
		at[l.path+1]++
	}
	for i := range s.roots {
		at[i+1] += at[i]
	}
	by = make([]int32, len(s.lines))
	next := slices.Clone(at)
	for i, l := range s.lines {
		by[next[l.path]] = int32(i)
		next[l.path]++
	}
	return by, at
}
