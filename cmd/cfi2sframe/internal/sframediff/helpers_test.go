package sframediff_test

import (
	"bytes"
	"context"
	"debug/elf"
	"path/filepath"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/cmd/cfi2sframe/internal/sframediff"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

const fixtures = "../../../../testdata/bin"

// run converts a file.
func run(t *testing.T, path string, opt convert.Options) (string, *report.Coverage) {
	t.Helper()
	var c *report.Coverage
	note := func(d *convert.Details) (err error) {
		c = report.Converted(d, report.NewLimits())
		return nil
	}
	to := filepath.Join(t.TempDir(), "out")
	if _, err := files.Convert(t.Context(), path, to,
		files.Options{Work: files.Add(opt, ""), Run: convert.Run{Report: note}}); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return to, c
}

// link assembles and links an amd64 program.
func link(t *testing.T, source string) string {
	t.Helper()
	return peer.Linked(t, peer.Assembled(t, ".globl _start\n_start:\n"+source))
}

// sectionOf returns the section with the given name, parsed by debug/elf.
func sectionOf(t *testing.T, b []byte, name string) *elf.Section {
	t.Helper()
	f := must.Get(elf.NewFile(bytes.NewReader(b)))(t)
	return f.Section(name)
}

// withoutSections removes the section headers from a little-endian file.
func withoutSections(t *testing.T, b []byte) []byte {
	p := elftest.Patch(t.Fatalf, b)
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
	return p.B
}

// load reads a file for a comparison.
func load(path string, from files.Sources) (*sframediff.Side, error) {
	p, err := files.OpenProgram(context.Background(), path, from)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	side, err := sframediff.Load(context.Background(), path, p)
	return side, p.Err(err)
}

// diff compares two files, and expects no error.
func diff(t *testing.T, old, new string) *report.Diff {
	t.Helper()
	a := must.Get(load(old, files.Sources{}))(t)
	b := must.Get(load(new, files.Sources{}))(t)
	return sframediff.Compare(a, b)
}
