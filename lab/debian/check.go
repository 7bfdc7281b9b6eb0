package debian

import (
	"debug/elf"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// checked is the line of --check about a file.
var checked = regexp.MustCompile(`^(.*): [a-z0-9_]+, SFRAME_VERSION_(\d), \d+ FDEs, \d+ FREs: (\d+) of (\d+) bytes .*; mismatches: (\d+)$`)

// check has results read again, and compared with the CFI.
func (s *settings) check(names []string, at func(string) *outcome) error {
	if len(names) == 0 {
		return nil
	}
	out, complaints, err := s.run(append([]string{"--check"}, names...))
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		m := checked.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue // a mismatch, which the summary counts
		}
		o := at(m[1])
		if o == nil {
			return fmt.Errorf("--check is about %q", m[1])
		}
		seen[m[1]] = true
		o.Mismatch, _ = strconv.Atoi(m[5])
		switch {
		case o.Mismatch > 0:
			o.Check = fmt.Sprintf("%d mismatches", o.Mismatch)
		case m[3] != strconv.FormatUint(o.Covered, 10) || m[4] != strconv.FormatUint(o.Described, 10):
			o.Check = fmt.Sprintf("%s of %s bytes are in the file, and %d of %d were reported", m[3], m[4], o.Covered, o.Described)
		}
	}
	for _, name := range names {
		if text, ok := complaints[name]; ok {
			at(name).Check = text
		} else if !seen[name] {
			return fmt.Errorf("%s: --check says nothing of it", name)
		}
	}
	return nil
}

// own looks at an .sframe that the file has already.
func (s *settings) own(name string, r *result) error {
	f, err := elf.Open(name)
	if err != nil {
		return nil // cfi2sframe has its own to say
	}
	defer f.Close()
	if f.Section(".sframe") == nil {
		return nil
	}
	out, complaints, err := s.run([]string{"--check", name})
	if err != nil {
		return err
	}
	r.Own = &own{First: complaints[name]}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if m := checked.FindStringSubmatch(line); m != nil {
			r.Own.Version, _ = strconv.Atoi(m[2])
			r.Own.Covered, _ = strconv.ParseUint(m[3], 10, 64)
			r.Own.Described, _ = strconv.ParseUint(m[4], 10, 64)
			r.Own.Mismatch, _ = strconv.Atoi(m[5])
		} else if r.Own.First == "" {
			r.Own.First = strings.TrimPrefix(line, name+": ")
		}
	}
	return nil
}
