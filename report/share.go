package report

import (
	"cfi2sframe/elffile"
	"cfi2sframe/translate"
)

// A Place says for people where a function is.
type Place struct {
	Function string // as the source has it, or "" if no symbol names it
	Symbol   string // the mangled name, if it is another
	Section  string // in a relocatable object, what Begin counts from
	Begin    uint64 // address
}

// Places finds the functions that gaps, by address, are in, as the list of gaps names them.
func Places(f *elffile.File, gaps []translate.Gap) []Place {
	out := make([]Place, len(gaps))
	names := newNamer(NewRoom())
	for i, n := range functionNames(symbolFiles(f, nil), gaps, names) {
		p := &out[i]
		p.Function, p.Symbol = names.names(n.name)
		p.Section, p.Begin = sectionRelative(f, n.start)
	}
	return out
}

// Digits groups a number by thousands.
func Digits(n uint64) string { return digits(n) }

// Share says a part of a whole in percent. It never rounds up to 100.
func Share(part, whole uint64) string { return percent(part, whole) }

// Printable quotes a name that would do something to a terminal.
func Printable(name string) string { return printable(name) }
