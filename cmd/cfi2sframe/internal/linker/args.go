//go:build linux

// Package linker lets a program run in place of a linker. The package parses the arguments, finds the linker that the
// compiler would have run, and creates the directory in which compilers find this program.
package linker

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// maxExpanded bounds the number of response files, because a file can include itself. GNU libiberty has the same limit.
const maxExpanded = 2000

// Expand returns the arguments with response files (@FILE) replaced by their contents. If a file cannot be read, the
// argument is unchanged.
func Expand(args []string) []string {
	var out []string
	left := maxExpanded
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if name, ok := strings.CutPrefix(arg, "@"); ok && left > 0 {
			if b, err := os.ReadFile(name); err == nil {
				left--
				words, _ := Split(string(b)) // the end of the file closes a quote
				args = append(words, args...)
				continue
			}
		}
		out = append(out, arg)
	}
	return out
}

var errQuote = errors.New("unterminated quote")

// Split splits text, in any encoding, into words like a shell, with quotes and backslashes but without expansions. If a
// quote is not closed, it returns the words so far and an error.
func Split(text string) ([]string, error) {
	var words []string
	var word []byte
	in := false      // inside a word
	quote := byte(0) // the open quote, or 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(text):
			in = true
			i++
			if text[i] == '\n' { // line continuation
				continue
			}
			if quote == '"' && !strings.Contains("\"\\$`", text[i:i+1]) {
				word = append(word, c)
			}
			word = append(word, text[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, in = c, true
		case quote == 0 && strings.Contains(" \t\n\v\f\r", text[i:i+1]):
			if in {
				words = append(words, string(word))
			}
			word, in = nil, false
		default:
			word = append(word, c)
			in = true
		}
	}
	if in {
		words = append(words, string(word))
	}
	if quote != 0 {
		return words, errQuote
	}
	return words, nil
}

// OwnLayout reports whether the arguments of a linker or compiler name a linker script, on whose layout kernels and
// boot loaders depend, or make gold change its output in place later (--incremental).
func OwnLayout(args []string) bool {
	for _, arg := range args {
		for _, a := range strings.Split(strings.TrimPrefix(arg, "-Wl,"), ",") {
			if strings.HasPrefix(a, "--") {
				a = a[1:]
			}
			name, _, _ := strings.Cut(a, "=")
			if name == "-script" || strings.HasPrefix(a, "-incremental") ||
				strings.HasPrefix(a, "-T") && !slices.Contains(addressFlags, name) {
				return true
			}
		}
	}
	return false
}

// addressFlags start with -T but set the address of a section or segment.
var addressFlags = []string{"-Ttext", "-Tdata", "-Tbss", "-Ttext-segment", "-Trodata-segment", "-Tldata-segment"}

// Outputs returns the possible outputs of a linker or compiler. The result can have several elements, because only the
// linker knows which arguments are values of other flags (-mllvm -opaque-pointers).
func Outputs(args []string) []string {
	var out []string
	for i, arg := range args {
		long, isLong := strings.CutPrefix(arg, "--output=")
		switch {
		case (arg == "-o" || arg == "--output") && i+1 < len(args):
			out = append(out, args[i+1])
		case isLong:
			out = append(out, long)
		case strings.HasPrefix(arg, "-o"):
			out = append(out, arg[len("-o"):])
		}
	}
	if len(out) == 0 {
		return []string{"a.out"}
	}
	return out
}
