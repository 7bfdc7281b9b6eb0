package elfwrite

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/emit"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// A job is one kind of change to a file.
type job struct {
	name         string
	old, section []byte
	plan         func(*elffile.File) (*Layout, error)
}

// jobs returns a job for each kind of layout.
func jobs(t *testing.T) []job {
	t.Helper()
	plain := read(t, "plt")
	with := add(t, plain, content(1000), Options{})
	detached, _ := detach(t, plain, content(1000))
	then := func(l *Layout, err error, more func() error) (*Layout, error) {
		if err == nil {
			err = more()
		}
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	add1000 := func(f *elffile.File) (*Layout, error) {
		l, err := Plan(f, 1000, Options{})
		return then(l, err, func() error { return References(f, func(_, _ uint64) {}) })
	}
	return []job{
		{"add", plain, content(1000), add1000},
		{"add with an inserted page", read(t, "static"), content(1000), add1000},
		{"replace", with, content(5000), func(f *elffile.File) (*Layout, error) {
			return Plan(f, 5000, Options{Force: true})
		}},
		{"remove", with, nil, PlanRemoval},
		{"detach", plain, content(1000), func(f *elffile.File) (*Layout, error) {
			l, err := PlanDetached(f, 1000, Options{})
			return then(l, err, func() error { return Belongs(elftest.Parse(t, detached), f) })
		}},
		{"object", elftest.NewObject().Bytes(), content(60), func(f *elffile.File) (*Layout, error) {
			return PlanObject(f, 60, Object{Type: elf.SHT_PROGBITS, StartSize: 4,
				Starts: []emit.Start{{Off: 28, Addr: f.Sections[elftest.ObjText].Base}}}, Options{})
		}},
	}
}

// TestReadErrors makes each read of the old file fail once, during planning and writing.
func TestReadErrors(t *testing.T) {
	for _, j := range jobs(t) {
		for n, more := 0, true; more; n++ {
			r := &testfile.FailingReader{ReaderAt: bytes.NewReader(j.old), Err: syscall.EIO}
			r.Left.Store(int64(n))
			f, err := elffile.New(r, int64(len(j.old)))
			var l *Layout
			if err == nil {
				l, err = j.plan(f)
			}
			if more = r.Left.Load() < 0; more && (!errors.Is(err, syscall.EIO) || l != nil) {
				t.Errorf("%s: read %d fails, and the error is %v", j.name, n, err)
			} else if !more && (err != nil || n < 4) {
				t.Errorf("%s: %d reads, error %v", j.name, n, err)
			}
		}
		for n, more := 0, true; more; n++ {
			l := must.Get(j.plan(elftest.Parse(t, j.old)))(t)
			src := &testfile.FailingReader{ReaderAt: bytes.NewReader(j.old), Err: syscall.EIO}
			src.Left.Store(int64(n))
			err := l.Write(t.Context(), &buffer{left: 1 << 20}, src, j.section, nil)
			if more = src.Left.Load() < 0; more != (err != nil) {
				t.Errorf("%s: read %d fails: %t, and the error of Write is %v", j.name, n, more, err)
			}
		}
	}
}

// TestWriteErrors makes each write fail once. The file begins with bytes of a different layout, which are discarded.
func TestWriteErrors(t *testing.T) {
	begun := &Layout{off: 64, copies: []extent{{16, 0, 32}}}
	for _, j := range jobs(t) {
		l, err := j.plan(elftest.Parse(t, j.old))
		if err != nil {
			t.Fatalf("%s: %v", j.name, err)
		}
		saved := bytes.Clone(j.old)
		want := write(t, l, j.old, j.section)
		n := 0
		for ; ; n++ {
			dst := &buffer{left: n}
			err := l.Write(t.Context(), dst, bytes.NewReader(j.old), j.section, begun)
			if dst.left >= 0 {
				break
			}
			if err != errFull {
				t.Errorf("%s: write %d fails, and the error is %v", j.name, n, err)
			}
		}
		if n < 5 || !bytes.Equal(j.old, saved) || !bytes.Equal(write(t, l, j.old, j.section), want) {
			t.Errorf("%s: %d writes, or the input was changed, or the file differs after errors", j.name, n)
		}
		dst := buffer{left: n}
		if err := l.Write(t.Context(), &dst, bytes.NewReader(j.old), content(7), nil); err == nil || len(dst.b) > 0 ||
			err.Error() != fmt.Sprintf(".sframe has 7 bytes, but the layout is for %d", len(j.section)) {
			t.Errorf("%s: a section of a different size: %v, %d bytes written", j.name, err, len(dst.b))
		}
	}
}

// TestInterruptedCopy cancels the context before the copy starts. The copy must stop after its first part.
func TestInterruptedCopy(t *testing.T) {
	const size = 24 << 20
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &Layout{copies: []extent{{0, 0, size}}}
	dst := must.Get(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	defer dst.Close()
	if err := l.Write(ctx, dst, bytes.NewReader(make([]byte, size)), nil, nil); err != context.Canceled {
		t.Errorf("error is %v", err)
	}
	if info, err := dst.Stat(); err != nil || info.Size() >= size {
		t.Errorf("%d of %d bytes were copied, error %v", info.Size(), size, err)
	}
}

// TestUnchanged writes an object with program headers, which are unusual but must be preserved.
func TestUnchanged(t *testing.T) {
	old := read(t, "plt")
	binary.LittleEndian.PutUint16(old[16:], uint16(elf.ET_REL))
	f := elftest.Parse(t, old)
	if !f.IsObject() || len(f.Progs) == 0 {
		t.Fatalf("type %d, %d program headers", f.Type, len(f.Progs))
	}
	if !bytes.Equal(write(t, Unchanged(f), old, nil), old) {
		t.Error("it was changed")
	}
}
