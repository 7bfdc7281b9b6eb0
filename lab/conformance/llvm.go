package conformance

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/lab/conformance/vector"
)

// llvmHello is what LLVM 23 supports. For s390x, llvm-readobj prints offsets as stored, not decoded.
var llvmHello = vector.Hello{
	Reader: "llvm-readobj 23", Formats: []string{"2", "2e1"}, ABIs: []string{"amd64", "aarch64", "aarch64_be", "s390x"},
}

// llvm runs llvm-readobj (the command in words) on a file with the section, and answers q from its output.
func llvm(words []string, q *vector.Question, file string) vector.Reply {
	if err := os.WriteFile(file, object(q), 0o666); err != nil {
		return vector.Reply{Refused: err.Error()}
	}
	var stdout, stderr bytes.Buffer
	args := append(slices.Clone(words[1:]), "--sframe", "--elf-output-style=JSON", "--pretty-print", file)
	cmd := exec.Command(words[0], args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if said := strings.TrimSpace(stderr.String()); said != "" || err != nil {
		return vector.Reply{Refused: cmp.Or(said, fmt.Sprint(err))}
	}
	section, err := parse(stdout.Bytes())
	if err != nil {
		return vector.Reply{Refused: err.Error()}
	}
	reply := vector.Reply{Answers: make([]*vector.Row, len(q.PCs))}
	for i, pc := range q.PCs {
		reply.Answers[i] = section.lookup(q.ABI, uint64(pc))
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

// An llvmSection is llvm-readobj's output for a section. llvm-readobj prints "unused" even if the FP offset is used.
type llvmSection struct {
	Header struct {
		FixedFP int64 `json:"CFA fixed FP offset (unused)"`
		FixedRA int64 `json:"CFA fixed RA offset"`
	}
	Functions []map[string]llvmFunction `json:"Function Index"` // one element each
}

type llvmFunction struct {
	PC, Size uint64
	Info     struct {
		Type llvmName `json:"FDE Type"`
		Key  llvmName `json:"PAuth Key"`
	}
	Block uint64 `json:"Repetitive block size"`
	Rows  []struct {
		Row llvmRow `json:"Frame Row Entry"`
	} `json:"FREs"`
}

type llvmName struct{ Name string }

type llvmRow struct {
	Start  uint64   `json:"Start Address"`
	Signed bool     `json:"Return Address Signed"`
	Base   llvmName `json:"Base Register"`
	CFA    int64    `json:"CFA Offset"`
	RA     *int64   `json:"RA Offset"`
	FP     *int64   `json:"FP Offset"`
}

// padding2 matches a field that lacks the comma before it; the comma after it is on the next line.
var padding2 = regexp.MustCompile(`Padding2: 0x[0-9A-F]+\n`)

// parse decodes llvm-readobj's output.
func parse(text []byte) (*llvmSection, error) {
	var printed []map[string]json.RawMessage
	if err := json.Unmarshal(padding2.ReplaceAll(text, nil), &printed); err != nil {
		return nil, err
	}
	if len(printed) != 1 || printed[0]["SFrame section '.sframe'"] == nil {
		return nil, errors.New("llvm-readobj prints no section")
	}
	s := new(llvmSection)
	return s, json.Unmarshal(printed[0]["SFrame section '.sframe'"], s)
}

// lookup returns the row for a pc.
func (s *llvmSection) lookup(abi string, pc uint64) (found *vector.Row) {
	for _, named := range s.Functions {
		for _, f := range named {
			if pc < f.PC || pc-f.PC >= f.Size {
				continue
			}
			at := pc
			if f.Info.Type.Name == "PCMask" {
				if f.Block == 0 {
					return nil
				}
				at = pc % f.Block
			}
			for i := range f.Rows {
				if r := &f.Rows[i].Row; r.Start <= at {
					found = s.row(abi, &f, r)
				}
			}
		}
	}
	return found
}

// row converts a row of llvm-readobj's output to an answer.
func (s *llvmSection) row(abi string, f *llvmFunction, r *llvmRow) *vector.Row {
	slot := func(offset *int64, fixed int64) *vector.Rule {
		if offset != nil {
			fixed = *offset
		} else if fixed == 0 {
			return nil
		}
		return &vector.Rule{Base: "cfa", Offset: fixed, Deref: true}
	}
	row := &vector.Row{
		CFA: &vector.Rule{Base: strings.ToLower(r.Base.Name), Offset: r.CFA},
		RA:  slot(r.RA, s.Header.FixedRA), FP: slot(r.FP, s.Header.FixedFP),
	}
	if abi == "s390x" && r.RA != nil && *r.RA == 0 {
		row.RA = nil // SFRAME_FRE_RA_OFFSET_INVALID
	}
	if r.Signed {
		row.Signed = cmp.Or(f.Info.Key.Name, "A")
	}
	return row
}
