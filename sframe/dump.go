package sframe

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
)

// Dump prints at most maxDumped rows, or one row per two bytes of the section, whichever is more. Without a bound, the
// output for a small section whose FDEs share rows could be huge.
const maxDumped = 1 << 22

// Dump prints the section like binutils' objdump --sframe. If where is not nil, it maps each FDE's address to the
// address to print. After an error, the output is incomplete.
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
			out.Flush() // the output so far helps to locate the error
			return err
		}
		if room -= len(refs); room < 0 {
			out.Flush()
			return fmt.Errorf("FDEs share too many rows: output exceeds %d rows at FDE %d (%#x)",
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

// appendRow appends the line for an FRE.
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
		b = append(b, 'U') // a zero word: no rule
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

// pad pads b with spaces to length n.
func pad(b []byte, n int) []byte {
	for len(b) < n {
		b = append(b, ' ')
	}
	return b
}

// appendRule appends a rule. A rule relative to the CFA is printed the same way whether or not it is dereferenced.
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
	case !d.Flexible: // binutils prints "+" even before a minus sign
		return strconv.AppendInt(append(append(b, name...), '+'), int64(r.Offset), 10)
	}
	return appendSigned(append(b, name...), r.Offset)
}

// appendSigned appends a number with an explicit sign.
func appendSigned(b []byte, n int32) []byte {
	if n >= 0 {
		b = append(b, '+')
	}
	return strconv.AppendInt(b, int64(n), 10)
}
