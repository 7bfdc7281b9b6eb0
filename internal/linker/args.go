//go:build linux

// Package linker is what a program needs to know that stands in front of a linker: what a linker's arguments say of its
// output, which linker a compiler would have run, and where compilers look for one.
package linker

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// maxExpanded is how many response files are read at most, as one can name itself. The libraries of GNU have this
// limit, too.
const maxExpanded = 2000

// Expand returns the arguments with the contents of response files (@FILE) in their places. What cannot be read is
// an argument like others.
func Expand(args []string) []string {
	var out []string
	left := maxExpanded
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if name, ok := strings.CutPrefix(arg, "@"); ok && left > 0 {
			if b, err := os.ReadFile(name); err == nil {
				left--
				words, _ := Split(string(b)) // a quote that is not closed ends with the file
				args = append(words, args...)
				continue
			}
		}
		out = append(out, arg)
	}
	return out
}

// errQuote is returned for a quotation without an end.
var errQuote = errors.New("a quotation has no end")

// Split divides text into words as a shell does that expands nothing: they are separated by white space, and a
// backslash and quotes take characters as they are. With an error there are words, too.
func Split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	in := false      // a word
	quote := rune(0) // that is open
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		c := runes[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(runes):
			next := runes[i+1]
			i++
			in = true
			if next == '\n' { // the line goes on
				continue
			}
			if quote == '"' && !strings.ContainsRune("\"\\$`", next) {
				word.WriteRune(c)
			}
			word.WriteRune(next)
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, in = c, true
		case quote == 0 && strings.ContainsRune(" \t\n\v\f\r", c):
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteRune(c)
			in = true
		}
	}
	if in {
		words = append(words, word.String())
	}
	if quote != 0 {
		return words, errQuote
	}
	return words, nil
}

// OwnScript reports whether the arguments of a linker, or of a compiler that links, have a linker script: the layout of the
// output is somebody's who may count on it, as kernels, their vDSO and boot loaders do.
func OwnScript(args []string) bool {
	for _, arg := range args {
		for _, a := range strings.Split(strings.TrimPrefix(arg, "-Wl,"), ",") {
			if strings.HasPrefix(a, "--") {
				a = a[1:]
			}
			name, _, _ := strings.Cut(a, "=")
			switch {
			case name == "-T", name == "-script":
				return true
			case strings.HasPrefix(a, "-T") && !slices.Contains([]string{"-Ttext", "-Tdata", "-Tbss", "-Ttext-segment", "-Trodata-segment", "-Tldata-segment"}, name):
				return true
			}
		}
	}
	return false
}

// DefaultOutput is what linkers and compilers call their output without -o.
const DefaultOutput = "a.out"

// Outputs returns the names that the output can have by the arguments of a linker, or of a compiler that links. There can
// be more than one, as only the linker knows which arguments are values of others (-mllvm -opaque-pointers), and not
// all read them in the same way: the output is the file that it makes.
func Outputs(args []string) []string {
	var out []string
	for i, arg := range args {
		value, joined := "", false
		if after, ok := strings.CutPrefix(arg, "--o"); ok {
			arg = "-o" + after
		} else if after, ok := strings.CutPrefix(arg, "-o"); ok && after != "" { // -output for all but gold
			out = append(out, after)
		}
		if arg, value, joined = strings.Cut(arg, "="); !joined && i+1 < len(args) {
			value = args[i+1]
		}
		// GNU ld takes parts of names.
		if strings.HasPrefix("-output", arg) && len(arg) >= len("-o") && value != "" {
			out = append(out, value)
		}
	}
	if len(out) == 0 {
		return []string{DefaultOutput}
	}
	return out
}
