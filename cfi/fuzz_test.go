package cfi_test

import (
	"path/filepath"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// FuzzLoad decodes arbitrary bytes as .eh_frame and .debug_frame for every machine, and iterates over all rows.
func FuzzLoad(f *testing.F) {
	text := []generate.Range{{Begin: 0x1000, End: 0x2000}}
	for i := range generate.Machines {
		for _, debug := range []bool{false, true} {
			s := generate.From(generate.Seeded(uint64(i), 100))
			f.Add(generate.NewCFI(s, &generate.Machines[i], debug, text).Encode(generate.Layout{}))
		}
	}
	files, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, path := range files {
		b := testfile.Read(f, path)
		if len(b) > 512 {
			f.Add(b[len(b)/4:][:512]) // an arbitrary part
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range generate.Machines {
			for _, source := range []cfi.Source{cfi.EHFrame, cfi.DebugFrame} {
				table := must.Get(cfi.Parse(m.Elf, m.Order, cfi.Section{Source: source, Data: data}))(t)
				checkOrder(t, table)
			}
		}
	})
}

// checkOrder checks that functions and their rows are in ascending order, and that rows cover valid functions
// completely.
func checkOrder(t *testing.T, table *cfi.Table) {
	t.Helper()
	end := uint64(0)
	for fn := range table.Functions() {
		if fn.Begin < end || fn.End <= fn.Begin {
			t.Fatalf("function %#x-%#x after one that ends at %#x", fn.Begin, fn.End, end)
		}
		end = fn.End
		at := fn.Begin
		for r := range fn.Rows() {
			if r.Begin != at || r.End <= at || r.End > fn.End {
				t.Fatalf("row %#x-%#x of function %#x-%#x", r.Begin, r.End, fn.Begin, fn.End)
			}
			at = r.End
		}
		if fn.Err() == nil && at != fn.End {
			t.Fatalf("rows of the function %#x-%#x end at %#x", fn.Begin, fn.End, at)
		}
	}
}
