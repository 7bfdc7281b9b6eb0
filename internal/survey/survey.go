// Package survey sums up what SFrame can and cannot express of many files: programs and libraries below some paths.
// It writes nothing.
//
// A survey asks what could be translated, not what could be written: whether a file has space for two more program
// headers, and how far its code is from the new section, play no part.
//
// Each file becomes a Record of a few hundred bytes, and everything in a report is a sum of records, except the worst
// functions. The JSON form has a line for each record, so that Merge can add up those of several surveys in the same
// way. CFI is in memory only while its file is examined, and maxCFI bounds how much of it at a time.
package survey

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// Schema is the version of the JSON form, which survey.schema.json describes. It changes when a field changes its
// meaning or is removed; new fields may come without that.
const Schema = 4

// Settings say what counts. Only surveys with the same settings can be merged.
type Settings struct {
	Objects bool `json:"objects,omitzero"` // relocatable objects and archives
}

// String says which flags the settings come from.
func (s Settings) String() string {
	if s.Objects {
		return "with --objects"
	}
	return "without --objects"
}

// Options say what to survey.
type Options struct {
	Settings
	Tool  string // cfi2sframe and its version
	Shard Shard
	Jobs  int // files that are examined at a time; 0: one for each processor
	// Starting, if not nil, is called before a file is examined, with the bytes of its CFI and its size.
	// It is called concurrently.
	Starting func(cfi, size uint64)
	Scanning func(files int) // if not nil, it is called with the number of files found so far
	// IsOutput, if not nil, reports whether a path leads to a file that is written later. To examine it is an error.
	IsOutput func(path string) bool
}

// Formats are the versions of SFrame that a survey translates to.
var Formats = sframe.Versions()

// detailed is the version whose gaps are listed.
const detailed = sframe.V2

// A Survey sums up many files. It does not depend on Options.Jobs. Its JSON form is the first line of a survey.
type Survey struct {
	Schema int    `json:"schema"`
	Tool   string `json:"tool"`
	Settings
	Shards []Piece `json:"shards,omitempty"` // of paths with missing shards
	Paths  []Part  `json:"paths,omitempty"`  // by name
	ABIs   []Part  `json:"abis,omitempty"`   // by name
	// Each file is in one of these: several languages have a name together.
	Languages []Part `json:"languages,omitempty"`
	Compilers []Part `json:"compilers,omitempty"`
	Total     Sums   `json:"total"`

	// The worst in format 2, by what a stack trace loses.
	WorstBytes     []BadFile     `json:"worst_files_by_bytes,omitempty"`
	WorstShare     []BadFile     `json:"worst_files_by_share,omitempty"`
	WorstFunctions []BadFunction `json:"worst_functions,omitempty"`

	Errors        []FileError `json:"errors,omitempty"` // the first ones
	ErrorsOmitted int         `json:"errors_omitted,omitzero"`

	Files []*Record `json:"-"` // by their names on the disk
}

// A BadFile is one of the worst files.
type BadFile struct {
	File      string `json:"file"`
	ABI       string `json:"abi"`
	Described uint64 `json:"described"`
	Lost      uint64 `json:"lost"`   // code in gaps by which a stack trace loses something
	Reason    string `json:"reason"` // of most of that

	record *Record
}

// A FileError says what is wrong with a file.
type FileError struct {
	File   string         `json:"file"`
	Reason convert.Reason `json:"reason"`
	Error  string         `json:"error"`
}

// Run surveys the ELF files that the paths are, or that are below them. A file counts once, for the outermost path
// that leads to it; if it has several names below that path, by the first of them. progress may be nil; it is called
// with the number of finished files and of all files. An error means that a path does not exist, that the
// machine failed (outfile.OfMachine), or that ctx ended.
func Run(ctx context.Context, paths []string, opt Options, progress func(done, total int)) (*Survey, error) {
	parts, err := newPaths(paths)
	if err != nil {
		return nil, err
	}
	c := newCollector(parts, opt)
	files, err := walk(ctx, parts, opt)
	if err != nil {
		return nil, err
	}
	err = each(ctx, c.group, len(files), func(i int) error {
		found := c.file(ctx, &files[i])
		if found.failed == nil {
			c.add(&files[i], found)
		}
		return found.failed
	}, progress)
	if err != nil {
		return nil, err
	}
	s := c.survey
	s.sum()
	if !opt.Shard.whole() {
		s.Shards = []Piece{s.piece(opt.Shard)}
	}
	return s, nil
}

// newGroup returns a group that works on that many files at a time.
func newGroup(jobs int) *errgroup.Group {
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	g := new(errgroup.Group)
	g.SetLimit(jobs)
	return g
}

// each calls work with 0 to n-1, concurrently, and progress after each. Of several errors it returns the first one.
func each(
	ctx context.Context, g *errgroup.Group, n int, work func(i int) error, progress func(done, total int),
) error {
	var mu sync.Mutex
	done, errs := 0, make([]error, n)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		g.Go(func() error {
			errs[i] = work(i)
			mu.Lock()
			defer mu.Unlock()
			if done++; progress != nil {
				progress(done, n)
			}
			return nil
		})
	}
	g.Wait()
	return cmp.Or(cmp.Or(errs...), ctx.Err())
}

// maxCFI is how much CFI is in memory at a time, in bytes. Its tables take about three times as much. A file with
// more is examined alone.
const maxCFI = 48 << 20

// A collector makes a Survey of files that are examined concurrently.
type collector struct {
	Options
	group  *errgroup.Group
	memory *semaphore.Weighted // for CFI, in bytes

	mu     sync.Mutex
	survey *Survey
}

func newCollector(paths []Part, opt Options) *collector {
	return &collector{
		Options: opt, group: newGroup(opt.Jobs), memory: semaphore.NewWeighted(maxCFI),
		survey: &Survey{Schema: Schema, Tool: valid(opt.Tool), Settings: opt.Settings, Paths: paths},
	}
}

// add adds what was found in a file on the disk. Names become UTF-8.
func (c *collector) add(f *candidate, found findings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	path := &c.survey.Paths[f.path]
	disk := valid(f.name)
	length := func(file string) int {
		if file == f.name {
			return 0
		}
		return len(disk)
	}
	for i := range found.records {
		r := &found.records[i]
		r.Path, r.path, r.Disk, r.File = f.path, f.name, length(r.File), valid(r.File)
		c.survey.Files = append(c.survey.Files, r)
	}
	for _, fn := range found.functions {
		fn.Path, fn.Disk, fn.File, fn.place = f.path, length(fn.File), valid(fn.File), path.place(disk)
		addFunction(&c.survey.WorstFunctions, fn)
	}
}

// sum sorts the records and adds them up. The records of an archive are in its order before.
func (s *Survey) sum() {
	slices.SortStableFunc(s.Files, func(a, b *Record) int { return cmp.Compare(a.disk(), b.disk()) })
	s.Total.Skipped = skippedBelow(s.Paths)
	for _, r := range s.Files {
		s.Total.add(r)
		s.Paths[r.Path].add(r)
		partOf(&s.Languages, r.language()).add(r)
		partOf(&s.Compilers, r.compiler()).add(r)
		if r.ABI != "" {
			partOf(&s.ABIs, r.ABI).add(r)
		}
		if r.Error != "" && len(s.Errors) < maxWorst {
			s.Errors = append(s.Errors, FileError{r.File, r.Status, r.Error})
		} else if r.Error != "" {
			s.ErrorsOmitted++
		}
	}
	lossy := s.lossy()
	s.WorstBytes = lossy[:min(len(lossy), maxWorst)]
	lossy = slices.Clone(lossy)
	share := func(f BadFile) float64 { return float64(f.Lost) / float64(f.Described) }
	slices.SortStableFunc(lossy, func(a, b BadFile) int { return cmp.Compare(share(b), share(a)) })
	s.WorstShare = lossy[:min(len(lossy), maxWorst)]
}

// lossy returns the files that lose something, those that lose most first.
func (s *Survey) lossy() []BadFile {
	var out []BadFile
	for _, r := range s.Files {
		if lost, reason := r.lost(); lost > 0 {
			out = append(out, BadFile{r.File, r.ABI, r.Described, lost, reason, r})
		}
	}
	slices.SortStableFunc(out, func(a, b BadFile) int { return cmp.Compare(b.Lost, a.Lost) })
	return out
}
