package convert_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/testkit/plain"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
	"cfi2sframe/verify"
)

// BenchmarkStages measures the stages of a conversion one by one, each by one worker. Bytes
// are those of .eh_frame. Compare two versions with benchstat.
func BenchmarkStages(b *testing.B) {
	path := "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1"
	if _, err := os.Stat(path); err != nil {
		path = plain.File(b, "/usr/lib/x86_64-linux-gnu/libc.so.6")
	}
	r, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		b.Fatal(err)
	}
	load := func() (*elffile.File, *cfi.Table) {
		f, err := elffile.New(r, info.Size())
		if err != nil {
			b.Fatal(err)
		}
		table, err := cfi.Load(f, cfi.EHFrame, nil)
		if err != nil {
			b.Fatal(err)
		}
		return f, table
	}
	f, table := load()
	opt := translate.Options{Version: sframe.V2}
	build := func() *emit.Section {
		e, err := emit.NewBuilder(emit.Options{Version: sframe.V2, ABI: sframe.AMD64Little, Join: true, Share: true})
		if err != nil {
			b.Fatal(err)
		}
		e.Grow(table.Len(), table.NumPrograms())
		if _, err := translate.Translate(table, opt, e); err != nil {
			b.Fatal(err)
		}
		return emit.Join([]*emit.Builder{e})
	}
	const addr = 0x7000000
	data, err := build().Encode(addr)
	if err != nil {
		b.Fatal(err)
	}
	section, err := sframe.Decode(data, addr)
	if err != nil {
		b.Fatal(err)
	}
	out := filepath.Join(b.TempDir(), "out")
	prepare := func(w convert.Work) { heap.Prepare(w.CFI, w.Size) } // as the command does
	for _, stage := range []struct {
		name string
		run  func() error
	}{
		{"read", func() error { load(); return nil }},
		{"rows", func() error {
			n := 0
			for fn := range table.Functions() {
				for range fn.Rows() {
					n++
				}
			}
			if n < table.Len() {
				return fmt.Errorf("%d functions have %d rows", table.Len(), n)
			}
			return nil
		}},
		{"translate", func() error { _, err := translate.Translate(table, opt, translate.Discard()); return err }},
		{"encode", func() error { _, err := build().Encode(addr); return err }},
		{"verify", func() error {
			_, err := verify.Check(table, section, f, verify.Options{Keep: 1})
			return err
		}},
		{"file", func() error {
			_, err := files.Convert(b.Context(), path, out,
				files.Options{Work: files.Add(convert.Options{Workers: 1}, ""), Run: convert.Run{Starting: prepare}})
			return err
		}},
		{"file, all workers", func() error {
			_, err := files.Convert(b.Context(), path, out,
				files.Options{Run: convert.Run{Starting: prepare}})
			return err
		}},
	} {
		b.Run(stage.name, func(b *testing.B) {
			b.SetBytes(int64(table.Sources[0].Size))
			b.ReportAllocs()
			for b.Loop() {
				if err := stage.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
