package survey

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// sound returns an undamaged file.
func sound(t *testing.T) []byte {
	t.Helper()
	return testfile.Read(t, fixtures+"amd64/drap2.so")
}

// TestRefused checks the reasons for not translating CFI.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		edit    func(p *elftest.Patcher)
		status  convert.Reason
		message string // in the error
	}{
		{"sound", func(*elftest.Patcher) {}, "", ""},
		{"no CFI", func(p *elftest.Patcher) {
			p.Put32(p.Section(".eh_frame")+elftest.ShType, uint32(elf.SHT_NOBITS))
			p.Put32(p.Segment(elf.PT_GNU_EH_FRAME, 0), uint32(elf.PT_NULL)) // this segment would also locate the CFI
		}, "no-cfi", ""},
		{"CFI of no code", func(p *elftest.Patcher) { p.Contents(".eh_frame", make([]byte, 4)) }, "no-code", ""},
		{"a record that is longer than the section", func(p *elftest.Patcher) {
			p.Contents(".eh_frame", []byte{0xff, 0, 0, 0, 0, 0, 0, 0})
		}, "damaged", ".eh_frame+0x0"},
		{"CFI outside of the file", func(p *elftest.Patcher) { p.Put64(p.Section(".eh_frame")+elftest.ShOff, 1<<40) },
			"damaged", ".eh_frame"},
		{"another machine", func(p *elftest.Patcher) { p.Put16(18, uint16(elf.EM_MIPS)) }, "machine", ""},
		{"32 bits", func(p *elftest.Patcher) { p.B[elf.EI_CLASS] = byte(elf.ELFCLASS32) }, "32-bit", ""},
	} {
		p := elftest.Patch(t.Fatalf, sound(t))
		tt.edit(p)
		path := filepath.Join(t.TempDir(), "file")
		testfile.Write(t, path, p.B)
		s := run(t, Options{}, path)
		want := map[convert.Reason]uint64{}
		if tt.status != "" {
			want[tt.status] = 1
		}
		if got := refusedBy(&s.Total); fmt.Sprint(got) != fmt.Sprint(want) || s.Total.Files != 1 {
			t.Errorf("%s: got %v; want %v", tt.name, got, want)
		}
		var errs []string
		for _, r := range s.Files {
			if r.Error != "" {
				errs = append(errs, string(r.Status)+" "+r.Error)
			}
		}
		all := strings.Join(errs, "\n")
		if (tt.message == "") != (all == "") || !strings.Contains(all, tt.message) || tt.message != "" &&
			!strings.HasPrefix(all, string(tt.status)+" ") {
			t.Errorf("%s: errors %q; want %q", tt.name, all, tt.message)
		}
	}
}

var errDisk = errors.New("the disk is gone")

// A failingReader is a reader that cannot read the byte at a certain offset.
type failingReader struct {
	io.ReaderAt
	at  int64
	err error
}

func (f failingReader) ReadAt(b []byte, off int64) (int, error) {
	if off <= f.at && f.at-off < int64(len(b)) {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(b, off)
}

// TestReadErrors expects an unreadable file not to be reported as damaged.
func TestReadErrors(t *testing.T) {
	b := sound(t)
	p := elftest.Patch(t.Fatalf, b)
	e := new(examiner)
	at := int64(p.U64(p.Section(".eh_frame") + elftest.ShOff))
	r, err := e.examine(nil, failingReader{bytes.NewReader(b), at, errDisk}, "x", int64(len(b)))
	if err != nil || r.Status != unreadable || !strings.Contains(r.Error, errDisk.Error()) || len(r.Worst) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	// System errors are returned, not attributed to the file.
	system := &fs.PathError{Op: "read", Path: "x", Err: syscall.EIO}
	for name, at := range map[string]int64{"the identification": 0, "the CFI": at,
		"the section headers": int64(p.U64(elftest.EhShoff))} {
		r, err := e.examine(nil, failingReader{bytes.NewReader(b), at, system}, "x", int64(len(b)))
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	// Files that are removed after they were found, and directories that cannot be read.
	gone := filepath.Join(t.TempDir(), "gone")
	for _, f := range []candidate{{name: gone}, {name: gone, err: os.ErrPermission}} {
		records, err := e.examineCandidate(t.Context(), &f)
		if err != nil || len(records) != 1 || records[0].File != gone || records[0].Status != unreadable ||
			records[0].Error == "" {
			t.Errorf("%+v: %+v", f, records)
		}
	}
	if _, err := peekFile(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kind of a missing file: %v", err)
	}
}

// TestArchiveCancelled expects a cancelled context to end the survey of an archive.
func TestArchiveCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.a")
	b := elftest.Ar(elftest.ArMember("a.so/", sound(t)), elftest.ArMember("text/", []byte("text")),
		elftest.ArMember("b.so/", sound(t)))
	testfile.Write(t, path, b)
	ctx, cancel := context.WithCancel(t.Context())
	e := new(examiner)
	r, err := e.examineCandidate(ctx, &candidate{name: path, archive: true})
	if err != nil || len(r) != 2 || r[0].File != path+"(a.so)" || r[1].File != path+"(b.so)" {
		t.Errorf("members %+v, %v; want a.so and b.so", r, err)
	}
	cancel()
	if r, err := e.examineCandidate(ctx, &candidate{name: path, archive: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("%d members after the end, %v", len(r), err)
	}
}

// TestStarting checks the size of the CFI that is reported before a file is examined. A file without section headers
// counts in full, because all of it may be CFI. Compressed sections count as four times their size.
func TestStarting(t *testing.T) {
	const ehFrame = 0x98 // by readelf
	for _, tt := range []struct {
		name string
		edit func(p *elftest.Patcher)
		want func(size uint64) uint64
	}{
		{"unchanged", func(*elftest.Patcher) {}, func(uint64) uint64 { return ehFrame }},
		{"with .debug_frame", func(p *elftest.Patcher) { p.AddSection(".debug_frame", 0, make([]byte, 100)) },
			func(uint64) uint64 { return ehFrame + 100 }},
		{"compressed", func(p *elftest.Patcher) {
			p.AddSection(".debug_frame", uint64(elf.SHF_COMPRESSED), make([]byte, 100))
		}, func(uint64) uint64 { return ehFrame + 400 }},
		{"compressed in the old way", func(p *elftest.Patcher) { p.AddSection(".zdebug_frame", 0, make([]byte, 100)) },
			func(uint64) uint64 { return ehFrame + 400 }},
		{"larger than the file", func(p *elftest.Patcher) { p.Put64(p.Section(".eh_frame")+elftest.ShSize, 1<<50) },
			func(uint64) uint64 { return 0 }},
		{"no section headers", func(p *elftest.Patcher) {
			p.Put64(elftest.EhShoff, 0)
			p.Put32(elftest.EhShnum, 0)
		}, func(size uint64) uint64 { return size }},
	} {
		p := elftest.Patch(t.Fatalf, sound(t))
		tt.edit(p)
		path := filepath.Join(t.TempDir(), "file")
		testfile.Write(t, path, p.B)
		var got []uint64
		run(t, Options{Jobs: 1, Starting: func(cfi, size uint64) { got = append(got, cfi, size) }}, path)
		size := uint64(len(p.B))
		if want := []uint64{tt.want(size), size}; !slices.Equal(got, want) {
			t.Errorf("%s: %d; want %d", tt.name, got, want)
		}
	}
}

// TestLargeAlone expects files with a lot of CFI to be examined one at a time, and others in parallel.
func TestLargeAlone(t *testing.T) {
	var e examiner
	examined := 0
	e.Starting = func(cfi, _ uint64) {
		free := e.large.TryLock()
		if free {
			e.large.Unlock()
		}
		if examined++; free != (cfi <= largeCFI) {
			t.Errorf("%d bytes of CFI: another file can be examined: %t", cfi, free)
		}
	}
	for _, size := range []int{100, largeCFI} {
		p := elftest.Patch(t.Fatalf, sound(t))
		p.AddSection(".debug_frame", 0, make([]byte, size))
		n := int64(len(p.B))
		must.Get(e.examine(elffile.NewBudget(n), bytes.NewReader(p.B), "file", n))(t)
	}
	if examined != 2 || !e.large.TryLock() {
		t.Errorf("%d files were examined, or the last one still is", examined)
	}
}

// TestLongLists expects lists to say how much they omit, and long names to be shortened.
func TestLongLists(t *testing.T) {
	const n = maxFiles + 2
	var records []*Record
	for i := range n {
		r := &Record{File: fmt.Sprint("/a/", i), Code: 1}
		if i <= maxWorst {
			r.Status, r.Error = damaged, "words"
		}
		records = append(records, r)
	}
	records[0].Worst = []Function{
		{Function: strings.Repeat("é", maxName+1), Size: 30, Lost: 3, Reason: "drap"},
		{Section: ".text", Begin: 16, Size: 20, Lost: 2, Reason: "drap"},
		{Begin: 0x1000, Size: 10, Lost: 1, Reason: "drap"},
	}
	s := New(records, Skipped{})
	if p := s.page("/a", ""); p.NotListed != "2 files" {
		t.Errorf("%q are not listed", p.NotListed)
	}
	var text bytes.Buffer
	must.Do(t, s.Text(&text))
	for _, want := range []string{
		"  The first 20 of 21; the JSON report lists all.\n", "  " + strings.Repeat("é", maxName-3) + "...\n",
		"  at .text+0x10\n", "  at 0x1000\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%.3000s", want, &text)
		}
	}
}
