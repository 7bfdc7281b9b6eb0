// Package survey measures how much of the CFI in many programs and libraries SFrame can express. It writes no files.
//
// A survey counts what could be translated. It ignores whether a section could be added: whether there is space for
// program headers, and whether the code is close enough to the section.
//
// Each file becomes a Record of a few hundred bytes, and reports are sums of records. In JSON, each record is a line,
// so that surveys from several machines can be concatenated. CFI is in memory only while its file is examined. Files
// with more CFI than largeCFI are examined one at a time.
package survey

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"cfi2sframe/sframe"
)

// Options selects what to survey.
type Options struct {
	Objects bool // relocatable objects and archives
	Shard   Shard
	Infer   bool // also count rows inferred from instructions
	Jobs    int  // files examined in parallel; 0: one per processor
	// Starting, if not nil, is called before a file is examined, with the sizes of its CFI and of the file.
	// It is called concurrently.
	Starting func(cfi, size uint64)
	// IsOutput, if not nil, reports whether a path is an output file. Run fails if it would examine such a file.
	IsOutput func(path string) bool
}

// Formats are the versions of SFrame that a survey translates to.
var Formats = []sframe.Version{sframe.V2, sframe.V3}

// gapVersion is the version of SFrame for which gaps are listed.
const gapVersion = sframe.V3

// A Survey holds the records of many files and their sums.
type Survey struct {
	Files     []*Record // by name
	Skipped   Skipped
	Total     Sums
	ABIs      []Part     // by name
	Worst     []*Record  // files with lost bytes, worst first
	Functions []Function // of all files, worst first
}

// Run surveys the ELF files at and below the paths. A file with several names counts once, under the first. Run fails
// only if a path does not exist, an input is also an output, a system error occurs (outfile.OfMachine), or ctx is
// canceled.
func Run(ctx context.Context, paths []string, opt Options) (*Survey, error) {
	files, skipped, err := walk(ctx, paths, opt)
	if err != nil {
		return nil, err
	}
	if opt.Jobs <= 0 {
		opt.Jobs = runtime.GOMAXPROCS(0)
	}
	e := &examiner{Options: opt}
	found, errs := make([][]*Record, len(files)), make([]error, len(files))
	var workers sync.WaitGroup
	var begun atomic.Int64 // files
	for range opt.Jobs {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(begun.Add(1)) - 1
				if i >= len(files) {
					return
				}
				found[i], errs[i] = e.examineCandidate(ctx, &files[i])
			}
		})
	}
	workers.Wait()
	if err := cmp.Or(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	return New(slices.Concat(found...), skipped), nil
}

// New adds up records, one per file. skipped counts the files that were not examined.
func New(records []*Record, skipped Skipped) *Survey {
	s := &Survey{Files: records, Skipped: skipped}
	slices.SortStableFunc(records, func(a, b *Record) int { return cmp.Compare(a.File, b.File) })
	for _, r := range records {
		s.Total.add(r)
		if r.ABI != "" {
			element(&s.ABIs, Part{Name: r.ABI}, func(p Part) string { return p.Name }).add(r)
		}
		for _, fn := range r.Worst {
			fn.File = r.File
			s.Functions = append(s.Functions, fn)
		}
		if lost, _ := r.lostCode(); lost > 0 {
			s.Worst = append(s.Worst, r)
		}
	}
	slices.SortStableFunc(s.Functions, func(a, b Function) int { return cmp.Compare(b.Lost, a.Lost) })
	slices.SortStableFunc(s.Worst, func(a, b *Record) int {
		x, _ := a.lostCode()
		y, _ := b.lostCode()
		return cmp.Compare(y, x)
	})
	return s
}
