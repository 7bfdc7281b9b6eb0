// Command peercmp holds the .sframe that GNU ld linked into a program against one
// made from the same program's CFI: every row of GNU's has to be in ours, unless
// it contradicts the CFI. It is run by scripts/peers.
//
// Usage: peercmp GNU OURS
package main

import (
	"fmt"
	"os"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/elffile"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: peercmp GNU OURS")
		os.Exit(2)
	}
	worse, err := compare(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "peercmp:", err)
		os.Exit(2)
	}
	if worse > 0 {
		os.Exit(1)
	}
}

// A row holds for the addresses from begin to end.
type row struct {
	begin, end uint64
	fre        sframe.FRE
}

func load(path string) (*elffile.File, *sframe.Section, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := r.Stat()
	if err != nil {
		return nil, nil, err
	}
	f, err := elffile.New(r, info.Size())
	if err != nil {
		return nil, nil, err
	}
	s := f.Section(".sframe")
	if s == nil {
		return nil, nil, fmt.Errorf("%s has no .sframe", path)
	}
	b, err := f.ReadSection(s)
	if err != nil {
		return nil, nil, err
	}
	d, err := sframe.Decode(b, s.Addr)
	return f, d, err
}

// rows returns what a section says, by address; blocks of PC-mask FDEs one by one.
func rows(s *sframe.Section) ([]row, error) {
	var out []row
	var fres []sframe.FRE
	for i := range s.FDEs {
		d := &s.FDEs[i]
		var err error
		if fres, err = s.FREs(i, fres[:0]); err != nil {
			return nil, err
		}
		step := uint64(d.Size)
		if d.PCMask {
			step = uint64(d.RepSize)
		}
		for block := d.Start; block < d.End(); block += step {
			limit := min(block+step, d.End())
			for j, e := range fres {
				r := row{block + uint64(e.Start), limit, e}
				if j+1 < len(fres) {
					r.end = min(limit, block+uint64(fres[j+1].Start))
				}
				if r.begin < r.end {
					out = append(out, r)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b row) int {
		if a.begin < b.begin {
			return -1
		}
		return 1
	})
	return out, nil
}

// compare returns how many of GNU's rows agree with the CFI and are missing in ours.
func compare(gnuPath, oursPath string) (int, error) {
	f, gnu, err := load(gnuPath)
	if err != nil {
		return 0, err
	}
	_, ours, err := load(oursPath)
	if err != nil {
		return 0, err
	}
	table, err := cfi.Load(f, cfi.Auto)
	if err != nil {
		return 0, err
	}
	// What GNU has wrong, by the CFI.
	check, err := verify.Check(table, gnu, f)
	if err != nil {
		return 0, err
	}
	if check.Total != len(check.Mismatches) {
		return 0, fmt.Errorf("%d mismatches of GNU's with the CFI, too many to list", check.Total)
	}
	theirs, err := rows(gnu)
	if err != nil {
		return 0, err
	}
	mine, err := rows(ours)
	if err != nil {
		return 0, err
	}
	equal, wrong, worse := 0, 0, 0
	for _, g := range theirs {
		for pc := g.begin; pc < g.end; {
			end, same := g.end, false
			i, found := slices.BinarySearchFunc(mine, pc, func(r row, pc uint64) int {
				switch {
				case r.end <= pc:
					return -1
				case r.begin > pc:
					return 1
				}
				return 0
			})
			switch {
			case found:
				end, same = min(end, mine[i].end), sframe.SameRow(&g.fre, &mine[i].fre)
			case i < len(mine):
				end = min(end, mine[i].begin)
			}
			m := slices.IndexFunc(check.Mismatches, func(m verify.Mismatch) bool { return m.Begin < end && m.End > pc })
			switch {
			case same:
				equal++
			case m >= 0:
				wrong++
				fmt.Printf("%#x-%#x: GNU contradicts the CFI: %v\n", pc, end, check.Mismatches[m])
			default:
				worse++
				fmt.Printf("%#x-%#x: GNU has CFA %v FP %v RA %v, which is right and missing here\n", pc, end, g.fre.CFA, g.fre.FP, g.fre.RA)
			}
			pc = end
		}
	}
	fmt.Printf("%d ranges equal, %d contradict the CFI in GNU's, %d missing in ours; bytes covered: GNU %d, ours %d\n",
		equal, wrong, worse, bytes(theirs), bytes(mine))
	return worse, nil
}

func bytes(rows []row) (n uint64) {
	for _, r := range rows {
		n += r.end - r.begin
	}
	return n
}
