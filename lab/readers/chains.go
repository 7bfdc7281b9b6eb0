package readers

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A program is one of the programs whose call chains scripts/readers compares.
type program struct {
	flags  string // conversion flags of the program and its libraries
	name   string
	libgcc string // libgcc that backtrace() falls back to: "none", "there" or "static"
	scenes int    // number of scenes
}

const (
	bare   = "--format 2 --padding=off"
	unread = "--format 3" // this glibc does not read V3, so backtrace() finds no frames without libgcc
)

// limits lists scenes whose chains cannot be equal, and why. If they are equal, glibc has changed, and the run fails.
var limits = map[string]string{
	"realigned stack":           "V2 cannot express its CFI",
	"call that does not return": "no padding follows it",
	"__chk_fail":                "no padding follows cold code in glibc",
	"std::terminate":            "no padding follows cold code in libstdc++",
	"jump to nowhere":           "no file contains the code",
	"makecontext":               "the chain ends in a function without a caller, and FP is not 0",
}

// padded lists the scenes with a return address in the padding after a function.
var padded = []string{
	"abort", "__stack_chk_fail", "throw", "Rust panic",
	"on_exit", "atexit", "std::atexit", "destructor of a static object",
}

var (
	sceneLine  = regexp.MustCompile(`^(\S.*) \d+ (equal|nothing|differs)$`)
	sampleLine = regexp.MustCompile(`^samples .*: (\d+), not equal (\d+)$`)
)

// judge prints a table row for the output of a program, and returns what is wrong.
func (p *program) judge(out string) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	var scenes, equal, samples, failed, sampleLines int
	wrong := false // the last scene is wrong, and the lines that follow contain its chains
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if m := sampleLine.FindStringSubmatch(line); m != nil {
			all, _ := strconv.Atoi(m[1])
			n, _ := strconv.Atoi(m[2])
			samples, failed, sampleLines, wrong = samples+all, failed+n, sampleLines+1, false
		} else if m := sceneLine.FindStringSubmatch(line); m != nil {
			scenes++
			name, verdict := m[1], m[2]
			if verdict == "equal" {
				equal++
			}
			limit := limits[name]
			if p.flags == bare && slices.Contains(padded, name) {
				limit = "padding is not covered"
			}
			switch {
			case p.flags == unread:
				wrong = verdict != "nothing"
			case limit != "":
				wrong = verdict == "equal"
			default:
				wrong = verdict != "equal"
			}
			if wrong {
				fail("%s; limit %q", line, limit)
			}
		} else if strings.HasPrefix(line, "  ") {
			if wrong {
				fail("%s", line)
			}
		} else if name, ok := strings.CutPrefix(line, "libgcc_s: "); !ok || name != p.libgcc {
			fail("unexpected output: %q", line)
		}
	}
	if scenes != p.scenes {
		fail("%d scenes, want %d", scenes, p.scenes)
	}
	if p.name != "C++" && sampleLines != 2 {
		fail("%d lines about samples, want 2", sampleLines)
	}
	// Samples that differ are in code without CFI, or in gaps of V2: _dl_runtime_resolve of ld.so.
	if p.flags == unread && failed < samples || p.flags != unread && failed*50 > samples {
		fail("%d of %d samples differ", failed, samples)
	}
	fmt.Printf("| `%s` | %s | %d | %d | %d | %d |\n", p.flags, p.name, scenes, equal, samples, samples-failed)
	return errors.Join(errs...)
}
