package cfi

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzLoad reads arbitrary bytes as .eh_frame and as .debug_frame of every machine, and
// runs all rows.
func FuzzLoad(f *testing.F) {
	for _, tg := range targets {
		w := ehFrame(tg)
		w.Entry(w.Shared(plainCIE), w.Addresses(textAddr, 0x80), []byte{0x41, 0x0e, 16, 0x0a, 0x86, 2, 0x42, 0x0b})
		f.Add(w.B)
		d := debugFrame(tg)
		d.Wide = true
		d.Entry(d.Shared([]byte{4, 0, 8, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1}), d.Addresses(textAddr, 0x80),
			[]byte{0x0f, 2, 0x77, 8, 0x02, 9, 0x0c, 7, 16})
		f.Add(d.B)
	}
	files, err := filepath.Glob("../testdata/bin/*/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) > 512 {
			f.Add(b[len(b)/4:][:512]) // wherever that is
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, tg := range targets {
			for _, name := range []string{".eh_frame", ".debug_frame"} {
				table, err := Load(tinyELF(t, tg, name, data), Auto, nil)
				if err != nil {
					continue
				}
				var end uint64
				for fn := range table.Functions() {
					if fn.Begin < end || fn.End <= fn.Begin {
						t.Fatalf("function %#x-%#x behind one that ends at %#x", fn.Begin, fn.End, end)
					}
					end = fn.End
					at := fn.Begin
					for row := range fn.Rows() {
						if row.Begin != at || row.End <= row.Begin || row.End > fn.End {
							t.Fatalf("row %#x-%#x of function %#x-%#x; want it at %#x", row.Begin, row.End,
								fn.Begin, fn.End, at)
						}
						at = row.End
					}
					if fn.Err() == nil && at != fn.End {
						t.Fatalf("rows of function %#x-%#x end at %#x", fn.Begin, fn.End, at)
					}
				}
			}
		}
	})
}
