package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
)

// foreign matches words from libraries, which mean nothing to users.
var foreign = regexp.MustCompile(`(?i)strconv|context|syscall|pflag|goroutine|panic|runtime|%!|<nil>|` +
	`invalid syntax|shorthand|invalid argument ".*" for|\b(open|stat|lstat|read|write) \S*missing|(missing: .*){2}|EOF`)

// flagsOf returns the flags listed by --help: how they are written, and whether they take a value.
func flagsOf(t *testing.T) (names []string, value map[string]bool) {
	t.Helper()
	var out bytes.Buffer
	if status := run(t.Context(), []string{"--help"}, &out, &out); status != exitDone {
		t.Fatalf("--help: status %d", status)
	}
	value = make(map[string]bool)
	flags := regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[a-z0-9-]+)( [A-Za-z]\S*)?  `)
	for _, m := range flags.FindAllStringSubmatch(out.String(), -1) {
		for _, name := range m[1:3] {
			if name != "" {
				names = append(names, name)
				value[name] = m[3] != ""
			}
		}
	}
	if len(names) < 25 {
		t.Fatalf("flags are %v", names)
	}
	return names, value
}

// TestMessages gives every flag invalid values, and expects messages without words from libraries.
func TestMessages(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	names, value := flagsOf(t)
	check := func(usage bool, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), args, &stdout, &stderr)
		message := stderr.String()
		if m := foreign.FindString(message); m != "" || status != exitDone &&
			!strings.HasPrefix(message, "cfi2sframe: ") {
			t.Errorf("%q: %q in %q", args, m, message)
		}
		if usage && status != exitUsage {
			t.Errorf("%q: status %d, %q", args, status, message)
		}
	}
	types := 0
	for _, name := range names {
		for _, v := range []string{"", "x", "missing/file", "-1", "99999999999999999999", "1e999", "NaN", "0x",
			"\x1b[2J", "%s"} {
			check(false, name, v, "missing", "-o", "out")
			check(false, name, v, "missing")
			if strings.HasPrefix(name, "--") {
				check(false, name+"="+v, "missing", "-o", "out")
			} else {
				check(false, name+v, "missing", "-o", "out")
			}
			check(false, name, v)
		}
		if value[name] {
			check(true, name) // without its value
			continue
		}
		if strings.HasPrefix(name, "--") {
			types++
			check(true, name+"=maybe", "missing", "-o", "out")
		}
	}
	if types < 10 {
		t.Errorf("%d flags without a value", types)
	}
	for _, name := range []string{"--format", "--jobs", "--min-coverage"} {
		for _, v := range []string{"", "x", "-", "1e999", "0x", "-1"} {
			check(true, name+"="+v, "missing", "-o", "out")
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("files were created: %v, %v", entries, err)
	}
}
