//go:build linux && !portable

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFlagsOfOtherModes expects flags that do not apply to be wrong usage.
func TestFlagsOfOtherModes(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for args, want := range map[string]string{
		"--survey --format 3 .":               "--format is not for --survey",
		"--survey --force .":                  "--force is not for --survey",
		"--survey -p .":                       "--preserve-dates is not for --survey",
		"--survey --min-coverage 99 .":        "--min-coverage is not for --survey",
		"--survey -v .":                       "--verbose is not for --survey",
		"--survey --debug-file auto .":        "--debug-file is not for --survey",
		"--remove --min-coverage 99 f -o out": "--min-coverage is not for --remove",
		"--remove --format 3 f -o out":        "--format is not for --remove",
		"--remove --report html f -o out":     "--report html is not for --remove; use none, text or json",
		"--dump --report html f":              "--report is not for --dump",
		"--dump --share max f":                "--share is not for --dump",
		"--dump -q f":                         "--quiet is not for --dump",
		"--dump -o out f":                     "--output is not for --dump",
		"--check --for linux f":               "--for is not for --check",
		"--check --in-place f":                "--in-place is not for --check",
		"--check --report csv f":              "--report csv is for --survey and --merge; use none, text or json",
		"--diff --min-coverage 99 a b":        "--min-coverage is not for --diff",
		"--merge --jobs 1 --objects a":        "--objects is for --survey and pkg",
		"--merge --shard 1/2 a":               "--shard is for --survey",
		"--shard 1/2 f -o out":                "--shard is for --survey",
		"--objects f -o out":                  "--objects is for --survey and pkg",
		"--report csv f -o out":               "--report csv is for --survey and --merge; use none, text, json or html",
		"--check --dump f":                    "--check and --dump cannot be combined",
		"--remove --survey f":                 "--remove and --survey cannot be combined",
		"--print-linker-dir --format 3":       "--format is not for --print-linker-dir",
		"--print-linker-dir f":                "--print-linker-dir takes no file",
		"--dry-run f -o out":                  "-o, --in-place and --dry-run cannot be combined",
		"pkg --remove f -o out":               "unknown flag: --remove",
		"-q -v f -o out":                      "-q and -v cannot be combined",
		"pkg -q -v f -o out":                  "-q and -v cannot be combined",
		"--min-coverage 0.99 f -o out":        "--min-coverage 0.99 is 0.99 %; was 99 meant?",
		"--min-coverage 0.9999 f -o out":      "--min-coverage 0.9999 is 0.9999 %; was 99.99 meant?",
		"--min-coverage 1 f -o out":           "--min-coverage 1 is 1 %; was 100 meant?",
	} {
		said := says(t, exitUsage, "cfi2sframe: "+want+"\nTry 'cfi2sframe ", io.Discard, strings.Fields(args)...)
		if !strings.HasPrefix(said, "cfi2sframe: "+want) {
			t.Errorf("%s: %q", args, said)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there are files now: %v, %v", entries, err)
	}
}

// TestModes expects the table of modes to have all flags, and each mode to refuse all that it does not have.
func TestModes(t *testing.T) {
	all := newFlags()
	new(settings).define(all)
	for _, m := range modes {
		for _, name := range m.flags {
			if all.Lookup(name) == nil {
				t.Errorf("%s: flag %s is none", m, name)
			}
		}
	}
	refused := 0
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" {
			return
		}
		heeded := false
		for _, m := range modes {
			heeded = heeded || m.heeds(f.Name)
			if m.heeds(f.Name) || m.name == "" || m.command {
				continue
			}
			var stderr bytes.Buffer
			args := []string{"--" + m.name, "--" + f.Name + "=true", "missing"}
			if run(t.Context(), args, io.Discard, &stderr) != exitUsage || !strings.Contains(stderr.String(), "--"+f.Name) {
				t.Errorf("%q: %s", args, stderr.String())
			}
			refused++
		}
		if !heeded {
			t.Errorf("no mode has flag %s", f.Name)
		}
	})
	if refused < 100 {
		t.Errorf("%d flags are refused", refused)
	}
}

// TestCheckReport has --check say in JSON what it finds, and fail if too little is covered.
func TestCheckReport(t *testing.T) {
	dir := t.TempDir()
	drap, plain := filepath.Join(dir, "drap"), filepath.Join(dir, "plain")
	for in, out := range map[string]string{"drap1": drap, "undefra": plain} {
		says(t, exitDone, "", io.Discard, "-q", filepath.Join(fixtures, in), "-o", out)
	}
	var out bytes.Buffer
	says(t, exitDone, "", &out, "--check", "--report", "json", drap)
	for _, want := range []string{`"file": "` + drap + `"`, `"format": 2`, `"described": 53`, `"covered": 8`, `"outermost": 0`, `"mismatches": []`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, out.String())
		}
	}
	out.Reset()
	says(t, exitCoverage, "cfi2sframe: "+drap+": coverage 15.09 % is below 15.10 %\n", &out, "--check", "--min-coverage", "15.1", drap)
	if !strings.Contains(out.String(), "mismatches: 0\n") {
		t.Errorf("said %q", out.String())
	}
	says(t, exitDone, "", io.Discard, "--check", "--min-coverage", "15", drap)
	// Code without a caller is not lost: it is as much as when the file was made.
	out.Reset()
	says(t, exitDone, "", &out, "--check", "--report", "json", plain)
	for _, want := range []string{`"covered": 26`, `"outermost": 58`} { // as in report.txtar
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, out.String())
		}
	}
	// An error, or a mismatch, weighs more.
	says(t, exitError, "no such file", io.Discard, "--check", "--min-coverage", "100", drap, filepath.Join(dir, "missing"))
	out.Reset()
	says(t, exitDone, "", &out, "--check", "--report", "json", "--skip-unsupported", "modes_test.go")
	if !strings.Contains(out.String(), `"kept": "not-elf"`) {
		t.Error(out.String())
	}
}

// TestModesAreOrdered expects each mode to list a flag once.
func TestModesAreOrdered(t *testing.T) {
	for _, m := range modes {
		names := slices.Clone(m.flags)
		if slices.Sort(names); len(slices.Compact(names)) != len(m.flags) {
			t.Errorf("%s has a flag twice: %v", m, names)
		}
	}
}
