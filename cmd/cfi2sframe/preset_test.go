package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/plain"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestPresetsReadme compares the presets with the table of readers in docs/readers.md: each preset is in a row, and
// supports the formats that all its rows support.
func TestPresetsReadme(t *testing.T) {
	readme := testfile.Read(t, "../../docs/readers.md")
	_, table, ok := strings.Cut(string(readme), "| reader | V1 | V2 | V2 with `--pcrel` | V3 | `--for` |\n|---|")
	if !ok {
		t.Fatal("docs/readers.md has no table of readers")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	columns := []convert.Format{{Version: sframe.V1}, v2, v2PCRel, v3}
	rows := make(map[string]int)
	unread := make(map[string][]convert.Format) // formats that a preset's rows do not support
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 {
			continue // the rest of the line below the head
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

// TestPresets reads sections with the presets' readers, where they are available.
func TestPresets(t *testing.T) {
	files := []string{"/bin/ls", "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6"}
	fixed, err := filepath.Glob(fixtures + "/p*")
	if err != nil || len(fixed) < 3 {
		t.Fatalf("fixtures are %v, error %v", fixed, err)
	}
	for i, f := range files {
		files[i] = plain.File(t, f)
	}
	suites := map[string]string{"binutils-2.40": "", "binutils-2.44": "trixie", "binutils-2.47": "sid"}
	for _, p := range presets {
		t.Run(p.name, func(t *testing.T) {
			name, ok := suites[p.name]
			switch {
			case ok && name == "":
				peer.Binutils(t, "2.40")
			case !ok && p.name != "linux" && p.name != "perf":
				t.Skip("no such reader is among the peers, which scripts/peers installs")
			}
			for _, in := range append(fixed, files...) {
				out := filepath.Join(t.TempDir(), "out")
				var stdout, stderr bytes.Buffer
				if status := run(t.Context(), []string{"-q", "--for", p.name, in, "-o", out}, &stdout,
					&stderr); status != exitDone {
					t.Fatalf("status %d\n%s", status, stderr.String())
				}
				if p.name == "linux" || p.name == "perf" {
					linuxReads(t, out)
					continue
				}
				printed, err := peer.Tool(t, name, "objdump")("--sframe=.sframe", out).CombinedOutput()
				if err != nil {
					t.Fatalf("objdump: %v\n%.1000s", err, printed)
				}
				allRows(t, in, string(printed))
			}
		})
	}
}

// allRows expects objdump to print as many FDEs and rows as the header says, without warnings.
func allRows(t *testing.T, path, printed string) {
	t.Helper()
	number := func(what string) int {
		m := regexp.MustCompile(what + `: (\d+)\n`).FindStringSubmatch(printed)
		if m == nil {
			t.Fatalf("%s: objdump prints no %s\n%.1000s", path, what, printed)
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	fdes := strings.Count(printed, "func idx [")
	rows := len(regexp.MustCompile(`(?m)^    [0-9a-f]{16}  `).FindAllString(printed, -1))
	if fdes == 0 || fdes != number("Num FDEs") || rows != number("Num FREs") {
		t.Errorf("%s: objdump prints %d FDEs and %d rows, and that there are %d and %d", path, fdes, rows,
			number("Num FDEs"), number("Num FREs"))
	}
	if m := regexp.MustCompile(`(?i).*(error|warning|fail|corrupt).*`).FindString(printed); m != "" {
		t.Errorf("%s: objdump: %s", path, m)
	}
}

// linuxReads checks what the Linux series checks in a section: version 3, both flags, no auxiliary header, and that
// there are FDEs and FREs. Offsets are those of the specification.
func linuxReads(t *testing.T, path string) {
	t.Helper()
	f := must.Get(elf.Open(path))(t)
	defer f.Close()
	b := must.Get(f.Section(".sframe").Data())(t)
	if b[2] != 3 || b[3] != 0x1|0x4 || b[7] != 0 || binary.LittleEndian.Uint32(b[8:]) == 0 ||
		binary.LittleEndian.Uint32(b[12:]) == 0 {
		t.Errorf("%s: header % x", path, b[:28])
	}
}
