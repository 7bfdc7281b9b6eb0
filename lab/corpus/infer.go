package corpus

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
)

// A finding is code whose CFI contradicts its instructions.
type finding struct {
	convert.Contradiction
	code string // 16 bytes, from 3 bytes before it on, in hexadecimal
}

// flaws lists errors in CFI, which docs/evidence.md explains: code and description of each. Addresses change with every
// build; this code, most of it assembly, does not.
//
//go:embed flaws.txt
var flaws string

// infer hides the CFI of each file, infers rows from the instructions, and compares them with the CFI.
func (c *corpus) infer(files []string) error {
	var sum convert.Agreement
	count := 0
	err := kit.Each(files, func(_ int, name string) error {
		list, a, err := contradictions(name)
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case errors.Is(err, cfi.ErrNone) || err == nil && a.Described == 0:
			return nil
		case err != nil:
			c.wrong++
			fmt.Printf("WRONG %s: %v\n", name, err)
			return nil
		}
		count++
		list = slices.DeleteFunc(list, func(x finding) bool { return x.isFlaw() })
		if len(list) > 0 {
			c.wrong++
		}
		fmt.Printf("%s: %s\n", name, agreement(a))
		for i, x := range list {
			if i == mostPrinted {
				fmt.Printf("  and %d more\n", len(list)-i)
				break
			}
			fmt.Printf("  WRONG %#x-%#x %s %s\n", x.Begin, x.End, x.code, x.What)
		}
		sum.Described += a.Described
		sum.Inferred += a.Inferred
		sum.ByRegister += a.ByRegister
		sum.ByValue += a.ByValue
		sum.FP += a.FP
		for part, n := range a.Differ {
			sum.Differ[part] += n
		}
		return nil
	})
	fmt.Printf("total, %d files: %s\n", count, agreement(&sum))
	fmt.Printf("%d files have rows that differ for unknown reasons\n", c.wrong)
	if err == nil && c.wrong > 0 {
		err = kit.ErrFound
	}
	return err
}

// mostPrinted bounds the number of differences printed for a file.
const mostPrinted = 10

// agreement describes how far CFI and instructions agree.
func agreement(a *convert.Agreement) string {
	return fmt.Sprintf("%.2f %% of %d bytes have rows; CFA compared in %d by register, %d by value, not in %d; "+
		"FP in %d; different: CFA %d, RA %d, FP %d", 100*float64(a.Inferred)/float64(max(a.Described, 1)), a.Described,
		a.ByRegister, a.ByValue, a.Inferred-a.ByRegister-a.ByValue, a.FP, a.Differ[0], a.Differ[1], a.Differ[2])
}

// contradictions compares the CFI of a file with its instructions. A crash of the analysis is an error.
func contradictions(name string) (list []finding, a *convert.Agreement, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("panic: %v\n%s", why, debug.Stack())
		}
	}()
	f, err := linked.Open(name)
	if err != nil || !convert.Infers(f) {
		return nil, &convert.Agreement{}, err
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		return nil, nil, err
	}
	found, a, err := convert.Contradictions(context.Background(), f, table)
	for _, x := range found {
		off, _ := f.FileOffset(x.Begin-codeBefore, codeSize)
		b, err := f.ReadAt("code", off, codeSize)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, finding{x, hex.EncodeToString(b)})
	}
	return list, a, err
}

// isFlaw reports whether a contradiction is due to a known error in the CFI. The analysis gives rows without a caller
// only to entry points of files, to which the kernel jumps.
func (x *finding) isFlaw() bool {
	return strings.HasSuffix(x.What, "but undefined according to the instructions") || x.isLate() || x.isWrapper() ||
		strings.Contains(flaws, "\n"+x.code+" "+x.What+"\n")
}

// isWrapper reports whether code is the function in glibc's crt1.o for aarch64 (bti c; b main) that shares the CFI of
// _start, which has no caller.
func (x *finding) isWrapper() bool {
	code, err := hex.DecodeString(x.code)
	return err == nil && x.End-x.Begin <= 8 && len(code) == codeSize && code[codeBefore+7]&0xfc == 0x14 &&
		binary.LittleEndian.Uint32(code[codeBefore:]) == 0xd503245f &&
		x.What == "RA is undefined according to CFI, but in x30 according to the instructions"
}

// isLate reports whether CFI changes a few bytes too late, as in programs built by clang: the CFA differs by exactly
// what the preceding push, pop, add or sub moves the stack pointer or, on aarch64, only up to the instruction that sets
// x29.
func (x *finding) isLate() bool {
	var known, found int
	code, err := hex.DecodeString(x.code)
	size := int(x.End - x.Begin)
	const most = 16 // bytes
	if err != nil || size > most {
		return false
	}
	const a64 = "CFA is sp+0 according to CFI, but sp+%d according to the instructions"
	if _, err := fmt.Sscanf(x.What, a64, &found); err == nil && size%4 == 0 && codeBefore+size <= len(code) {
		last := binary.LittleEndian.Uint32(code[codeBefore+size-4:])
		return last&^(0xfff<<10) == 0x910003fd // add x29, sp, #number
	}
	const format = "CFA is rsp%d according to CFI, but rsp%d according to the instructions"
	if _, err := fmt.Sscanf(x.What, format, &known, &found); err != nil {
		return false
	}
	number := int(int8(code[2]))
	switch {
	case code[0] == 0x83 && code[1] == 0xc4: // add
		return found-known == -number
	case code[0] == 0x83 && code[1] == 0xec: // sub
		return found-known == number
	}
	push := code[2]&0xf8 == 0x50 || code[1] == 0x6a || code[0] == 0x74 && code[1] == 0x24 // a register, number, (%rsp)
	pop := code[2]&0xf8 == 0x58
	return push && found-known == 8 || pop && found-known == -8
}

// codeBefore and codeSize are the numbers of bytes in a finding's code: before its start, and in total.
const codeBefore, codeSize = 3, 16
