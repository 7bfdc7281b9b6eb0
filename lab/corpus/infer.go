package corpus

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
)

// A flaw is CFI that contradicts the instructions because it is wrong; docs/evidence.md lists it.
type flaw struct {
	file  string // pattern of the file's base name
	what  string // pattern of the description, for path.Match, without slashes
	bytes uint64 // at most, in a file
}

// flaws lists errors in the CFI of Debian's files. Their addresses change with every build.
var flaws = []flaw{
	{"libc.so.6", "CFA is rsp+8 according to CFI, but rsp+* according to the instructions", 450},
	{"libcrypto.so.3", "CFA is rsp+* according to CFI, but rsp+* according to the instructions", 12174},
	{"*", "RA is at CFA-8 according to CFI, but undefined according to the instructions", 256}, // the entry point
}

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
		list = unknown(filepath.Base(name), list)
		if len(list) > 0 {
			c.wrong++
		}
		fmt.Printf("%s: %s\n", name, agreement(a))
		for i, x := range list {
			if i == mostPrinted {
				fmt.Printf("  and %d more\n", len(list)-i)
				break
			}
			fmt.Printf("  WRONG %#x-%#x %s\n", x.Begin, x.End, x.What)
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
func contradictions(name string) (list []convert.Contradiction, a *convert.Agreement, err error) {
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
	return convert.Contradictions(f, table)
}

// unknown returns the contradictions that are not due to known errors in CFI.
func unknown(base string, list []convert.Contradiction) (rest []convert.Contradiction) {
	allowed := make([]uint64, len(flaws))
	for i := range flaws {
		allowed[i] = flaws[i].bytes
	}
next:
	for _, x := range list {
		for i, fl := range flaws {
			file, _ := path.Match(fl.file, base)
			what, _ := path.Match(fl.what, strings.ReplaceAll(x.What, "/", ""))
			if file && what && x.End-x.Begin <= allowed[i] {
				allowed[i] -= x.End - x.Begin
				continue next
			}
		}
		rest = append(rest, x)
	}
	return rest
}
