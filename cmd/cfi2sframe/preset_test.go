package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestPresetsReadme compares the presets with the table of readers in docs/readers.md: each preset has a row, and
// supports exactly the formats that all its rows support.
func TestPresetsReadme(t *testing.T) {
	readme := testfile.Read(t, "../../docs/readers.md")
	_, table, ok := strings.Cut(string(readme), "| reader | V1 | V2 | V2 with `--pcrel` | V3 | `--for` |\n|---|")
	if !ok {
		t.Fatal("docs/readers.md has no table of readers")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	columns := []convert.Format{{Version: sframe.V1}, v2, v2PCRel, v3}
	rows := make(map[string]int)
	unread := make(map[string][]convert.Format) // formats that at least one row for a preset does not support
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 {
			continue // the rest of the separator below the header
		}
		for _, name := range namesIn(t, cells[6]) {
			i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
			if i < 0 {
				t.Errorf("docs/readers.md lists --for %s, which does not exist", name)
				continue
			}
			rows[name]++
			for i, format := range columns {
				if !strings.HasPrefix(strings.TrimSpace(cells[2+i]), "yes") {
					unread[name] = append(unread[name], format)
				}
			}
		}
	}
	for _, p := range presets {
		if rows[p.name] == 0 {
			t.Errorf("docs/readers.md's table of readers lacks --for %s", p.name)
		}
		for _, format := range columns {
			reads := p.Format == format || slices.Contains(p.also, format)
			if unreadable := slices.Contains(unread[p.name], format); reads == unreadable {
				t.Errorf("--for %s reads %+v: %t, docs/readers.md says %t", p.name, format, reads, !unreadable)
			}
		}
		if p.Outermost {
			t.Errorf("--for %s writes rows without words; the table has no column for them", p.name)
		}
	}
}

// namesIn returns the names in a table cell; `a-2.3` to `a-2.5` expands to three.
func namesIn(t *testing.T, cell string) []string {
	t.Helper()
	var names []string
	for _, m := range regexp.MustCompile("`([a-z-]+(?:2\\.)?)(\\d*)`(?: to "+
		"`[a-z-]+2\\.(\\d+)`)?").FindAllStringSubmatch(cell, -1) {
		names = append(names, m[1]+m[2])
		if m[3] == "" {
			continue
		}
		first, _ := strconv.Atoi(m[2])
		last, err := strconv.Atoi(m[3])
		if err != nil || last <= first {
			t.Fatalf("%q is not a range", cell)
		}
		for n := first + 1; n <= last; n++ {
			names = append(names, fmt.Sprint(m[1], n))
		}
	}
	return names
}
