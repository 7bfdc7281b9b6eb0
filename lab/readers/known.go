package readers

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// A known is an error of a reader that shows at single pcs. A run in which one could have shown and never did fails: the
// reader was mended then, and the table and README.md are to say so.
type known struct {
	lib  string
	name string
	// could reports whether the error can show at a pc, and did whether the answer is the one that it leads to.
	could, did func(j *judge, pc uint64, a *answer) bool
	// around says that callers can get around it; the answer has to be right as they do, then. Otherwise a wrong answer
	// is excused by it.
	around bool
}

var knownErrors = []known{
	{
		lib:  "2.44",
		name: "PC-mask FDE: sframe_find_fre takes the distance from the section modulo the size of a block, not that from the function's start",
		could: func(j *judge, pc uint64, a *answer) bool {
			d, _ := j.fdeBefore(pc)
			return d != nil && d.PCMask && pc < d.End()
		},
		did: maskedBySection,
	},
	{
		lib:  "2.44",
		name: "hole behind a PC-mask FDE: sframe_find_fre goes on with its blocks",
		could: func(j *judge, pc uint64, a *answer) bool {
			d, _ := j.fdeBefore(pc)
			return d != nil && d.PCMask && pc >= d.End()
		},
		did: maskedBySection,
	},
	{
		lib:  "2.47",
		name: "flexible row with a 0 in place of RA's control word: sframe_fre_get_ra_offset returns FP's control word",
		could: func(j *judge, pc uint64, a *answer) bool {
			return a.Flags&isFlexible != 0 && a.Words > 3 && a.Data[2] == 0
		},
		did: func(j *judge, pc uint64, a *answer) bool {
			return a.Flags&hasRA != 0 && (j.machine.FixedRA == 0 || int64(a.RA) != j.machine.FixedRA)
		},
		around: true,
	},
}

// maskedBySection reports whether the answer is the row for the distance of the pc from the section, modulo the size of a
// block as C has it: negative before the section, where there is none.
func maskedBySection(j *judge, pc uint64, a *answer) bool {
	d, i := j.fdeBefore(pc)
	fres, err := j.section.FREs(i, nil)
	if err != nil {
		return false
	}
	at := int64(pc-j.addr) % int64(d.RepSize)
	n := -1
	for i := range fres {
		if int64(fres[i].Start) <= at {
			n = i
		}
	}
	if n < 0 || a.Flags&found == 0 {
		return n < 0 && a.Flags&found == 0
	}
	want := fres[n].CFA
	return want.Offset == a.CFA && (want.Base == sframe.SP) == (a.Base == 1)
}

// A whole is an error of a reader, or a limit, that shows in whole sections.
type whole struct {
	lib    string
	name   string
	opt    convert.Options
	file   string // below testdata/bin
	refuse bool   // the section is refused; otherwise lookups are wrong
}

var wholeErrors = []whole{
	{lib: "2.44", name: "V1: sframe_decode takes it, sframe_decoder_get_funcdesc_v2 does not", opt: convert.Options{Version: sframe.V1}, file: "amd64/prologue", refuse: true},
	{lib: "2.44", name: "V3 is refused", opt: convert.Options{Version: sframe.V3}, file: "amd64/prologue", refuse: true},
	{lib: "2.44", name: "V2 with flag 0x4 is refused", opt: convert.Options{Version: sframe.V2, PCRel: true}, file: "amd64/prologue", refuse: true},
	{lib: "2.44", name: "s390x is not known: a CFA's offset is taken as it stands, and is (offset - 160) / 8", opt: convert.Options{Version: sframe.V2}, file: "s390x/prologue"},
	{lib: "2.44", name: "rows without data words have no CFA", opt: convert.Options{Version: sframe.V2, Outermost: true}, file: "amd64/undefra"},
	{lib: "2.47", name: "V1 is refused", opt: convert.Options{Version: sframe.V1}, file: "amd64/prologue", refuse: true},
	{lib: "2.47", name: "V2 without flag 0x4: start addresses are taken as if it were set", opt: convert.Options{Version: sframe.V2}, file: "amd64/plt"},
	{lib: "2.47", name: "big-endian sections that share rows are refused", opt: convert.Options{Version: sframe.V3, Share: convert.ShareOn}, file: "s390x/offsets", refuse: true},
	{lib: "2.47", name: "so are those of aarch64_be", opt: convert.Options{Version: sframe.V3, Share: convert.ShareOn}, file: "aarch64_be/fponly", refuse: true},
}

// checkWhole expects the error, and says what came instead.
func (w *whole) check(libs []*library, dir, testdata string) error {
	lib := find(libs, w.lib)
	s, err := convertFile(testdata+"/"+w.file, dir, w.opt)
	if err != nil {
		return err
	}
	pcs := s.pcs(rand.New(rand.NewPCG(1, 1)), true, 10)
	c, err := s.lookUp(lib, s.bytes, pcs)
	var refused errRefused
	switch {
	case errors.As(err, &refused):
		if w.refuse {
			return nil
		}
		return fmt.Errorf("binutils %s, %s, %s: %w; wrong answers were expected", w.lib, w.name, w.file, err)
	case err != nil:
		return err
	case w.refuse:
		return fmt.Errorf("binutils %s, %s, %s: it is not; the table of known errors is to be changed", w.lib, w.name, w.file)
	case c.wrong == 0:
		return fmt.Errorf("binutils %s, %s, %s: all %d lookups are right; the table of known errors is to be changed", w.lib, w.name, w.file, c.lookups)
	}
	return nil
}

func find(libs []*library, name string) *library {
	for _, l := range libs {
		if l.name == name {
			return l
		}
	}
	panic("no library " + name)
}
