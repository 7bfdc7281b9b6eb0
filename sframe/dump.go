package sframe

import (
	"bufio"
	"fmt"
	"io"
)

// Dump prints the section the way binutils' objdump --sframe does.
func (s *Section) Dump(w io.Writer) error {
	out := bufio.NewWriter(w)
	flags := "NONE"
	if s.Flags != 0 {
		flags = ""
		for _, f := range []struct {
			bit  Flags
			name string
		}{
			{FDESorted, "SFRAME_F_FDE_SORTED"},
			{FramePointer, "SFRAME_F_FRAME_POINTER"},
			{FDEFuncStartPCRel, "SFRAME_F_FDE_FUNC_START_PCREL"},
		} {
			if s.Flags&f.bit == 0 {
				continue
			}
			if flags != "" {
				flags += ",\n           "
			}
			flags += f.name
		}
	}
	fmt.Fprintf(out, "  Header :\n\n    Version: %v\n    Flags: %s\n", s.Version, flags)
	if s.FixedFP != 0 {
		fmt.Fprintf(out, "    CFA fixed FP offset: %d\n", s.FixedFP)
	}
	if s.FixedRA != 0 {
		fmt.Fprintf(out, "    CFA fixed RA offset: %d\n", s.FixedRA)
	}
	fmt.Fprintf(out, "    Num FDEs: %d\n    Num FREs: %d\n\n  Function Index :\n", len(s.FDEs), s.NumFREs)
	var buf []FRE
	for i := range s.FDEs {
		d := &s.FDEs[i]
		var err error
		if buf, err = s.FREs(i, buf[:0]); err != nil {
			return err
		}
		fmt.Fprintf(out, "\n    func idx [%d]: pc = %#x, size = %d bytes", i, d.Start, d.Size)
		if d.KeyB {
			fmt.Fprint(out, ", pauth = B key")
		}
		attr := ""
		if d.Signal {
			attr += "S"
		}
		if d.Flexible {
			attr += "F"
		}
		if attr != "" {
			fmt.Fprintf(out, ", attr = \"%s\"", attr)
		}
		mark, base := "   ", d.Start
		if d.PCMask {
			mark, base = "[m]", 0
		}
		fmt.Fprintf(out, "\n    STARTPC%s      CFA       FP        RA           \n", mark)
		for _, e := range buf {
			s.dumpRow(out, base, d, &e)
		}
	}
	return out.Flush()
}

func (s *Section) dumpRow(w io.Writer, base uint64, d *FDE, e *FRE) {
	if e.Outermost {
		fmt.Fprintf(w, "    %016x  RA undefined\n", base+uint64(e.Start))
		return
	}
	ra := s.dumpRule(d, e.RA)
	if e.RA.Base == None {
		switch {
		case e.FP.Base != None && (d.Flexible || s.FixedRA == 0):
			ra = "U" // a word that stands for no rule
		case s.FixedRA != 0:
			ra = "f"
		}
	}
	if e.Signed {
		ra += "[s]"
	}
	fmt.Fprintf(w, "    %016x  %-10s%-10s%-13s\n", base+uint64(e.Start), s.dumpRule(d, e.CFA), s.dumpRule(d, e.FP), ra)
}

// dumpRule prints a rule. What is relative to the CFA looks the same with and
// without a load.
func (s *Section) dumpRule(d *FDE, r Rule) string {
	name := baseNames[r.Base]
	switch r.Base {
	case None:
		return "u"
	case CFA:
		return fmt.Sprintf("c%+d", r.Offset)
	case Register:
		switch i := s.ABI.info(); {
		case !d.Flexible:
			return fmt.Sprintf("r%d", r.Reg)
		case r.Reg == i.sp:
			name = baseNames[SP]
		case r.Reg == i.fp:
			name = baseNames[FP]
		default:
			name = fmt.Sprintf("r%d", r.Reg)
		}
	}
	switch {
	case r.Deref:
		return fmt.Sprintf("(%s%+d)", name, r.Offset)
	case !d.Flexible: // binutils does not look at the sign
		return fmt.Sprintf("%s+%d", name, r.Offset)
	}
	return fmt.Sprintf("%s%+d", name, r.Offset)
}
