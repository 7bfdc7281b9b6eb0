package readers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/sframe"
)

// A library is a release of libsframe: find is c/find.c, linked with it.
type library struct {
	name    string // as binutils' release is called
	suite   string // that it is of
	version string // of the package
	find    []string
}

// A head is what a library says of a section; c/find.c has it, too.
type head struct {
	Error            int32
	Version, ABI     uint8
	FixedRA, FixedFP int8
}

// What there is in an answer.
const (
	found = 1 << iota
	hasCFA
	hasRA
	hasFP
	isSigned
	isOutermost
	isFlexible
	inFDE
)

// What is true of the function of an answer.
const (
	keyB = 1 << iota
	isSignal
	isMask
)

// An answer is what a library says of a pc; c/find.c has it, too.
type answer struct {
	Flags, FDE, Base, Words uint8
	CFA, RA, FP             int32
	Data                    [6]uint32
}

const answerSize = 40

// errRefused is a library's error for a whole section.
type errRefused int32

func (e errRefused) Error() string {
	return fmt.Sprintf("the section is refused: libsframe's error %d", int32(e))
}

// ask has a library look up pcs, which are given as distances from the section, and calls fn with each answer.
func (l *library) ask(section []byte, offsets []int64, fn func(i int, a *answer) error) (h head, err error) {
	file, err := os.CreateTemp("", "cfi2sframe-section-")
	if err != nil {
		return h, err
	}
	defer os.Remove(file.Name())
	if _, err = file.Write(section); err == nil {
		err = file.Close()
	}
	if err != nil {
		return h, err
	}
	cmd := exec.Command(l.find[0], append(l.find[1:len(l.find):len(l.find)], file.Name())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in := make([]byte, 0, 8*len(offsets))
	for _, o := range offsets {
		in = binary.LittleEndian.AppendUint64(in, uint64(o))
	}
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return h, err
	}
	if err := cmd.Start(); err != nil {
		return h, err
	}
	h, err = readAnswers(out, len(offsets), fn)
	if err != nil {
		io.Copy(io.Discard, out)
	}
	if werr := cmd.Wait(); werr != nil && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = fmt.Errorf("libsframe of binutils %s: %w\n%s", l.name, werr, stderr.Bytes())
	}
	return h, err
}

func readAnswers(out io.Reader, n int, fn func(i int, a *answer) error) (h head, err error) {
	if err := binary.Read(out, binary.LittleEndian, &h); err != nil {
		return h, fmt.Errorf("answers: %w", io.ErrUnexpectedEOF)
	}
	if h.Error != 0 {
		return h, errRefused(h.Error)
	}
	buf := make([]byte, 1<<12*answerSize)
	for i := 0; i < n; {
		part := buf[:min(len(buf), (n-i)*answerSize)]
		if _, err := io.ReadFull(out, part); err != nil {
			return h, fmt.Errorf("answer %d of %d: %w", i, n, io.ErrUnexpectedEOF)
		}
		for ; len(part) > 0; part = part[answerSize:] {
			le := binary.LittleEndian
			a := answer{Flags: part[0], FDE: part[1], Base: part[2], Words: part[3],
				CFA: int32(le.Uint32(part[4:])), RA: int32(le.Uint32(part[8:])), FP: int32(le.Uint32(part[12:]))}
			for j := range a.Data {
				a.Data[j] = le.Uint32(part[16+4*j:])
			}
			if err := fn(i, &a); err != nil {
				return h, err
			}
			i++
		}
	}
	if _, err := io.ReadFull(out, buf[:1]); err != io.EOF {
		return h, errors.New("there are more answers than questions")
	}
	return h, nil
}

// row returns what an answer says, as a caller of the library understands it that knows what the header files say of it.
func (s *subject) row(a *answer) (row sframe.Row, err error) {
	row.Outermost, row.Signed = a.Flags&isOutermost != 0, a.Flags&isSigned != 0
	if row.Outermost {
		return row, nil
	}
	if a.Flags&hasCFA == 0 {
		return row, errors.New("a row without a CFA")
	}
	if a.Flags&isFlexible != 0 {
		return row, a.flexible(&row)
	}
	switch a.Base {
	case 0:
		row.CFA = sframe.Rule{Base: sframe.FP, Offset: a.CFA}
	case 1:
		row.CFA = sframe.Rule{Base: sframe.SP, Offset: a.CFA}
	default:
		return row, fmt.Errorf("base register %d", a.Base)
	}
	s390x := s.section.ABI == sframe.S390XBig
	saved := func(offset int32) sframe.Rule {
		if s390x && s.opt.Version == sframe.V2 && offset&1 != 0 { // the number of a register
			return sframe.Rule{Base: sframe.Register, Reg: uint16(offset >> 1)}
		}
		return sframe.Rule{Base: sframe.CFA, Offset: offset, Deref: true}
	}
	if a.Flags&hasRA != 0 && !(s390x && a.RA == 0) { // on s390x 0 stands for no rule
		row.RA = saved(a.RA)
	}
	if a.Flags&hasFP != 0 {
		row.FP = saved(a.FP)
	}
	return row, nil
}

// flexible is row for a row of the flexible type: control words come from sframe_get_fre_udata, offsets from the functions
// for these. FP has its control word after the one of RA, which has no offset if it is 0.
func (a *answer) flexible(row *sframe.Row) error {
	rule := func(control uint32, offset int32) sframe.Rule {
		r := sframe.Rule{Base: sframe.CFA, Offset: offset, Deref: control&2 != 0}
		if control&1 != 0 {
			r.Base, r.Reg = sframe.Register, uint16(control>>3)
		}
		return r
	}
	if a.Words < 2 {
		return fmt.Errorf("a flexible row of %d words", a.Words)
	}
	row.CFA = rule(a.Data[0], a.CFA)
	fp := uint8(4) // index of FP's control word
	switch {
	case a.Words > 2 && a.Data[2] == 0:
		fp = 3
	case a.Words > 2:
		if a.Flags&hasRA == 0 {
			return errors.New("a flexible row whose return address has a control word and no offset")
		}
		row.RA = rule(a.Data[2], a.RA)
	}
	if a.Words > fp {
		if a.Flags&hasFP == 0 {
			return errors.New("a flexible row whose frame pointer has a control word and no offset")
		}
		row.FP = rule(a.Data[fp], a.FP)
	}
	return nil
}

// libraries are those that scripts/readers has prepared: programs find-SUITE in the folder.
func libraries(folder string) ([]*library, error) {
	var libs []*library
	for _, l := range []*library{{name: "2.44", suite: "trixie"}, {name: "2.47", suite: "sid"}} {
		// Any program of the suite tells what is in front of one.
		words, err := suite.Program(l.suite, "true")
		if err != nil {
			return nil, err
		}
		path := folder + "/find-" + l.suite
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w; scripts/readers makes it", err)
		}
		l.find = append(words[:len(words)-3:len(words)-3], path)
		version, err := os.ReadFile(path + ".version")
		if err != nil {
			return nil, err
		}
		l.version = string(bytes.TrimSpace(version))
		libs = append(libs, l)
	}
	return libs, nil
}
