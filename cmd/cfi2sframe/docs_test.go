package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/plain"
	"cfi2sframe/internal/testkit/testfile"
)

// docsFiles creates the files that README.md and docs/usage.md use.
const docsFiles = `set -e
cp $BIN/prologue prog
cp $BIN/prologue lib.o
mkdir -p build/bin build/lib rootfs/bin
cp $BIN/prologue build/bin/a
cp $BIN/framepointer rootfs/bin/b
cp $BIN/pltlib.so build/lib/c.so
echo 'int f(void) { return 1; }' >f.c
cc -c f.c && ar r lib.a f.o 2>log
echo 'int main(void) { return 0; }' >main.c
cp $TOP/go.sum .
echo 'module example' >go.mod
printf 'package main\n\nimport _ "cfi2sframe/sframe"\n' >main.go
`

// docsElsewhere maps commands that TestDocs does not run to the scripts that run them.
var docsElsewhere = map[string]string{
	"make && sudo make install": "integrations/debian/build-deb",
	"CGO_ENABLED=0 go build -v ./cmd/cfi2sframe && ./cfi2sframe --for perf /bin/ls -o /tmp/ls && /tmp/ls -l " +
		"/tmp/ls": "scripts/fresh", "scripts/test": "scripts/fresh",
}

// TestDocs runs all commands in README.md and docs/usage.md, in a separate directory for each file. Lines below a
// command are its output; "..." matches any lines.
func TestDocs(t *testing.T) {
	for _, tool := range []string{"cc", "ar", "jq"} {
		peer.Look(t, tool)
	}
	bin := must.Get(filepath.Abs("../../testdata/bin/amd64"))(t)
	top := must.Get(filepath.Abs("../.."))(t)
	ls := plain.File(t, "/bin/ls")
	// The directory of "ld --print-dir" contains links to the running program, which must be cfi2sframe, not the test.
	t.Setenv("PATH", filepath.Dir(tool(t))+":"+os.Getenv("PATH"))
	local := strings.NewReplacer("/usr/bin /usr/lib", "rootfs", "/bin/ls", ls, "/path/to/clone", top)
	for _, name := range []string{"README.md", "docs/usage.md"} {
		dir := t.TempDir()
		run := func(command string) (string, int) {
			cmd := exec.Command("sh", "-c", command)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "BIN="+bin, "TOP="+top)
			out, err := cmd.CombinedOutput()
			if err != nil && cmd.ProcessState == nil {
				t.Fatal(err)
			}
			return string(out), cmd.ProcessState.ExitCode()
		}
		if out, status := run(docsFiles); status != 0 {
			t.Fatalf("status %d: %s", status, out)
		}
		commands := docsCommands(t, name)
		for _, c := range commands {
			out, status := run(local.Replace(c.line))
			if status != 0 {
				t.Errorf("%s: %s\nstatus %d: %s", name, c.line, status, out)
			}
			if c.output != "" && !matchesDocument(local.Replace(c.output), out) {
				t.Errorf("%s: %s\nprints: %s\nnot: %s", name, c.line, out, c.output)
			}
		}
		if len(commands) < 10 {
			t.Errorf("%s has %d commands", name, len(commands))
		}
	}
}

// TestDocsFilters runs all jq commands of the documents on the reports that they are for. The trees contain correct,
// skipped, damaged and failing files. The output must name these files; a command with -e must fail if a file failed.
func TestDocsFilters(t *testing.T) {
	peer.Look(t, "jq")
	type filter struct{ report, jq string }
	var filters []filter
	for _, path := range append(must.Get(filepath.Glob("../../docs/*.md"))(t), "../../README.md") {
		reports := make(map[string]string) // commands, by the file that they write
		for line := range strings.Lines(string(testfile.Read(t, path))) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
			if m := regexp.MustCompile(`^(cfi2sframe .*) >(\S+\.json)$`).FindStringSubmatch(line); m != nil {
				reports[m[2]] = regexp.MustCompile(` (build|/usr/bin)$`).ReplaceAllString(m[1], " tree")
			}
			m := regexp.MustCompile(`^(jq .*) (\S+\.json)$`).FindStringSubmatch(line)
			if m != nil && m[2] != partTotals { // TestDocsParts runs the others
				filters = append(filters, filter{reports[m[2]], m[1]})
			} else if m == nil && strings.HasPrefix(line, "jq ") {
				t.Errorf("%s: no test runs %s", path, line)
			}
		}
	}
	bin := must.Get(filepath.Abs(fixtures))(t)
	t.Setenv("PATH", filepath.Dir(tool(t))+":"+os.Getenv("PATH"))
	const percent, failing = `(?m)^[0-9.]+ % (\S+)$|^.*$`, `(?m)^(\S+): \S.*$|^.*$`
	kinds := make(map[string]bool)
	for _, tt := range []struct {
		make, report string
		bad          []string
	}{
		{"true", "", nil},
		{"cp $BIN/prologue plain", "check", []string{"plain"}},
		{"cp $BIN/prologue cut; truncate -s 1000 cut", "", []string{"cut"}},
		{"cfi2sframe -q --format 2 $BIN/prologue -o wrong; printf '\020' | " +
			"dd bs=1 seek=4166 count=1 conv=notrunc of=wrong", "check", []string{"wrong"}},
		{`cp ok "$(printf 'a\376')"; cp $BIN/prologue cut; truncate -s 1000 cut; cp cut "$(printf 'cut\376')"`, "",
			[]string{"cut", `"tree/cut\xfe"`}},
		{"rm ok", "check", []string{"tree"}},
	} {
		for _, f := range filters {
			dir := t.TempDir()
			run := func(command string) (string, int) {
				cmd := exec.Command("sh", "-c", command)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "BIN="+bin)
				out, err := cmd.Output()
				if err != nil && cmd.ProcessState == nil {
					t.Fatal(err)
				}
				return string(out), cmd.ProcessState.ExitCode()
			}
			run(`mkdir tree && cd tree && cfi2sframe -q $BIN/prologue -o ok && echo '#!/bin/sh' >script && ` + tt.make)
			_, failed := run(f.report + " >report")
			out, status := run(f.jq + " report")
			var bad []string
			if tt.report == "" || strings.Contains(f.report, " "+tt.report+" ") {
				for _, name := range tt.bad {
					if !strings.Contains(name, "tree") {
						name = "tree/" + name
					}
					bad = append(bad, name)
				}
			}
			if (failed != 0) != (bad != nil) {
				t.Errorf("%s: status %d of %s, files %q", tt.make, failed, f.report, bad)
			}
			names := func(pattern string) (found []string) {
				for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(strings.TrimSpace(out), -1) {
					if m[0] != "" {
						found = append(found, m[1])
					}
				}
				return found
			}
			ok := false
			switch {
			case strings.Contains(f.jq, " -e "):
				kinds["gate"] = true
				ok = out == fmt.Sprintln(bad == nil) && (status == 0) == (bad == nil)
			case strings.Contains(f.jq, "select(.error)"):
				kinds["errors"] = true
				ok = slices.Equal(names(failing), bad)
			case strings.Contains(f.jq, "_percent"):
				kinds["percent"] = true
				found := names(percent)
				ok = !slices.Contains(found, "") && slices.Contains(found, "tree/ok") == (tt.make != "rm ok")
			}
			if !ok {
				t.Errorf("%s: %s, status %d, prints\n%s", tt.make, f.jq, status, out)
			}
		}
	}
	if len(kinds) != 3 {
		t.Errorf("filters of %d kinds: %q", len(kinds), filters)
	}
}

// partTotals is the file in which docs/reports.md collects the totals of parts.
const partTotals = "totals.json"

// TestDocsParts runs the commands of docs/reports.md for a report in parts, and expects the totals of a single run.
func TestDocsParts(t *testing.T) {
	peer.Look(t, "jq")
	text := string(testfile.Read(t, "../../docs/reports.md"))
	_, text, _ = strings.Cut(text, "\n## Several files\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text = regexp.MustCompile("(?m)^(?:[^ \n].*)?\n").ReplaceAllString(text, "") // keep the commands
	job, text, ok := strings.Cut(text, ">part-$SLURM_ARRAY_TASK_ID.json\n")
	parallel, jq, found := strings.Cut(text, "json >part-1.json\n")
	if !ok || !found {
		t.Fatalf("no commands: %s", text)
	}
	job += ">part-$SLURM_ARRAY_TASK_ID.json\n"
	parallel = strings.Replace(parallel, " -S node1,node2 --workdir .", "", 1) + "json >part-1.json\n"
	t.Setenv("PATH", filepath.Dir(tool(t))+":"+os.Getenv("PATH"))
	dir := t.TempDir()
	sh := func(command string, env ...string) string {
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(command, "/usr", "tree"))
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr
		return string(must.Get(cmd.Output())(t))
	}
	must.Do(t, os.CopyFS(filepath.Join(dir, "tree"), os.DirFS(fixtures)))
	testfile.Write(t, filepath.Join(dir, "tree/script"), "#!/bin/sh\n")
	sh("cfi2sframe -r --dry-run --report json tree >part-1.json")
	commands := strings.SplitN(strings.TrimSpace(jq), "\n", 2)
	want := sh(commands[1])
	if strings.Count(want, ":") < 2+2 || strings.Count(want, "tree/") != 10 {
		t.Errorf("%s print %s", commands[1], want)
	}
	if _, err := exec.LookPath("parallel"); err == nil {
		sh(parallel)
		if got := sh(commands[1]); got != want {
			t.Errorf("%s\nprints %s; want %s", parallel, got, want)
		}
	}
	for i := 1; i <= 8; i++ {
		sh(job, fmt.Sprintf("SLURM_ARRAY_TASK_ID=%d", i))
	}
	if got := sh(commands[1]); got != want {
		t.Errorf("%s\nprints %s; want %s", job, got, want)
	}
	for _, change := range []string{
		"", "cp part-3.json whole; sed -i '$d' part-3.json", "cp whole part-3.json; rm part-8.json",
	} {
		if got, want := sh(change+"\n"+commands[0]), fmt.Sprintln(change == ""); got != want {
			t.Errorf("%s: %s prints %s; want %s", change, commands[0], got, want)
		}
	}
}

type docsCommand struct {
	line, output string
}

// docsCommands returns the commands of a document's indented blocks. Fenced blocks contain files, and must name their
// language.
func docsCommands(t *testing.T, name string) []docsCommand {
	t.Helper()
	var commands []docsCommand
	fenced, block := false, false
	for line := range strings.Lines(string(testfile.Read(t, filepath.Join("../..", name)))) {
		line = strings.TrimRight(line, "\n")
		if language, ok := strings.CutPrefix(line, "```"); ok {
			if fenced = !fenced; fenced && language == "" {
				t.Errorf("%s: fence without a language", name)
			}
			continue
		}
		text, indented := strings.CutPrefix(line, "    ")
		switch command, ok := strings.CutPrefix(text, "$ "); {
		case fenced:
		case !indented:
			block = block && line == ""
		case ok:
			commands = append(commands, docsCommand{line: command})
			block = true
		case block:
			commands[len(commands)-1].output += text + "\n"
		case docsElsewhere[text] == "":
			t.Errorf("%s: no test runs %q", name, text)
		}
	}
	return commands
}

// matchesDocument reports whether output matches a document, ignoring numbers and column widths.
func matchesDocument(shown, output string) bool {
	numbers := regexp.MustCompile(`\d[\d,.]*`)
	shape := func(s string) string {
		var lines []string
		for line := range strings.Lines(numbers.ReplaceAllString(s, "N")) {
			lines = append(lines, strings.Join(strings.Fields(line), " ")+"\n")
		}
		return strings.Join(lines, "")
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(shape(shown)), regexp.QuoteMeta("...\n"), "(?s:.*)")
	return regexp.MustCompile("^" + pattern + "$").MatchString(shape(output))
}
