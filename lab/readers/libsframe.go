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

// step takes a step up the stack by an answer, as a caller of the library does it that knows what the header files say of it.
func (a *abi) step(ans *answer, version uint8, fixedRA int8) (f frame, err error) {
	if ans.Flags&hasCFA == 0 {
		return f, errors.New("a row without a CFA")
	}
	if ans.Flags&isFlexible != 0 {
		return a.flexibleStep(ans, fixedRA)
	}
	switch ans.Base {
	case 0:
		f.cfa = reg(a.fp)
	case 1:
		f.cfa = reg(a.sp)
	default:
		return f, fmt.Errorf("base register %d", ans.Base)
	}
	f.cfa += uint64(int64(ans.CFA))
	f.sp = f.cfa + uint64(a.caller)
	// saved is where a register is by its offset: words of s390x in V2 may be numbers of registers.
	saved := func(offset int32) uint64 {
		if a.caller != 0 && version == 2 && offset&1 != 0 {
			return reg(uint64(offset >> 1))
		}
		return load(f.cfa + uint64(int64(offset)))
	}
	switch {
	case ans.Flags&hasRA == 0, a.caller != 0 && ans.RA == 0: // on s390x 0 stands in for none
		if a.ra == noReg {
			return f, errors.New("a row without a return address")
		}
		f.ra = reg(a.ra)
	default:
		f.ra = saved(ans.RA)
	}
	if f.fp = reg(a.fp); ans.Flags&hasFP != 0 {
		f.fp = saved(ans.FP)
	}
	return f, nil
}

// flexibleStep is step for a row of the flexible type: control words are had by sframe_get_fre_udata, offsets by the functions
// for these, but for that of FP after a control word 0 in RA's place, behind which words are counted as the header says.
func (a *abi) flexibleStep(ans *answer, fixedRA int8) (f frame, err error) {
	rule := func(control uint32, offset int32) uint64 {
		v := f.cfa
		if control&1 != 0 {
			v = reg(uint64(control >> 3))
		}
		if v += uint64(int64(offset)); control&2 != 0 {
			v = load(v)
		}
		return v
	}
	if ans.Words < 2 {
		return f, fmt.Errorf("a flexible row of %d words", ans.Words)
	}
	f.cfa = rule(ans.Data[0], ans.CFA)
	f.sp = f.cfa + uint64(a.caller)
	if f.ra = load(f.cfa + uint64(int64(fixedRA))); fixedRA == 0 {
		f.ra = reg(a.ra)
	}
	f.fp = reg(a.fp)
	fp := uint8(4) // index of FP's control word
	switch {
	case ans.Words > 2 && ans.Data[2] == 0:
		fp = 3
	case ans.Words > 2:
		if ans.Flags&hasRA == 0 {
			return f, errors.New("a flexible row whose return address has a control word and no offset")
		}
		f.ra = rule(ans.Data[2], ans.RA)
	}
	if ans.Words > fp {
		if ans.Flags&hasFP == 0 {
			return f, errors.New("a flexible row whose frame pointer has a control word and no offset")
		}
		f.fp = rule(ans.Data[fp], ans.FP)
	}
	return f, nil
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
