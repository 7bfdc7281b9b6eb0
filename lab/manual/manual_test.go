// Package manual tests the manual pages and completions that scripts/manual writes.
package manual

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/lab/kit"
)

// made is where the program is, and what was made for it.
var made struct{ dir, program, step string }

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "manual")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	made.dir, made.program, made.step = dir, filepath.Join(dir, "cfi2sframe"), filepath.Join(dir, "cfi-step")
	if err := kit.BuildProduct(made.program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if out, err := exec.Command("go", "build", "-o", made.step, "../cmd/cfi-step").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	if out, err := exec.Command("../../scripts/manual", made.program, made.step, dir).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "scripts/manual: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// overstrike matches what is printed below a bold or an underlined character.
var overstrike = regexp.MustCompile(".\x08")

// TestPages expects mandoc to find nothing wrong with the pages, and to print each line of the help.
func TestPages(t *testing.T) {
	for page, commands := range map[string][][]string{
		"cfi2sframe.1": {
			{made.program, "--help"}, {made.program, "help", "check"}, {made.program, "help", "ld"},
			{made.program, "help", "survey"},
		},
		"cfi-step.1": {{made.step, "--help"}},
	} {
		path := filepath.Join(made.dir, page)
		mandoc := peer.Tool(t, "", "mandoc")
		if out, err := mandoc("-T", "lint", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("mandoc: %v\n%s", err, out)
		}
		text, err := mandoc("-T", "utf8", "-O", "width=100", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		text = overstrike.ReplaceAll(text, nil)
		for _, command := range commands {
			help, err := exec.Command(command[0], command[1:]...).Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(help)) {
				if line = strings.TrimSpace(strings.TrimPrefix(line, "Usage:")); !strings.Contains(string(text), line) {
					t.Errorf("%s does not have %q", page, line)
				}
			}
		}
	}
}

// A completion is what is typed, and what can follow.
type completion struct {
	line string
	want []string
}

// shellCases are what all shells must know. The directory has "a file", prog and sub/.
func shellCases() []completion {
	files := []string{"a file", "prog", "sub"}
	return []completion{
		{"cfi2sframe --format ", []string{"1", "2", "3"}},
		{"cfi2sframe --format=", []string{"1", "2", "3"}},
		{"cfi2sframe check --report ", []string{"json", "none", "text"}},
		{"cfi2sframe survey --report=h", []string{"html"}},
		{"cfi2sframe --share=", []string{"auto", "off", "on"}},
		{"cfi2sframe check --min", []string{"--min-coverage", "--min-unwindable"}},
		{"cfi2sframe ", []string{"attach", "check", "completion", "detach", "diff", "dump", "help", "ld", "lookup", "merge",
			"remove", "survey", "version"}},
		{"cfi2sframe l", []string{"ld", "lookup"}},
		{"cfi2sframe help d", []string{"detach", "diff", "dump"}},
		{"cfi2sframe completion ", []string{"bash", "fish", "zsh"}},
		{"cfi2sframe -o ", files},
		{"cfi2sframe --output=p", []string{"prog"}},
		{"cfi2sframe check pro", []string{"prog"}},
		{"cfi2sframe --debug-file a", []string{"auto"}},
		{"cfi2sframe --debug-file p", []string{"prog"}},
	}
}

// directory returns the directory for completions.
func directory(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"a file", "prog"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// compare runs a shell for each completion, and compares what it offers.
func compare(t *testing.T, strip func(line, offer string) string, shell func(line string) *exec.Cmd) {
	t.Helper()
	dir := directory(t)
	for _, c := range shellCases() {
		cmd := shell(c.line)
		cmd.Dir = dir
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, "PATH="+made.dir+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%q: %v", c.line, err)
			continue
		}
		var got []string
		for _, offer := range strings.Split(strings.TrimRight(string(out), "\n"), "\n") {
			if offer = strip(c.line, offer); offer != "" {
				got = append(got, offer)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q; want %q", c.line, got, c.want)
		}
	}
}

// bashProgram completes $1 as readline has it done: words are divided at blanks and $COMP_WORDBREAKS.
const bashProgram = `
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

// TestBash has bash complete with bash-completion, with = dividing words and not.
func TestBash(t *testing.T) {
	plain := func(_, offer string) string {
		offer, _, _ = strings.Cut(offer, "  ") // a description follows
		return strings.TrimSuffix(strings.TrimSpace(offer), "=")
	}
	bash := peer.Tool(t, "", "bash")
	system := peer.File(t, "/usr/share/bash-completion/bash_completion")
	script := filepath.Join(made.dir, "cfi2sframe.bash")
	for _, whole := range []string{"", "whole"} {
		compare(t, plain, func(line string) *exec.Cmd {
			return bash("--norc", "-c", ". "+system+"; . "+script+bashProgram, "bash", line, whole)
		})
	}
}
