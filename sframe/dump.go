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
		mark, base := "   ", d.Start
		if d.PCMask {
			mark, base = "[m]", 0
		}
		fmt.Fprintf(out, "\n    STARTPC%s      CFA       FP        RA           \n", mark)
		for _, e := range buf {
			s.dumpRow(out, base, &e)
		}
	}
	return out.Flush()
}

func (s *Section) dumpRow(w io.Writer, base uint64, e *FRE) {
	if e.Outermost {
		fmt.Fprintf(w, "    %016x  RA undefined\n", base+uint64(e.Start))
		return
	}
	slot := func(r Rule) string {
		if r.Base == None {
			return "u"
		}
		return fmt.Sprintf("c%+d", r.Offset)
	}
	ra := "f"
	if s.FixedRA == 0 {
		ra = slot(e.RA)
	}
	if e.Signed {
		ra += "[s]"
	}
	fmt.Fprintf(w, "    %016x  %-10s%-10s%-13s\n", base+uint64(e.Start), e.CFA, slot(e.FP), ra)
}
