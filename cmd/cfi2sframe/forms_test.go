package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// TestForms reports on the fixtures and on a library without CFI, and expects the same totals in text, JSON and HTML:
// code without CFI excludes padding and start-up code, and includes all code of the library.
func TestForms(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS(fixtures)))
	p := elftest.Patch(t.Fatalf, fixture(t, "pltlib.so"))
	p.Contents(".eh_frame", make([]byte, 4)) // the terminator
	testfile.Write(t, filepath.Join(dir, "without.so"), string(p.B))
	const code = 0x20 + 0x29 // bytes in .plt and .text, according to readelf
	args := []string{"-r", "--dry-run", dir, "--report"}

	var out bytes.Buffer
	expectRun(t, exitDone, "", &out, append(args, "json")...)
	var sum amounts.Amounts
	var restricted amounts.Restricted
	withoutCFI, found := uint64(0), false
	lines := slices.Collect(bytes.Lines(out.Bytes()))
	for _, line := range lines[:len(lines)-1] {
		var c report.Coverage
		must.Do(t, json.Unmarshal(line, &c))
		restricted.Add(&c.Restricted)
		sum.Add(&c.Amounts)
		withoutCFI += c.Uncovered.Bytes
		if filepath.Base(c.File) == "without.so" {
			found = c.Kept == "no-code" && c.Code == code && c.Unwindable == 0 && c.Uncovered.Bytes == code
		}
	}
	if left := sum.Code - sum.Unwindable - (sum.Described - sum.Covered); left != withoutCFI || !found {
		t.Errorf("JSON: %d bytes without CFI, but %+v; file without CFI %t", withoutCFI, sum, found)
	}
	var totals report.Totals
	must.Do(t, json.Unmarshal(lines[len(lines)-1], &totals))
	if totals.Amounts != sum || totals.Restricted != restricted || totals.WithoutCFI.Bytes != withoutCFI ||
		!totals.Complete || totals.Files != len(lines)-1 || totals.Done != totals.Files-1 || totals.Failed != 0 ||
		len(totals.Unchanged) != 1 || totals.Unchanged[0].Reason != "no-code" || restricted.OnlyV3 == 0 {
		t.Errorf("totals %+v; want %+v, %+v", totals, sum, restricted)
	}
	out.Reset()
	expectRun(t, exitDone, "", &out, "detach", "-r", dir, "--report", "json", "-o", t.TempDir())
	for line := range bytes.Lines(out.Bytes()) {
		var c report.Coverage
		must.Do(t, json.Unmarshal(line, &c))
		if c.File != "" && (c.Output == "") != (filepath.Base(c.File) == "without.so") {
			t.Errorf("detach %s: output %q", c.File, c.Output)
		}
	}
	out.Reset()
	expectRun(t, exitDone, "", &out, append(args, "html")...)
	for _, want := range []string{
		fmt.Sprintf("%s bytes that no CFI describes", report.Digits(withoutCFI)),
		fmt.Sprintf("%s bytes, not covered in V2", report.Digits(restricted.OnlyV3)),
		"Unchanged files, by reason", "CFI that covers no code", `class="reason r-without"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	out.Reset()
	if status := run(t.Context(), append(args, "text"), io.Discard, &out); status != exitDone {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		fmt.Sprintf("     0.00 %% %14d %12d  %s\n", code, 0, filepath.Join(dir, "without.so")),
		fmt.Sprintf("  %s\n", report.Headline(&sum)),
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}
