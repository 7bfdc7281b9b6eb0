package conformance

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/lab/conformance/vector"
)

// llvmHello says what is claimed of LLVM 23. Of s390x it prints the words as they are.
var llvmHello = vector.Hello{
	Reader: "llvm-readobj 23", Formats: []string{"2", "2e1"}, ABIs: []string{"amd64", "aarch64", "aarch64_be", "s390x"},
}

// llvm answers a question by what llvm-readobj, the words of a command, prints of a file with the section.
func llvm(words []string, q *vector.Question, file string) vector.Reply {
	if err := os.WriteFile(file, object(q), 0o666); err != nil {
		return vector.Reply{Refused: err.Error()}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(words[0], append(words[1:len(words):len(words)], "--sframe", file)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	said := strings.TrimSpace(stderr.String())
	if said != "" {
		return vector.Reply{Refused: said}
	}
	if err != nil {
		return vector.Reply{Refused: err.Error()}
	}
	functions, err := parse(q.ABI, stdout.String())
	if err != nil {
		return vector.Reply{Refused: err.Error()}
	}
	reply := vector.Reply{Answers: make([]*vector.Row, len(q.PCs))}
	for i, pc := range q.PCs {
		reply.Answers[i] = lookup(functions, uint64(pc))
	}
	return reply
}

// object returns an ELF file with the section.
func object(q *vector.Question) []byte {
	o := elftest.NewObject()
	o.Header.Type, o.Header.Machine = uint16(elf.ET_DYN), uint16(elf.EM_X86_64)
	switch q.ABI {
	case "aarch64", "aarch64_be":
		o.Header.Machine = uint16(elf.EM_AARCH64)
	case "s390x":
		o.Header.Machine = uint16(elf.EM_S390)
	}
	o.Big = q.ABI == "aarch64_be" || q.ABI == "s390x"
	const gnuSFrame = 0x6ffffff4
	i := o.Add(".sframe", gnuSFrame, elf.SHF_ALLOC, q.Section)
	o.Sections[i].Addr, o.Sections[i].Addralign = uint64(q.Address), 8
	return o.Bytes()
}

// A function is what was printed of one.
type function struct {
	start, size, rep uint64
	mask             bool
	rows             []row
}

type row struct {
	start uint64
	row   vector.Row
}

var field = regexp.MustCompile(`^ *([A-Za-z0-9 ()]+?): (.*?)(?: \(0x[0-9A-F]+\))?$`)

// parse reads what was printed.
func parse(abi, text string) ([]function, error) {
	var out []function
	var fixedRA, fixedFP int64
	key := "A"
	inRow := false
	for _, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "FuncDescEntry ["):
			out, inRow, key = append(out, function{}), false, "A"
		case trimmed == "Frame Row Entry {":
			f := &out[len(out)-1]
			f.rows, inRow = append(f.rows, row{}), true
			r := &f.rows[len(f.rows)-1].row
			if fixedRA != 0 {
				r.RA = &vector.Rule{Base: "cfa", Offset: fixedRA, Deref: true}
			}
			if fixedFP != 0 {
				r.FP = &vector.Rule{Base: "cfa", Offset: fixedFP, Deref: true}
			}
		}
		m := field.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name, value := strings.TrimSuffix(m[1], " (unused)"), m[2]
		n, numeric := strconv.ParseInt(value, 0, 64)
		if u, err := strconv.ParseUint(value, 0, 64); err == nil {
			n, numeric = int64(u), nil
		}
		number := func() int64 {
			if numeric != nil {
				panic(fmt.Sprintf("%q: a number was expected", line))
			}
			return n
		}
		if len(out) == 0 {
			switch name {
			case "CFA fixed FP offset":
				fixedFP = number()
			case "CFA fixed RA offset":
				fixedRA = number()
			}
			continue
		}
		f := &out[len(out)-1]
		if !inRow {
			switch name {
			case "PC":
				f.start = uint64(number())
			case "Size":
				f.size = uint64(number())
			case "FDE Type":
				f.mask = value == "PCMask"
			case "PAuth Key":
				key = value
			case "Repetitive block size":
				f.rep = uint64(number())
			}
			continue
		}
		r := &f.rows[len(f.rows)-1]
		slot := &vector.Rule{Base: "cfa", Deref: true}
		switch name {
		case "Start Address":
			r.start = uint64(number())
		case "Return Address Signed":
			if value == "Yes" {
				r.row.Signed = key
			}
		case "Base Register":
			if r.row.CFA == nil {
				r.row.CFA = &vector.Rule{}
			}
			r.row.CFA.Base = strings.ToLower(value)
		case "CFA Offset":
			r.row.CFA.Offset = number()
		case "RA Offset":
			slot.Offset = number()
			r.row.RA = slot
			if slot.Offset == 0 && abi == "s390x" {
				r.row.RA = nil // SFRAME_FRE_RA_OFFSET_INVALID
			}
		case "FP Offset":
			slot.Offset = number()
			r.row.FP = slot
		case "RA Register":
			r.row.RA = &vector.Rule{Base: "r" + value}
		case "FP Register":
			r.row.FP = &vector.Rule{Base: "r" + value}
		}
	}
	return out, nil
}

// lookup returns the row for a pc.
func lookup(functions []function, pc uint64) (found *vector.Row) {
	for i := range functions {
		f := &functions[i]
		if pc < f.start || pc-f.start >= f.size {
			continue
		}
		at := pc
		if f.mask {
			if f.rep == 0 {
				return nil
			}
			at = pc % f.rep
		}
		for j := range f.rows {
			if f.rows[j].start <= at {
				found = &f.rows[j].row
			}
		}
	}
	return found
}
