//go:build linux && !portable

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"cfi2sframe/internal/testkit/testfile"
)

// TestWrongUsage expects these command lines to be rejected before any file is opened.
func TestWrongUsage(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for args, want := range map[string]string{
		"remove --min-coverage 99 f -o out": "unknown flag: --min-coverage",
		"remove --report html f -o out":     `--report "html" is invalid; use none, text or json`,
		"dump --report html f":              "unknown flag: --report",
		"dump -q f":                         "unknown flag: -q",
		"dump -o out f":                     "unknown flag: -o",
		"check --format 3 f":                "unknown flag: --format",
		"check --report csv f":              `--report "csv" is invalid; use none, text or json`,
		"--shard 1/2 f -o out":              "unknown flag: --shard; did you mean --share?",
		"ld":                                "ld requires a program, or -- and the arguments of ld",
		"-q check f":                        "the verb check must be the first argument",
		"-q -v f -o out":                    "-q and -v cannot be combined",
		"--min-coverage 0.99 f -o out":      `--min-coverage "0.99" is 0.99 %; did you mean 99?`,
		"--min-coverage 0.9999 f -o out":    `--min-coverage "0.9999" is 0.9999 %; did you mean 99.99?`,
		"--min-coverage 1 f -o out":         `--min-coverage "1" is 1 %; did you mean 100?`,
		"convert f -o out":                  "convert is neither a verb nor a file; to convert: cfi2sframe FILE -o OUT",
		"./convert f -o out":                "2 input files; use -o for the output, or --in-place for more than one",
		"help nothing":                      `unknown verb: "nothing"`,
		"help chek":                         `unknown verb: "chek"; did you mean check?`,
		"chek f":                            "chek is neither a verb nor a file; did you mean check?",
		"chek --require f":                  "chek is neither a verb nor a file; did you mean check?",
		"dmup f -o out":                     "dmup is neither a verb nor a file; did you mean dump?",
		"detatch f -o out":                  "detatch is neither a verb nor a file; did you mean detach?",
		"LOOKUP f 0x10":                     "LOOKUP is neither a verb nor a file; did you mean lookup?",
		"checker f":                         "checker is neither a verb nor a file; did you mean check?",
		"./chek f":                          "2 input files; use -o for the output, or --in-place for more than one",
		"file f":                            "file is neither a verb nor a file; to convert: cfi2sframe FILE -o OUT",
		"a f":                               "a is neither a verb nor a file; to convert: cfi2sframe FILE -o OUT",
		"check --requir f":                  "unknown flag: --requir; did you mean --require?",
		"--formt 2 f -o out":                "unknown flag: --formt; did you mean --format?",
		"--min f -o out":                    "unknown flag: --min; did you mean --min-coverage or --min-unwindable?",
		"-format 2 f -o out":                "unknown flag: -f; did you mean --format?",
		"help a b":                          "help takes one verb",
		"version extra":                     `version takes no arguments: "extra"`,
		"completion csh":                    "completion requires one of bash, fish and zsh",
	} {
		said := expectRun(t, exitUsage, "cfi2sframe: "+want+"\nTry 'cfi2sframe ", io.Discard, strings.Fields(args)...)
		if !strings.HasPrefix(said, "cfi2sframe: "+want) {
			t.Errorf("%s: %q", args, said)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("files were created: %v, %v", entries, err)
	}
}

// TestExitStatuses compares the exit statuses of all verbs in --help with docs/usage.md. Statuses that depend on a flag
// must be in the help of all verbs with that flag.
func TestExitStatuses(t *testing.T) {
	usage := testfile.Read(t, "../../docs/usage.md")
	numbers := func(text, pattern string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, regexp.MustCompile(`\d+`).FindAllString(m[1], -1)...)
		}
		return all
	}
	_, table, _ := strings.Cut(string(usage), "## Exit status")
	documented := numbers(table, `(?m)^\| ([\d, ]+) \|`)
	c := newCall(t.Context(), io.Discard, io.Discard)
	var all []string
	for _, v := range append(c.verbs(), c.root()) {
		var help bytes.Buffer
		expectRun(t, exitDone, "", &help, strings.Fields(strings.TrimPrefix(v.Name(), "cfi2sframe")+" --help")...)
		_, section, _ := strings.Cut(help.String(), "\nExit status:\n")
		section, _, _ = strings.Cut(section, "\n\n")
		all = append(all, numbers(section, `(?m)^  (\d[^a-z]*(?:or \d+)?)`)...)
		other := map[string][]string{
			"check": {"pc"}, "lookup": {"mismatch"},
		}
		if slices.Contains(verbNames(), v.Name()) && other[v.Name()] == nil {
			other[v.Name()] = []string{"mismatch", "pc"}
		}
		for _, word := range other[v.Name()] {
			if strings.Contains(section, word) {
				t.Errorf("%s --help has the exit statuses of another verb:\n%s", v.Name(), section)
			}
		}
		for flag, status := range map[string]int{"min-coverage": exitCoverage, "skip-status": exitSkipped} {
			if (v.Flags().Lookup(flag) != nil) != strings.Contains(section, fmt.Sprintf("\n  %d ", status)) &&
				v.Name() != "ld" {
				t.Errorf("%s --help: exit status %d, but --%s:\n%s", v.Name(), status, flag, section)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(documented)
	if all = slices.Compact(all); !slices.Equal(all, documented) || len(all) != 8 {
		t.Errorf("docs/usage.md has exit statuses %v, --help %v", documented, all)
	}
}

// TestHelp expects --help to list all flags, and no Go types, and -h to fit on a terminal, and to list no other flags.
func TestHelp(t *testing.T) {
	c := newCall(t.Context(), io.Discard, io.Discard)
	for _, v := range append(c.verbs(), c.root()) {
		verb := strings.Fields(strings.TrimPrefix(v.Name(), "cfi2sframe"))
		var short, long, same bytes.Buffer
		expectRun(t, exitDone, "", &short, append(verb, "-h")...)
		expectRun(t, exitDone, "", &long, append(verb, "--help")...)
		if expectRun(t, exitDone, "", &same, append([]string{"help"}, verb...)...); same.String() != long.String() {
			t.Errorf("help %s differs from --help:\n%s", verb, same.String())
		}
		if n := strings.Count(short.String(), "\n"); n > 27 || short.Len() > long.Len() {
			t.Errorf("%s -h prints %d lines:\n%s", verb, n, short.String())
		}
		for _, m := range regexp.MustCompile(`(?m)^  .{4}--(\S+)`).FindAllStringSubmatch(short.String(), -1) {
			if !strings.Contains(long.String(), "--"+m[1]) {
				t.Errorf("%s --help does not have --%s of -h", verb, m[1])
			}
		}
		if want := "cfi2sframe " + strings.Join(append(verb, "--help"), " "); !strings.Contains(short.String(), want) {
			t.Errorf("%s -h does not name %s", verb, want)
		}
		for line := range strings.Lines(short.String() + long.String()) {
			if len(line) > helpWidth+1 ||
				regexp.MustCompile(`-[a-z]+ (int|string|strings|float|float64|bool|value)\b`).MatchString(line) {
				t.Errorf("%s: %s", verb, line)
			}
		}
		v.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(long.String(), "--"+f.Name) {
				t.Errorf("%s --help does not have --%s", verb, f.Name)
			}
		})
	}
}
