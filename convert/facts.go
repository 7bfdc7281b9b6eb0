package convert

import (
	"debug/elf"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Facts describes the conversion of an ELF file: the input or a member of an archive. Sizes are in bytes.
type Facts struct {
	Member            string // its name in the archive, or ""
	Stays             Reason // reason why it is unchanged, or ""
	ABI               sframe.ABI
	Format            Format
	Functions         int // number of functions with CFI
	translate.Amounts     // without Code and Unwindable
	translate.Restricted
	Sums         map[translate.Reason]translate.Sum // part of Described without rows, by reason
	FDEs         int
	FREs         uint64
	Size         uint64 // of .sframe
	MovedCode    uint64 // code whose file offset changes
	StaleHeaders bool   // __ehdr_start refers to the old program headers
	Unsigned     bool   // the signature of a kernel module was removed
	Verified     bool
}

// Details holds the data behind Facts or a Comparison. It is valid only during Run.Report.
type Details struct {
	Facts      *Facts      // facts about a conversion, or nil
	Comparison *Comparison // result of the check by Attach, or nil

	InputSize   uint64 // size of the file, or of the archive that contains it
	File        *elffile.File
	Debug       *Companion // the debug file, or nil
	Table       *cfi.Table
	Stubs       []translate.Stub
	Translation *translate.Result // of a conversion
	Pads        []uint8           // sizes of the padding after functions, or nil
	Linux       Linux             // of the Options

	section []byte // of a linked file
	addr    uint64 // of the section
}

// Section decodes the new section of a linked file. It returns nil for an object, whose section has no addresses yet,
// and if no section is written.
func (d *Details) Section() (*sframe.Section, error) {
	if len(d.section) == 0 {
		return nil, nil
	}
	return sframe.Decode(d.section, d.addr)
}

// note records the facts about a translation.
func (s *single) note(t *translation) {
	r := t.Result
	s.translation = t
	s.facts = &Facts{
		Member: s.member, ABI: t.abi,
		Format:    Format{Version: s.opt.Version, PCRel: s.opt.PCRel, Outermost: s.opt.Outermost},
		Functions: r.Functions, Amounts: r.Amounts, Restricted: r.Restricted, Sums: r.Sums,
		Size: uint64(len(t.section)),
	}
	if t.content != nil { // a file without CFI has none
		s.facts.FDEs, s.facts.FREs = t.content.NumFDEs(), t.content.NumFREs()
		s.facts.MovedCode, s.facts.StaleHeaders = t.layout.MovedCode, t.layout.StaleHeaders
	}
}

// noteNoCFI records the facts about a file without CFI, so that reports can count its code.
func (s *single) noteNoCFI() {
	if _, abi, err := arch.Find(elf.Machine(s.f.Machine), s.f.Order); err == nil {
		s.table = &cfi.Table{Machine: elf.Machine(s.f.Machine), Order: s.f.Order}
		s.note(&translation{abi: abi, Result: &translate.Result{}})
	}
}

// report completes the facts about a conversion and passes them to Run.Report.
func (s *single) report(kept *Kept, unsigned bool) error {
	if kept != nil && (kept.Reason == NoCFI || kept.Reason == NoCode) && s.member == "" && s.job.Report != nil {
		s.noteNoCFI()
	}
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
	d := &Details{
		Facts: s.facts, InputSize: uint64(s.job.Size), File: s.f, Debug: s.debug, Table: s.table,
		Stubs: s.stubs, Translation: s.translation.Result, Pads: s.pads, Linux: s.opt.Linux,
	}
	if layout := s.translation.layout; layout != nil && !s.f.IsObject() { // a file without CFI has none
		d.section, d.addr = s.translation.section, layout.Addr
	}
	return s.job.Report(d)
}
