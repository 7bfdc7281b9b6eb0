package convert

import (
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Facts are about the conversion of an ELF file: the input, or a member of an archive. Sizes are in bytes.
type Facts struct {
	Member       string // its name in the archive, or ""
	Stays        Reason // why it is unchanged, or ""
	ABI          sframe.ABI
	Format       Format
	Functions    int                                // that CFI describes
	Described    uint64                             // code that CFI describes
	Covered      uint64                             // of Described: with rows, and Outermost
	Inferred     uint64                             // of Covered: by rows from instructions
	Outermost    uint64                             // of Covered: code without a caller that has no row
	Topmost      uint64                             // of Covered: by registers that are known in the topmost frame only
	Stubs        uint64                             // PLT stubs without CFI that have rows
	Padding      uint64                             // padding after functions that has rows
	Sums         map[translate.Reason]translate.Sum // code of Described without rows
	FDEs         int
	FREs         uint64
	Size         uint64 // of .sframe
	MovedCode    uint64 // code that has another place in the output than in the file
	StaleHeaders bool   // code finds the old program headers at __ehdr_start
	Unsigned     bool   // the signature of a kernel module was removed
	Verified     bool
}

// Details are the sources of Facts, or of a Comparison. They are valid while Run.Report runs.
type Details struct {
	Facts      *Facts      // of a conversion, or nil
	Comparison *Comparison // of Attach, or nil

	InputSize uint64 // of the file, or the archive that contains it
	File      *elffile.File
	Debug     *Companion // the debug file, or nil
	Table     *cfi.Table
	Stubs     []plt.Stub
	Result    *translate.Result // of a conversion
	Pads      []uint8           // sizes of the padding after functions, as padding.Gaps.Sizes returns them, or nil
}

// note notes the facts about a translation.
func (s *single) note(t *translation) {
	r, lost := t.Result, t.Sums[translate.Outermost].Bytes
	s.translation = t
	s.facts = &Facts{
		Member: s.member, ABI: t.abi,
		Format:    Format{Version: s.opt.Version, PCRel: s.opt.PCRel, Outermost: s.opt.Outermost},
		Functions: r.Functions, Described: r.Described, Covered: r.Covered + lost, Inferred: r.Inferred, Outermost: lost, Topmost: r.Topmost,
		Stubs: r.Synthesised, Padding: r.Padding, Sums: r.Sums,
	}
}

// report completes the facts about a conversion, and passes them on.
func (s *single) report(kept *Kept, unsigned bool) error {
	if s.facts == nil {
		return nil
	}
	if s.facts.Unsigned = unsigned; kept != nil {
		s.facts.Stays = kept.Reason
	}
	s.res.Facts = append(s.res.Facts, *s.facts)
	if s.job.Report == nil {
		return nil
	}
	return s.job.Report(&Details{
		Facts: s.facts, InputSize: uint64(s.job.Size), File: s.f, Debug: s.debug, Table: s.table,
		Stubs: s.stubs, Result: s.translation.Result, Pads: s.pads,
	})
}
