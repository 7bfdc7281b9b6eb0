package sframe

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
)

// maxDumped bounds the printed rows of a section, together with half the section's size in bytes: FDEs that share rows
// could have any number.
const maxDumped = 1 << 22

// Dump prints the section as binutils' objdump --sframe does. Where returns the address to print for that of an FDE;
// nil prints the FDE's address. An error says where the output ends early.
func (s *Section) Dump(w io.Writer, where func(uint64) uint64) error {
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
	fmt.Fprintf(out, "    Num FDEs: %d\n    Num FREs: %d\n\n  Function Index :\n", s.NumFDEs, s.NumFREs)
	var line []byte
	room := max(maxDumped, len(s.data)/2)
	reader := s.NewReader()
	for i, d := range s.FDEs() {
		if where != nil {
			d.Start = where(d.Start)
		}
		_, refs, err := reader.Refs(i)
		if err != nil {
			out.Flush() // what is printed up to there helps to find it
			return err
		}
		if room -= len(refs); room < 0 {
			out.Flush()
			return fmt.Errorf("FDEs share rows: more than %d, up to FDE %d at %#x, are not printed",
				max(maxDumped, len(s.data)/2), i, d.Start)
		}
		fmt.Fprintf(out, "\n    func idx [%d]: pc = %#x, size = %d bytes", i, d.Start, d.Size)
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
		if d.KeyB {
			fmt.Fprint(out, ", pauth = B key")
		}
		mark, base := "   ", d.Start
		if d.PCMask {
			mark, base = "[m]", 0
		}
		fmt.Fprintf(out, "\n    STARTPC%s      CFA       FP        RA           \n", mark)
		for _, r := range refs {
			line = s.appendRow(line[:0], base, &d, &FRE{r.Start, reader.Rows[r.Row]})
			if _, err := out.Write(line); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// appendRow appends the line of a row.
func (s *Section) appendRow(b []byte, base uint64, d *FDE, e *FRE) []byte {
	b = append(b, "    "...)
	b = hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, base+uint64(e.Start)))
	b = append(b, "  "...)
	if e.Outermost {
		return append(b, "RA undefined\n"...)
	}
	at := len(b)
	b = pad(s.appendRule(b, d, e.CFA), at+10)
	at = len(b)
	b = pad(s.appendRule(b, d, e.FP), at+10)
	at = len(b)
	switch {
	case e.RA.Base != None:
		b = s.appendRule(b, d, e.RA)
	case e.FP.Base != None && (d.Flexible || s.FixedRA == 0):
		b = append(b, 'U') // a word that stands for no rule
	case s.FixedRA != 0:
		b = append(b, 'f')
	default:
		b = append(b, 'u')
	}
	if e.Signed {
		b = append(b, "[s]"...)
	}
	return append(pad(b, at+13), '\n')
}

// pad appends blanks up to a length.
func pad(b []byte, n int) []byte {
	for len(b) < n {
		b = append(b, ' ')
	}
	return b
}

// appendRule appends a rule. Rules relative to the CFA look the same with and without a load.
func (s *Section) appendRule(b []byte, d *FDE, r Rule) []byte {
	name := baseNames[r.Base]
	switch r.Base {
	case None:
		return append(b, 'u')
	case CFA:
		return appendSigned(append(b, 'c'), r.Offset)
	case Register:
		switch {
		case !d.Flexible:
			return strconv.AppendUint(append(b, 'r'), uint64(r.Reg), 10)
		case r.Reg == s.ABI.SP():
			name = baseNames[SP]
		case r.Reg == s.ABI.FP():
			name = baseNames[FP]
		default:
			name = "r" + strconv.Itoa(int(r.Reg))
		}
	}
	switch {
	case r.Deref:
		return append(appendSigned(append(append(b, '('), name...), r.Offset), ')')
	case !d.Flexible: // binutils does not look at the sign
		return strconv.AppendInt(append(append(b, name...), '+'), int64(r.Offset), 10)
	}
	return appendSigned(append(b, name...), r.Offset)
}

// appendSigned appends a number with its sign.
func appendSigned(b []byte, n int32) []byte {
	if n >= 0 {
		b = append(b, '+')
	}
	return strconv.AppendInt(b, int64(n), 10)
}
