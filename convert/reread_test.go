package convert

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// createFile returns a file with the given contents.
func createFile(t *testing.T, b []byte) *os.File {
	t.Helper()
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "created")))(t)
	t.Cleanup(func() { f.Close() })
	must.Get(f.Write(b))(t)
	return f
}

// TestReread modifies a result after it was written. Any error in its layout, its rows or its coverage must be
// detected.
func TestReread(t *testing.T) {
	prog := testfile.Read(t, "../testdata/bin/amd64/prologue")
	var out bytes.Buffer
	if _, err := Convert(t.Context(), bytes.NewReader(prog), int64(len(prog)), &out,
		Options{Version: sframe.V2, Share: ShareOff}); err != nil {
		t.Fatal(err)
	}
	f := must.Get(elffile.New(bytes.NewReader(prog), int64(len(prog))))(t)
	table := must.Get(cfi.Load(f, cfi.Auto, nil))(t)
	want := must.Get(translate.Translate(table, translate.Options{Version: sframe.V2}, translate.Discard()))(t)
	const unsound = "nothing was written: no valid layout for this file: "
	gnu := func(p *elftest.Patcher) int { return p.Segment(elf.ProgType(sframe.PTGNUSFrame), 0) }
	off := func(p *elftest.Patcher) int { return int(p.U64(gnu(p) + elftest.PhOff)) }
	const header, fde = 28, 20 // bytes, of V2
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		want   string
		wrong  bool // the error is ErrWrong
	}{
		{"nothing", func(*elftest.Patcher) {}, "", false},
		{"not an ELF file", func(p *elftest.Patcher) { p.B[0] = 0 }, unsound, false},
		{"no PT_GNU_SFRAME", func(p *elftest.Patcher) { p.Put32(gnu(p), uint32(elf.PT_NULL)) },
			unsound + "no PT_GNU_SFRAME", false},
		{"two PT_GNU_SFRAMEs", func(p *elftest.Patcher) {
			copy(p.B[p.Segment(elf.PT_GNU_STACK, 0):], p.B[gnu(p):][:elffile.ProgSize])
		}, unsound, false},
		{"not loaded", func(p *elftest.Patcher) { p.Put64(gnu(p)+elftest.PhVaddr, 1<<40) },
			unsound + "PT_GNU_SFRAME is not in a loaded segment", false},
		{"a different file offset", func(p *elftest.Patcher) { p.Put64(gnu(p)+elftest.PhOff, 0x100) },
			unsound + "PT_GNU_SFRAME is not in a loaded segment", false},
		{"more in memory", func(p *elftest.Patcher) {
			p.Put64(gnu(p)+elftest.PhMemsz, p.U64(gnu(p)+elftest.PhMemsz)-1)
		}, unsound + "PT_GNU_SFRAME is not in", false},
		{"a section of a different type", func(p *elftest.Patcher) {
			p.Put32(p.Section(".sframe")+elftest.ShType, uint32(elf.SHT_PROGBITS))
		}, unsound + "section .sframe contradicts PT_GNU_SFRAME", false},
		{"a different section address", func(p *elftest.Patcher) { p.Put64(p.Section(".sframe")+elftest.ShAddr, 0) },
			unsound + "section .sframe contradicts PT_GNU_SFRAME", false},
		{"a different size", func(p *elftest.Patcher) {
			h, s := gnu(p), p.Section(".sframe")
			n := p.U64(s+elftest.ShSize) - 1
			p.Put64(h+elftest.PhFilesz, n)
			p.Put64(h+elftest.PhMemsz, n)
			p.Put64(s+elftest.ShSize, n)
		}, "bytes long, not ", false},
		{"no magic number", func(p *elftest.Patcher) { p.Put16(off(p), 0) }, unsound, false},
		{"a wrong row", func(p *elftest.Patcher) { p.B[off(p)+header+4*fde+2] += 8 },
			ErrWrong.Error() + ": 1 mismatches between SFrame and CFI, the first at 0x438-0x440", true},
		{"less code", func(p *elftest.Patcher) { p.Put32(off(p)+header+4, p.U32(off(p)+header+4)-1) },
			ErrWrong.Error() + ": SFrame covers 106 bytes of code, 0 of PLT stubs and 0 of padding, " +
				"but 107, 0 and 0 were translated", true},
		{"another function's code", func(p *elftest.Patcher) { p.Put32(off(p)+header+4, 9) }, ErrWrong.Error(), true},
	} {
		p := elftest.Patch(t.Fatalf, out.Bytes())
		size := p.U64(p.Section(".sframe") + elftest.ShSize)
		tt.change(p)
		s := single{conversion: &conversion{}, f: f, table: table}
		err := s.reread(createFile(t, p.B), &translation{Result: want, layout: &elfwrite.Layout{Size: size}})
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrWrong) != tt.wrong {
			t.Errorf("%s: error is %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestTargets converts to outputs that cannot be created or written. The caller must get the error and no result.
func TestTargets(t *testing.T) {
	errNone := errors.New("no room for it")
	prog := testfile.Read(t, "../testdata/bin/amd64/prologue")
	var with bytes.Buffer
	must.Get(Convert(t.Context(), bytes.NewReader(prog), int64(len(prog)), &with, Options{}))(t)
	object := elftest.NewObject().Bytes()
	without := elftest.NewObject()
	without.Sections[elftest.ObjFrame].Data, without.Sections[elftest.ObjRela].Data = nil, nil
	path := filepath.Join(t.TempDir(), "out")
	testfile.Write(t, path, "")
	closed := func() (*os.File, error) {
		f, err := os.Open(path) // for reading
		if err == nil {
			t.Cleanup(func() { f.Close() })
		}
		return f, err
	}
	none := func() (*os.File, error) { return nil, errNone }
	file := func() (*os.File, error) { return createFile(t, nil), nil }
	archive := elftest.Ar(elftest.ArMember("a.o/", object), elftest.ArMember("b.o/", without.Bytes()))
	for _, tt := range []struct {
		name   string
		b      []byte
		remove bool
	}{
		{"program", prog, false},
		{"removal", with.Bytes(), true},
		{"object", object, false},
		{"archive", archive, false},
	} {
		saved := bytes.Clone(tt.b)
		try := func(create func() (*os.File, error)) error {
			run := &Run{In: bytes.NewReader(tt.b), Size: int64(len(tt.b)), Create: create}
			var err error
			if tt.remove {
				_, err = Remove(t.Context(), run, "")
			} else {
				_, err = Add(t.Context(), run, Options{})
			}
			return err
		}
		if err := try(none); !errors.Is(err, errNone) {
			t.Errorf("%s: the output cannot be created, and the error is %v", tt.name, err)
		}
		if err := try(closed); !errors.Is(err, os.ErrInvalid) &&
			(err == nil || !strings.Contains(err.Error(), "bad file descriptor")) {
			t.Errorf("%s: nothing can be written, and the error is %v", tt.name, err)
		}
		if err := try(file); err != nil || !bytes.Equal(tt.b, saved) {
			t.Errorf("%s: error %v, or the input was changed", tt.name, err)
		}
	}
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	_, err := Add(t.Context(), &Run{In: bytes.NewReader(archive), Size: int64(len(archive)), Create: file}, Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "member a.o: ") {
		t.Errorf("members cannot be written, and the error is %v", err)
	}
	if _, err := Convert(t.Context(), bytes.NewReader(prog), int64(len(prog)), io.Discard, Options{}); err == nil {
		t.Error("no error without a directory for temporary files")
	}
}

// TestInterruptedArchive cancels the context while the first member is converted, and before the start.
func TestInterruptedArchive(t *testing.T) {
	odd := elftest.Ar(elftest.ArMember("odd/", []byte("text")), elftest.ArMember("even/", []byte("text")))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	run := &Run{In: bytes.NewReader(odd), Size: int64(len(odd))}
	if res, err := Add(ended, run, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("without a member to convert: %+v, error %v", res, err)
	}
	object := elftest.NewObject().Bytes()
	library := elftest.Ar(elftest.ArMember("a.o/", object), elftest.ArMember("b.o/", object))
	members := 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run = &Run{In: bytes.NewReader(library), Size: int64(len(library)), Starting: func(w Work) {
		if !w.Archive {
			members++
			cancel()
		}
	}}
	_, err := Add(ctx, run, Options{})
	if !errors.Is(err, context.Canceled) || members != 1 {
		t.Errorf("%d members, and the error is %v", members, err)
	}
}
