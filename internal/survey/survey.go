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
	"encoding/json"
	"io"
	"runtime"
	"slices"
	"sync"

	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Schema is the version of the JSON form, which survey.schema.json describes. It changes
// when a field changes its meaning or goes; new fields may come without that.
const Schema = 1

// Options say what to survey.
type Options struct {
	Objects bool // relocatable objects and archives, too
	Jobs    int  // files that are worked on at a time; 0: as many as there are processors
	Worst   int  // how long the lists of the worst are at most; 0: 20
	// Starting, if not nil, is called before a file is worked on, with the bytes of its CFI and its own.
	// It is called for several at a time.
	Starting func(cfi, size uint64)
}

const defaultWorst = 20

// Formats are the versions of SFrame that a survey translates to.
var Formats = sframe.Versions()

// detailed is the index in Formats of the version whose gaps are listed.
const detailed = 1

// A Survey is what there is to say of many files. It does not depend on Options.Jobs.
type Survey struct {
	Schema  int    `json:"schema"`
	Objects bool   `json:"objects"` // relocatable objects and archives are in
	Paths   []Part `json:"paths"`   // as they were given
	ABIs    []Part `json:"abis"`    // those that there are files of
	Total   Sums   `json:"total"`

	// The worst in format 2, by what a stack trace loses.
	WorstBytes     []BadFile     `json:"worst_files_by_bytes"`
	WorstShare     []BadFile     `json:"worst_files_by_share"`
	WorstFunctions []BadFunction `json:"worst_functions"`

	// Errors are those of files that are damaged or cannot be read, the first ones.
	Errors        []FileError `json:"errors"`
	ErrorsOmitted int         `json:"errors_omitted"`

	lines []line // of all files, in the order in which they were found
}

// A Part sums up some of the files.
type Part struct {
	Name string `json:"name"`
	Sums
}

// Sums are about a number of files. All sizes are in bytes of code.
type Sums struct {
	Files      int       `json:"files"`         // examined
	WithCFI    int       `json:"with_cfi"`      // of those, with CFI that describes code
	DRAP       int       `json:"drap"`          // with an expression as the rule of a CFA, PLTs apart
	OtherCFA   int       `json:"non_sp_fp_cfa"` // with a CFA based on another register than SP and FP, PLTs apart
	Functions  int       `json:"functions"`     // that CFI describes
	Described  uint64    `json:"described"`     // code that CFI describes
	WithoutCFI uint64    `json:"without_cfi"`   // code that no CFI describes, padding included
	Formats    []Format  `json:"formats"`
	Gaps       []Gap     `json:"gaps"`    // in format 2, by reason, in the order of translate.Reasons
	Refused    []Refused `json:"refused"` // files without CFI to be translated, by reason
	Skipped    Skipped   `json:"skipped"`
}

// A Format says what one version of SFrame has of the files that it can be written for.
type Format struct {
	Format    sframe.Version `json:"format"`
	Functions int            `json:"functions"` // that CFI describes; less than in Sums where the version is not for all
	Whole     int            `json:"functions_covered"`
	Described uint64         `json:"described"`
	Covered   uint64         `json:"covered"`
	Outermost uint64         `json:"outermost"` // code without a caller, where that is left out: nothing is lost by it
	Topmost   uint64         `json:"topmost"`   // of Covered, by registers that are known in the topmost frame only
}

// A Gap sums up the gaps of one reason.
type Gap struct {
	Reason    string `json:"reason"`
	Text      string `json:"text"`
	Files     int    `json:"files"`
	Functions int    `json:"functions"`
	Ranges    int    `json:"ranges"`
	Bytes     uint64 `json:"bytes"`
	Loss      bool   `json:"loss"` // false where there is nothing that a stack trace could find
}

// Refused counts the files that were refused for one reason.
type Refused struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
	Files  int    `json:"files"`
}

// Skipped counts files that were not examined.
type Skipped struct {
	Objects  int `json:"objects"`  // relocatable objects, unless asked for
	Archives int `json:"archives"` // of those
	Other    int `json:"other"`    // not ELF
}

// A BadFile is one of the worst files.
type BadFile struct {
	File      string `json:"file"`
	ABI       string `json:"abi"`
	Described uint64 `json:"described"`
	Lost      uint64 `json:"lost"`   // code in gaps by which a stack trace loses something
	Reason    string `json:"reason"` // of most of that

	index int
}

// A BadFunction is one of the worst functions.
type BadFunction struct {
	File     string `json:"file"`
	Function string `json:"function,omitempty"` // as the source has it
	Symbol   string `json:"symbol,omitempty"`   // the mangled name, if it is another
	Section  string `json:"section,omitempty"`  // in a relocatable object, what Begin counts from
	Begin    uint64 `json:"begin"`              // address
	Size     uint64 `json:"size"`               // of what the CFI describes
	Lost     uint64 `json:"lost"`
	Reason   string `json:"reason"` // of most of that
}

// A FileError says why a file was refused.
type FileError struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
	Error  string `json:"error"`

	index int
}

// newSums returns the sums of no files.
func newSums() Sums {
	s := Sums{Formats: []Format{}, Gaps: []Gap{}, Refused: []Refused{}}
	for _, v := range Formats {
		s.Formats = append(s.Formats, Format{Format: v})
	}
	for _, r := range translate.Reasons() {
		s.Gaps = append(s.Gaps, Gap{Reason: r.Name(), Text: r.String(), Loss: r.Loss()})
	}
	for r := firstRefusal; int(r) < len(refusals); r++ {
		s.Refused = append(s.Refused, Refused{Reason: refusals[r].name, Text: refusals[r].text})
	}
	return s
}

// add adds a file.
func (s *Sums) add(l *line) {
	s.Files++
	s.WithoutCFI += l.withoutCFI
	if l.status != statusCFI {
		s.Refused[l.status-firstRefusal].Files++
		return
	}
	s.WithCFI++
	if l.drap {
		s.DRAP++
	}
	if l.otherCFA {
		s.OtherCFA++
	}
	s.Functions += l.functions
	s.Described += l.described
	for i := range l.formats {
		f, to := &l.formats[i], &s.Formats[i]
		to.Functions += f.Functions
		to.Whole += f.Whole
		to.Described += f.Described
		to.Covered += f.Covered
		to.Outermost += f.Outermost
		to.Topmost += f.Topmost
	}
	for _, g := range l.gaps {
		to := &s.Gaps[g.reason-translate.DRAP]
		to.Files++
		to.Functions += g.Functions
		to.Ranges += g.Ranges
		to.Bytes += g.Bytes
	}
}

func (s *Skipped) add(t Skipped) {
	s.Objects += t.Objects
	s.Archives += t.Archives
	s.Other += t.Other
}

// Run surveys the ELF files that the paths are, or that are below them. Every file counts
// once, for the first path that leads to it. progress may be nil; it is called with the
// number of files done and of all files, archives being one file. An error means that a
// path is not there, or that ctx ended.
func Run(ctx context.Context, paths []string, opt Options, progress func(done, total int)) (*Survey, error) {
	if opt.Jobs <= 0 {
		opt.Jobs = runtime.GOMAXPROCS(0)
	}
	if opt.Worst <= 0 {
		opt.Worst = defaultWorst
	}
	found, err := walk(ctx, paths, opt.Objects)
	if err != nil {
		return nil, err
	}
	c := newCollector(paths, opt)
	for i, s := range found.skipped {
		c.survey.Paths[i].Skipped.add(s)
		c.survey.Total.Skipped.add(s)
	}
	work := make(chan int)
	var wg sync.WaitGroup
	for range min(opt.Jobs, len(found.files)) {
		wg.Go(func() {
			for i := range work {
				f := &found.files[i]
				lines, functions := c.file(ctx, f)
				for j := range lines {
					lines[j].disk = f.name
				}
				c.add(f.path, i, lines, functions)
				c.done(progress, len(found.files))
			}
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
	return c.finish(), nil
}

// A collector makes a Survey of what several workers find.
type collector struct {
	budget   *budget
	worst    int
	starting func(cfi, size uint64) // or nil

	mu        sync.Mutex
	survey    *Survey
	abis      map[sframe.ABI]*Part
	bytes     worst[BadFile]
	share     worst[BadFile]
	functions worst[function]
	errors    worst[FileError]
	finished  int
}

func newCollector(paths []string, opt Options) *collector {
	s := &Survey{Schema: Schema, Objects: opt.Objects, Paths: []Part{}, ABIs: []Part{}, Total: newSums()}
	for _, p := range paths {
		s.Paths = append(s.Paths, Part{p, newSums()})
	}
	return &collector{
		budget: newBudget(), worst: opt.Worst, starting: opt.Starting, survey: s, abis: make(map[sframe.ABI]*Part),
		bytes:     worst[BadFile]{max: opt.Worst, cmp: byBytes},
		share:     worst[BadFile]{max: opt.Worst, cmp: byShare},
		functions: worst[function]{max: opt.Worst, cmp: byLoss},
		errors:    worst[FileError]{max: opt.Worst, cmp: byPlace},
	}
}

// byBytes puts first the file of which most is lost.
func byBytes(a, b *BadFile) int {
	return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.index, b.index), cmp.Compare(a.File, b.File))
}

// byShare puts first the file of which the largest share is lost.
func byShare(a, b *BadFile) int {
	share := func(f *BadFile) float64 { return float64(f.Lost) / float64(f.Described) }
	return cmp.Or(cmp.Compare(share(b), share(a)), byBytes(a, b))
}

// byPlace puts the errors in the order in which the files were found.
func byPlace(a, b *FileError) int {
	return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.File, b.File))
}

// add adds what was found in one of the files: a line, or in an archive any number of them.
func (c *collector) add(path, index int, lines []line, functions []function) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range lines {
		l := &lines[i]
		l.path, l.index = path, index
		c.survey.Total.add(l)
		c.survey.Paths[path].add(l)
		if l.abi != 0 {
			p := c.abis[l.abi]
			if p == nil {
				p = &Part{l.abi.String(), newSums()}
				c.abis[l.abi] = p
			}
			p.add(l)
		}
		if l.message != "" {
			c.errors.add(FileError{l.file, refusals[l.status].name, l.message, index})
			c.survey.ErrorsOmitted++
		}
		if lost, reason := l.lost(); lost > 0 {
			bad := BadFile{File: l.file, ABI: l.abi.String(), Described: l.described, Lost: lost, Reason: reason.Name(), index: index}
			c.bytes.add(bad)
			c.share.add(bad)
		}
	}
	for _, f := range functions {
		f.index = index
		c.functions.add(f)
	}
	c.survey.lines = append(c.survey.lines, lines...)
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
	for _, p := range c.abis {
		s.ABIs = append(s.ABIs, *p)
	}
	slices.SortFunc(s.ABIs, func(a, b Part) int { return cmp.Compare(a.Name, b.Name) })
	// The lines of an archive come together, and in its order.
	slices.SortStableFunc(s.lines, func(a, b line) int { return cmp.Compare(a.index, b.index) })
	s.WorstBytes, s.WorstShare = c.bytes.list(), c.share.list()
	s.Errors = c.errors.list()
	s.ErrorsOmitted -= len(s.Errors)
	s.WorstFunctions = named(c.functions.list())
	return s
}

// JSON writes the survey as a JSON object, which survey.schema.json describes.
func (s *Survey) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}
