package stepping

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/lab/step"
	"cfi2sframe/report"
)

// line sums up a result.
func line(r *result) string {
	status := "ok  "
	if r.Faults() > 0 {
		status = "FAIL"
	}
	return fmt.Sprintf("%s  %s %s: %s steps, %s where the CFI is wrong, %s faults of SFrame; %.0f s", status, r.ABI, r.Subject,
		report.Digits(r.Steps), report.Digits(r.Wrong()), report.Digits(r.Faults()), r.Seconds)
}

// summary prints the sums for each ABI, and what SFrame is to blame for. It reports whether there is nothing of the latter.
func summary(out io.Writer, results []*result) bool {
	ok := true
	for _, abi := range abis(results) {
		t := sum(results, abi)
		fmt.Fprintf(out, "%s: %s steps in %s functions of %d files, %s calls; the CFI right in %s, wrong in %s", abi, report.Digits(t.steps),
			report.Digits(t.functions), t.files, report.Digits(t.calls), report.Digits(t.right), report.Digits(t.wrong))
		for v := 2; v <= 3; v++ {
			s := t.sections[v]
			fmt.Fprintf(out, "; SFrame V%d right in %s, faults in %s", v, report.Digits(s.Right), report.Digits(s.Faults))
		}
		fmt.Fprintln(out)
	}
	for _, r := range results {
		for _, f := range r.Functions {
			if f.Side == "CFI" {
				continue
			}
			ok = false
			for _, p := range f.Places {
				fmt.Fprintf(out, "FAULT %s %s: %s of %s, %s at %#x: wrong %s; it says %s; %s\n", r.ABI, r.Subject, f.Name, f.File, f.Side, p.Begin, p.What, p.Says, p.Truth)
			}
		}
	}
	return ok
}

func abis(results []*result) []string {
	names := make(map[string]bool)
	for _, r := range results {
		names[r.ABI] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// A total is what all results of an ABI sum up to.
type total struct {
	steps, right, wrong, outermost, unknown, silent, target uint64
	calls, functions                                        uint64
	files                                                   int
	sections                                                map[int]step.SectionReport
}

func sum(results []*result, abi string) total {
	t := total{sections: make(map[int]step.SectionReport)}
	type function struct {
		file string
		addr uint64
	}
	functions, files := make(map[function]bool), make(map[string]bool)
	for _, r := range results {
		if r.ABI != abi {
			continue
		}
		t.steps += r.Steps
		t.right += r.Right
		t.wrong += r.Wrong()
		t.outermost += r.Outermost
		t.unknown += r.Unknown
		t.silent += r.Silent
		t.target += r.Target
		t.calls += r.Calls
		for _, s := range r.Sections {
			c := t.sections[int(s.Version)]
			c.Right += s.Right
			c.Repeats += s.Repeats
			c.Faults += s.Faults
			c.Gaps += s.Gaps
			c.Stubs += s.Stubs
			t.sections[int(s.Version)] = c
		}
		for _, f := range r.Files {
			for _, a := range f.Functions {
				functions[function{f.Path, a}] = true
				files[f.Path] = true
			}
		}
	}
	t.functions, t.files = uint64(len(functions)), len(files)
	return t
}

// A finding is a place in a function of a file, in all results together.
type finding struct {
	abi, file, pkg, function string
	step.Place
}

// many is from how many functions of a file on those that forget the frame pointer only are not listed one by one.
const many = 20

// findings returns what the CFI of the files says wrongly.
func findings(results []*result) []finding {
	type key struct {
		abi, file, function, what, says, truth string
		begin                                  uint64
	}
	all := make(map[key]*finding)
	for _, r := range results {
		for _, f := range r.Functions {
			if f.Side != "CFI" {
				continue
			}
			for _, p := range f.Places {
				k := key{r.ABI, f.File, f.Name, p.What, p.Says, p.Truth, p.Begin}
				if old := all[k]; old != nil {
					old.Steps += p.Steps
					old.Confirmed += p.Confirmed
					old.Last = max(old.Last, p.Last)
				} else {
					all[k] = &finding{r.ABI, f.File, r.Packages[f.File], f.Name, p}
				}
			}
		}
	}
	var list []finding
	for _, f := range all {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.abi, b.abi), cmp.Compare(a.file, b.file), cmp.Compare(a.Begin-a.Offset, b.Begin-b.Offset), cmp.Compare(a.function, b.function),
			cmp.Compare(a.What, b.What), cmp.Compare(a.Truth, b.Truth), cmp.Compare(a.Begin, b.Begin))
	})
	// What was found at neighbouring instructions is one.
	var merged []finding
	for _, f := range list {
		if n := len(merged); n > 0 {
			if m := &merged[n-1]; m.abi == f.abi && m.file == f.file && m.function == f.function && m.What == f.What && m.Truth == f.Truth && m.Says == f.Says &&
				(m.Confirmed > 0) == (f.Confirmed > 0) {
				m.Last = max(m.Last, f.Last)
				m.Steps += f.Steps
				m.Confirmed += f.Confirmed
				continue
			}
		}
		merged = append(merged, f)
	}
	return merged
}

const intro = `# Where call frame information contradicts the processor

What compilers and authors of assembly say of stack frames can be wrong, and a stack trace is wrong then, whoever reads it.
This page lists what was found by running programs one instruction at a time: a second stack of all calls knows at every step what the
caller's return address, stack pointer and frame pointer are (` + "`lab/step`" + `), and the call frame information (CFI) of the program and of
all of its libraries was asked for the same, and SFrame too. It is made by

    scripts/lab step --steps 100000000 --markdown docs/truth.md

and ` + "`cfi-step PROGRAM`" + ` does the same for a program of your own.

`

// markdown writes docs/truth.md.
func markdown(path string, results []*result) error {
	var b strings.Builder
	b.WriteString(intro)
	b.WriteString("## Steps\n\n| ABI | steps | functions | files | CFI right | CFI wrong | no CFI | no caller | caller not known | V2 right | V2 repeats | V2 no row | V2 faults | V3 right | V3 repeats | V3 no row | V3 faults |\n|---|" +
		strings.Repeat("---:|", 16) + "\n")
	n := report.Digits
	for _, abi := range abis(results) {
		t := sum(results, abi)
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %s | %s | %s | %s | %s |", abi, n(t.steps), n(t.functions), t.files, n(t.right), n(t.wrong), n(t.silent), n(t.outermost), n(t.unknown))
		for v := 2; v <= 3; v++ {
			s := t.sections[v]
			fmt.Fprintf(&b, " %s | %s | %s | %s |", n(s.Right), n(s.Repeats), n(s.Gaps), n(s.Faults))
		}
		b.WriteString("\n")
	}
	b.WriteString(`
Each step has one answer of the CFI, and one of each section. A section repeats what is wrong where the CFI is; a fault would be any other wrong
answer of its own. Before a jump to elsewhere (longjmp, an exception), CFI that already says where it goes is neither right nor wrong.

`)
	for _, abi := range abis(results) {
		steps, names := make(map[string]uint64), []string(nil)
		for _, r := range results {
			if r.ABI == abi {
				steps[r.Subject] += r.Steps
			}
		}
		for _, subject := range slices.Sorted(maps.Keys(steps)) {
			names = append(names, fmt.Sprintf("%s (%s)", subject, n(steps[subject])))
		}
		fmt.Fprintf(&b, "Programs for %s, with their steps: %s.\n\n", abi, strings.Join(names, ", "))
	}
	sure, doubtful := split(findings(results))
	b.WriteString("## Functions whose CFI is wrong\n\nPlaces are addresses in the file, and what is wrong holds from the first instruction to the last one before which it was seen. The frame\nwas left by a return to where the truth said.\n")
	table(&b, sure)
	b.WriteString("\n## Frames that were left by a jump\n\nUnwinders write where they go over their own frame, and code that goes to another stack leaves one behind: between the first such instruction and the jump,\nwhat the CFI says is neither who called nor where it goes.\n")
	table(&b, doubtful)
	b.WriteString("\n## Code without CFI\n\nPrograms spent steps there, in which nobody can say who the caller is; PLT stubs have rows in SFrame nevertheless.\n\n| ABI | file | package | function, or section | steps |\n|---|---|---|---|---:|\n")
	gaps(&b, results, func(r *result) []step.Gap { return r.NoCFI }, false)
	b.WriteString("\n## What SFrame has no row for\n\n| ABI | file | package | function | format | reason | steps |\n|---|---|---|---|---:|---|---:|\n")
	gaps(&b, results, func(r *result) []step.Gap { return r.Gaps }, true)
	f, err := os.CreateTemp(filepath.Dir(path), ".truth-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err := f.WriteString(b.String()); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// split parts findings by whether a return has confirmed them.
func split(list []finding) (sure, doubtful []finding) {
	for _, f := range list {
		if f.Confirmed > 0 {
			sure = append(sure, f)
		} else {
			doubtful = append(doubtful, f)
		}
	}
	return sure, doubtful
}

// table writes findings, by file. Where many functions of one file forget the frame pointer, that is one line.
func table(b *strings.Builder, list []finding) {
	type file struct{ abi, name string }
	forgets := make(map[file]map[string]bool)
	for _, f := range list {
		k := file{f.abi, f.file}
		if forgets[k] == nil {
			forgets[k] = make(map[string]bool)
		}
		if f.What == "FP" {
			forgets[k][f.function] = true
		}
	}
	at, open := file{}, false
	steps, functions := uint64(0), make(map[string]bool)
	end := func() {
		if len(functions) > 0 {
			fmt.Fprintf(b, "| %s functions | | FP | nothing of the frame pointer | they save it, and use the register | %s |\n", report.Digits(uint64(len(functions))), report.Digits(steps))
		}
		steps, functions = 0, make(map[string]bool)
	}
	for _, f := range list {
		k := file{f.abi, f.file}
		if k != at {
			if open {
				end()
			}
			at, open = k, true
			pkg := f.pkg
			if pkg != "" {
				pkg = " (" + pkg + ")"
			}
			fmt.Fprintf(b, "\n### %s%s, %s\n\n| function | from, to | wrong | CFI says | so is | steps |\n|---|---|---|---|---|---:|\n", f.file, pkg, f.abi)
		}
		if f.What == "FP" && len(forgets[k]) > many {
			steps += f.Steps
			functions[f.function] = true
			continue
		}
		where := fmt.Sprintf("%#x (+%#x)", f.Begin, f.Offset)
		if f.Last != f.Begin {
			where = fmt.Sprintf("%#x to %#x (+%#x)", f.Begin, f.Last, f.Offset)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", cell(f.function), where, f.What, cell(f.Says), cell(f.Truth), report.Digits(f.Steps))
	}
	if open {
		end()
	} else {
		b.WriteString("\nNone.\n")
	}
}

// cell makes text fit a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;").Replace(report.Printable(s))
}

// leastSteps is how many steps code without an answer has to have to be listed.
const leastSteps = 100

func gaps(b *strings.Builder, results []*result, of func(*result) []step.Gap, rows bool) {
	type key struct {
		abi, file, pkg, name, reason string
		version                      int
	}
	sums := make(map[key]uint64)
	for _, r := range results {
		for _, g := range of(r) {
			sums[key{r.ABI, g.File, r.Packages[g.File], g.Name, g.Reason, int(g.Version)}] += g.Steps
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(x, y key) int {
		return cmp.Or(cmp.Compare(x.abi, y.abi), cmp.Compare(x.file, y.file), cmp.Compare(sums[y], sums[x]), cmp.Compare(x.name, y.name), cmp.Compare(x.version, y.version))
	})
	few := uint64(0)
	for _, k := range keys {
		if sums[k] < leastSteps {
			few += sums[k]
			continue
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |", k.abi, k.file, k.pkg, cell(k.name))
		if rows {
			fmt.Fprintf(b, " %d | %s |", k.version, k.reason)
		}
		fmt.Fprintf(b, " %s |\n", report.Digits(sums[k]))
	}
	if few > 0 {
		fmt.Fprintf(b, "\nOther code, with less than %d steps each: %s steps.\n", leastSteps, report.Digits(few))
	}
}
