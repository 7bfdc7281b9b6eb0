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

// Split splits text into words like a shell, with quotes and backslashes but without expansions. If a quote is not
// closed, it returns the words so far and an error.
func Split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	in := false      // inside a word
	quote := rune(0) // the open quote, or 0
	runes := []rune(text)
	for i := 0; i < len(runes); i++ {
		c := runes[i]
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(runes):
			next := runes[i+1]
			i++
			in = true
			if next == '\n' { // line continuation
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

// OwnScript reports whether the arguments of a linker or compiler name a linker script. Kernels and boot loaders depend
// on the layout that their scripts define.
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
			case strings.HasPrefix(a, "-T") && !slices.Contains(addressFlags, name):
				return true
			}
		}
	}
	return false
}

// addressFlags start with -T but set the address of a section or segment.
var addressFlags = []string{"-Ttext", "-Tdata", "-Tbss", "-Ttext-segment", "-Trodata-segment", "-Tldata-segment"}

// DefaultOutput is the output if -o is missing.
const DefaultOutput = "a.out"

// Outputs returns the possible outputs of a linker or compiler. The result can have several elements, because only the
// linker knows which arguments are values of other flags (-mllvm -opaque-pointers).
func Outputs(args []string) []string {
	var out []string
	for i, arg := range args {
		value, joined := "", false
		if after, ok := strings.CutPrefix(arg, "--o"); ok {
			arg = "-o" + after
		} else if after, ok := strings.CutPrefix(arg, "-o"); ok && after != "" {
			out = append(out, after) // only gold reads -output as --output
		}
		if arg, value, joined = strings.Cut(arg, "="); !joined && i+1 < len(args) {
			value = args[i+1]
		}
		// GNU ld accepts abbreviated flags.
		if strings.HasPrefix("-output", arg) && len(arg) >= len("-o") && value != "" {
			out = append(out, value)
		}
	}
	if len(out) == 0 {
		return []string{DefaultOutput}
	}
	return out
}
