package step

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
)

// TestInferred steps through a function without CFI, and expects a changed row to be reported. The source determines
// the number of steps.
func TestInferred(t *testing.T) {
	dir := t.TempDir()
	lib, main, prog := filepath.Join(dir, "libwork.so"), filepath.Join(dir, "main.c"), filepath.Join(dir, "prog")
	testfile.Write(t, main, "void work(long); int main(void) { for (int i = 0; i < 10; i++) work(3); }")
	for _, args := range [][]string{
		{"-shared", "-nostdlib", "testdata/inferred_amd64.s", "-o", lib},
		{"-O2", main, lib, "-Wl,-rpath," + dir, "-o", prog},
	} {
		must.Run(t, exec.Command(peer.Look(t, "gcc"), args...))
	}
	if report, err := traceInferred(t.Context(), []string{prog}, 0, 0); err == nil {
		t.Errorf("without rows: %s", report)
	}
	err := kit.WithProduct(func(program, _ string) error {
		return kit.Run("", program, "-q", "--infer", "--in-place", lib)
	})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(calls uint64, want ...string) {
		t.Helper()
		report := must.Get(traceInferred(t.Context(), []string{prog}, 0, calls))(t)
		for _, line := range want {
			if !strings.Contains(report, line) {
				t.Errorf("the report does not contain %q:\n%s", line, report)
			}
		}
	}
	expect(0, "10 calls of 1 functions, 0 not to their end\n",
		": 120 steps at 8 instructions, CFA by SP 120, FP 0, others 0; wrong 0, no row 0\n")
	expect(3, "3 calls of 1 functions, ", ": 36 steps at 8 instructions, ")

	// From +8 on, the CFA is SP (bit 0) + 40, and FP is at CFA-16.
	row := []byte{8, 1 | 2<<1, 40, 0xf0}
	converted := testfile.Read(t, lib)
	if n := bytes.Count(converted, row); n != 1 {
		t.Fatalf("the row is %d times in the file", n)
	}
	testfile.Write(t, lib, bytes.Replace(converted, row, []byte{8, 1 | 2<<1, 48, 0xf0}, 1))
	expect(0, "\nwrong: 0x", " in 30 of 30 steps\n", " in 10 of 10 steps\n", "; wrong 70, no row 0\n")
}
