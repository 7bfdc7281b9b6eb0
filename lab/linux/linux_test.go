package linux

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
)

const moduleSource = `
extern int printk(const char *, ...);
__attribute__((section(".init.text"))) int init_module(void) { return printk("a"); }
static __attribute__((noinline)) int large(int x) { volatile int b[300]; b[x] = 1; return printk("b") + b[x]; }
int used(int x) { return large(x) + printk("c"); }
__attribute__((section(".text.other"))) int other(int x) { return used(x) + used(x + 1); }
`

var product string

func TestMain(m *testing.M) { os.Exit(kit.Tests(m, &product)) }

// build compiles a module.
func build(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"gcc", "ld"} {
		peer.Look(t, tool)
	}
	dir := t.TempDir()
	testfile.Write(t, filepath.Join(dir, "m.c"), moduleSource)
	peer.Again(t, "", dir, "gcc -O2 -g -fno-asynchronous-unwind-tables -c m.c -o m.o && ld -r m.o -o m.ko")
	return filepath.Join(dir, "m.ko")
}

// TestModule loads a module, then corrupted copies of it with wrong rows, start addresses or relocations.
func TestModule(t *testing.T) {
	path := build(t)
	out := filepath.Join(t.TempDir(), "out")
	kind, s, report, err := Compare(product, path, out)
	if err != nil || kind != "EM_X86_64 modules" || s.Functions != 4 || s.Covered == 0 || s.Covered == s.Described ||
		len(report.Gaps) != 1 || report.Gaps[0].Reason != "outside-text" ||
		s.Covered+report.Gaps[0].Bytes != s.Described || s.PCs < 8 {
		t.Fatalf("%s: %+v, %+v, error %v", kind, s, report, err)
	}
	must.Get(kit.Convert(product, path, out, "--for", "linux-module"))(t)
	good := testfile.Read(t, out)
	e := must.Get(elf.NewFile(bytes.NewReader(good)))(t)
	section, rela := int(e.Section(".sframe").Offset), int(e.Section(".rela.sframe").Offset)
	const header, entry, attribute = 28, 16, 5
	rows := section + header + 3*entry + attribute // three functions in .text*
	for name, tt := range map[string]struct {
		change func(b []byte)
		want   string
	}{
		"nothing":   {func([]byte) {}, ""},
		"a row":     {func(b []byte) { b[rows+2] += 8 }, "the frame is {r7+16"},
		"an addend": {func(b []byte) { b[rela+16]++ }, "the frame is {r7+8"},
		"a type":    {func(b []byte) { b[rela+8] = byte(elf.R_X86_64_PC32) }, "has type 2"},
		"a field":   {func(b []byte) { b[section+header] = 1 }, "the field is not zero"},
		"another function's": {func(b []byte) {
			first, second := bytes.Clone(b[rela+8:rela+24]), b[rela+24+8:rela+24+24]
			copy(b[rela+8:], second)
			copy(second, first)
		}, "the frame is"},
	} {
		b := bytes.Clone(good)
		tt.change(b)
		l, err := load(b, "")
		if err == nil {
			_, err = l.compare()
		}
		if (err == nil) != (name == "nothing") || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
