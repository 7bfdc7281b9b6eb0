package report_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// link makes an amd64 program of assembler source.
func link(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	for _, cmd := range [][]string{{"as", "--64", "-", "-o", "prog.o"},
		{"ld", "-m", "elf_x86_64", "prog.o", "-o", "prog"}} {
		c := exec.Command(peer.Look(t, cmd[0]), cmd[1:]...)
		c.Dir, c.Stdin = dir, strings.NewReader(".globl _start\n_start:\n"+source)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	return filepath.Join(dir, "prog")
}

// convertedTo returns the report on the conversion of a file to a version.
func convertedTo(t *testing.T, path string, v sframe.Version) (c *report.Coverage) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	run := &convert.Run{In: bytes.NewReader(b), Size: int64(len(b)), Report: func(d *convert.Details) (err error) {
		c, err = report.Converted(d, report.NewLimits())
		return err
	}}
	if _, err := convert.Add(t.Context(), run, convert.Options{Version: v, Workers: 1}); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFormat3 says of gaps that format 3 covers them if it does so.
func TestFormat3(t *testing.T) {
	const (
		neg      = ".cfi_escape 0x0f, 3, 0x77, 0, 0x1f\nnop\n" // CFA = -rsp, for which there is no form
		computed = ".cfi_startproc\n" + neg + ".cfi_endproc\n"
		register = ".cfi_startproc\n.cfi_def_cfa rbx, 16\nnop\n.cfi_endproc\n"
	)
	// More gaps in format 3 than are listed, which are one in format 2.
	const many = ".cfi_startproc\n.cfi_signal_frame\n.rept 65600\n" + neg + ".cfi_def_cfa rsp, 8\nnop\n.endr\n.cfi_endproc\n"
	type subject struct {
		name, source string
		want         map[string]uint64 // bytes that format 3 covers, by reason
		says         string
	}
	subjects := []subject{
		{"few gaps", register + computed, map[string]uint64{"cfa-register": 1, "cfa-expression": 0},
			"--format 3 covers 1 of the other 2 bytes\n"},
		{"after more gaps than are listed", register + many + computed + register,
			map[string]uint64{"cfa-register": 1, "signal-frame": 0, "cfa-expression": 0},
			"--format 3 covers at least 1 of the other 131,203 bytes\n"},
	}
	for _, tt := range subjects {
		prog := link(t, tt.source)
		c, v3 := convertedTo(t, prog, sframe.V2), convertedTo(t, prog, sframe.V3)
		got := make(map[string]uint64)
		for _, r := range c.Reasons {
			got[r.Name] = r.Format3
		}
		if !maps.Equal(got, tt.want) {
			t.Errorf("%s: format 3 covers %v, want %v", tt.name, got, tt.want)
		}
		for _, g := range c.Gaps {
			if i := slices.IndexFunc(v3.Gaps, func(h report.Gap) bool {
				return h.Begin < g.End &&
					g.Begin < h.End
			}); g.Format3 && i >= 0 {
				t.Errorf("%s: format 3 is said to cover %v, and has a gap %v", tt.name, &g, &v3.Gaps[i])
			}
		}
		var text strings.Builder
		if err := c.Text(&text, 0); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), tt.says) {
			t.Errorf("%s: the report does not say %q:\n%s", tt.name, tt.says, text.String())
		}
	}
}
