package report

import (
	"cfi2sframe/internal/elffile"
	"cfi2sframe/translate"
)

// A Place says for people where a function is.
type Place struct {
	Function string // as the source has it, or "" if no symbol names it
	Symbol   string // the mangled name, if it is another
	Section  string // in a relocatable object, what Begin counts from
	Begin    uint64 // address
}

// PlaceOf finds the function that a gap is in, as the list of gaps names it.
func PlaceOf(f *elffile.File, g translate.Gap) Place {
	n := functionNames(symbolFiles(f, nil), []translate.Gap{g})[0]
	var p Place
	p.Function, p.Symbol = demangled(n.name)
	p.Section, p.Begin = sectionRelative(f, n.start)
	return p
}

// Digits groups a number by thousands.
func Digits(n uint64) string { return digits(n) }

// Share says a part of a whole in percent. It never rounds up to 100.
func Share(part, whole uint64) string { return percent(part, whole) }

// Printable quotes a name that would do something to a terminal.
func Printable(name string) string { return printable(name) }
