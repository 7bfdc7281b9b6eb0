// Package manual tests the manual page and completions written by scripts/manual.
package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
)

// product is the path of cfi2sframe.
var product string

func TestMain(m *testing.M) { os.Exit(kit.Tests(m, &product)) }

// runManual runs scripts/manual, and returns the directory with its output.
func runManual(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, kit.Run("", "../../scripts/manual", product, dir))
	return dir
}

// overstrike matches the character printed below a bold or underlined one.
var overstrike = regexp.MustCompile(".\x08")

// TestPage expects mandoc to accept the page, and to print each line of the help.
func TestPage(t *testing.T) {
	path := filepath.Join(runManual(t), "cfi2sframe.1")
	mandoc := peer.Tool(t, "", "mandoc")
	if out, err := mandoc("-T", "lint", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
	text := must.Get(mandoc("-T", "utf8", "-O", "width=100", path).Output())(t)
	text = overstrike.ReplaceAll(text, nil)
	for _, args := range [][]string{{"--help"}, {"help", "check"}, {"help", "ld"}} {
		help := must.Get(exec.Command(product, args...).Output())(t)
		for line := range strings.Lines(string(help)) {
			if line = strings.TrimSpace(strings.TrimPrefix(line, "Usage:")); !strings.Contains(string(text), line) {
				t.Errorf("the page does not contain %q", line)
			}
		}
	}
}

// A completion is typed text, and the words offered to complete it.
type completion struct {
	line string
	want []string
}

// files lists the files in the directory in which words are completed.
var files = []string{"a file", "prog", "sub"}

var completions = []completion{
	{"cfi2sframe --format ", []string{"1", "2", "3"}},
	{"cfi2sframe --format=", []string{"1", "2", "3"}},
	{"cfi2sframe check --report ", []string{"json", "none", "text"}},
	{"cfi2sframe --report=h", []string{"html"}},
	{"cfi2sframe --share=", []string{"auto", "off", "on"}},
	{"cfi2sframe check --min", []string{"--min-coverage", "--min-unwindable"}},
	{"cfi2sframe ", []string{"attach", "check", "completion", "detach", "dump", "help", "ld", "lookup", "remove",
		"version"}},
	{"cfi2sframe l", []string{"ld", "lookup"}},
	{"cfi2sframe help d", []string{"detach", "dump"}},
	{"cfi2sframe completion ", []string{"bash", "fish", "zsh"}},
	{"cfi2sframe -o ", files},
	{"cfi2sframe --output=p", []string{"prog"}},
	{"cfi2sframe check pro", []string{"prog"}},
	{"cfi2sframe --debug-file a", []string{"auto"}},
	{"cfi2sframe --debug-file p", []string{"prog"}},
}

// program completes $1 like readline: words are split at blanks and $COMP_WORDBREAKS.
const program = `
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=() word=
for ((i = 0; i < ${#1}; i++)); do
	c=${1:i:1}
	case $c in
	' ') [ -z "$word" ] || COMP_WORDS+=("$word"); word= ;;
	=) if [ -n "$2" ]; then word+=$c; else COMP_WORDS+=("$word" =); word=; fi ;;
	*) word+=$c ;;
	esac
done
[ -z "$word" ] && [ "$c" = = ] || COMP_WORDS+=("$word")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
set -- $(complete -p cfi2sframe)
while [ "$1" != -F ]; do shift; done
"$2" cfi2sframe "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
if [ -n "${COMPREPLY[*]}" ]; then
	printf '%s\n' "${COMPREPLY[@]}"
else # as readline does for complete -o default
	compgen -f -- "${COMP_WORDS[COMP_CWORD]#*=}"
fi
`

// TestBash completes words with bash-completion, with and without = as a word separator.
func TestBash(t *testing.T) {
	bash := peer.Tool(t, "", "bash")
	system := peer.File(t, "/usr/share/bash-completion/bash_completion")
	dir := t.TempDir()
	for _, name := range files {
		testfile.Write(t, filepath.Join(dir, name), "")
	}
	script := filepath.Join(runManual(t), "cfi2sframe.bash")
	t.Setenv("PATH", filepath.Dir(product)+":"+os.Getenv("PATH"))
	for _, whole := range []string{"", "whole"} {
		for _, c := range completions {
			cmd := bash("--norc", "-c", ". "+system+"; . "+script+program, "bash", c.line, whole)
			cmd.Dir = dir
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("%q: %v", c.line, err)
			}
			var got []string
			for offer := range strings.Lines(string(out)) {
				offer, _, _ = strings.Cut(offer, "  ") // followed by a description
				if offer = strings.TrimSuffix(strings.TrimSpace(offer), "="); offer != "" {
					got = append(got, offer)
				}
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.want) {
				t.Errorf("%q: %q; want %q", c.line, got, c.want)
			}
		}
	}
}
