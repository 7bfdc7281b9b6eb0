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

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/translate"
)

// sound returns a program.
func sound(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(fixtures + "amd64/drap2.so")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRefused says why CFI is not translated.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		edit    func(p *elftest.Patcher)
		status  string
		message string // in the error
	}{
		{"sound", func(*elftest.Patcher) {}, "", ""},
		{"no CFI", func(p *elftest.Patcher) {
			p.Put32(p.Section(".eh_frame")+elftest.ShType, uint32(elf.SHT_NOBITS))
			p.Put32(p.Segment(elf.PT_GNU_EH_FRAME, 0), uint32(elf.PT_NULL)) // which leads there as well
		}, "no-cfi", ""},
		{"CFI of no code", func(p *elftest.Patcher) { p.Contents(".eh_frame", make([]byte, 4)) }, "no-code", ""},
		{"a record that is longer than the section", func(p *elftest.Patcher) {
			p.Contents(".eh_frame", []byte{0xff, 0, 0, 0, 0, 0, 0, 0})
		}, "damaged", ".eh_frame+0x0"},
		{"CFI outside of the file", func(p *elftest.Patcher) { p.Put64(p.Section(".eh_frame")+elftest.ShOff, 1<<40) }, "damaged", ".eh_frame"},
		{"another machine", func(p *elftest.Patcher) { p.Put16(18, uint16(elf.EM_MIPS)) }, "machine", ""},
		{"32 bits", func(p *elftest.Patcher) { p.B[elf.EI_CLASS] = byte(elf.ELFCLASS32) }, "32-bit", ""},
	} {
		p := elftest.Patch(t.Fatalf, sound(t))
		tt.edit(p)
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, p.B, 0o666); err != nil {
			t.Fatal(err)
		}
		s := run(t, Options{}, path)
		want := map[string]int{}
		if tt.status != "" {
			want[tt.status] = 1
		}
		if got := refusedBy(&s.Total); fmt.Sprint(got) != fmt.Sprint(want) || s.Total.Files != 1 {
			t.Errorf("%s: %v are refused; %v was expected", tt.name, got, want)
		}
		var errs []string
		for _, e := range s.Errors {
			errs = append(errs, e.Reason+" "+e.Error)
		}
		all := strings.Join(errs, "\n")
		if (tt.message == "") != (all == "") || !strings.Contains(all, tt.message) || tt.message != "" && !strings.HasPrefix(all, tt.status+" ") {
			t.Errorf("%s: errors %q; %q was expected", tt.name, all, tt.message)
		}
	}
}

var errDisk = errors.New("the disk is gone")

// A failing reader gives an error for what has the byte at an offset.
type failing struct {
	io.ReaderAt
	at  int64
	err error
}

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if off <= f.at && f.at-off < int64(len(b)) {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(b, off)
}

// TestReadErrors takes a file that cannot be read for no damaged one.
func TestReadErrors(t *testing.T) {
	b := sound(t)
	p := elftest.Patch(t.Fatalf, b)
	for name, at := range map[string]int64{
		"the identification": 0, "the CFI": int64(p.U64(p.Section(".eh_frame") + elftest.ShOff)),
	} {
		c := newCollector(nil, Options{Worst: 1})
		l, functions := c.examine(nil, failing{bytes.NewReader(b), at, errDisk}, unit{file: "x", size: int64(len(b))})
		if l.status != unreadable || !strings.Contains(l.message, errDisk.Error()) || len(functions) > 0 {
			t.Errorf("%s: %s, %q", name, refusals[l.status].name, l.message)
		}
	}
	headers := int64(p.U64(elftest.EhShoff))
	system := &fs.PathError{Op: "read", Path: "x", Err: syscall.EIO}
	l, _ := newCollector(nil, Options{}).examine(nil, failing{bytes.NewReader(b), headers, system}, unit{file: "x", size: int64(len(b))})
	if l.status != unreadable || l.message != syscall.EIO.Error() {
		t.Errorf("the section headers: %s, %q", refusals[l.status].name, l.message)
	}
	// Files that go after they were found, and folders that cannot be read.
	c := newCollector(nil, Options{Worst: 1})
	gone := filepath.Join(t.TempDir(), "gone")
	for _, f := range []candidate{{name: gone}, {name: gone, err: os.ErrPermission}} {
		lines, _ := c.file(t.Context(), &f)
		if len(lines) != 1 || lines[0].file != gone || lines[0].status != unreadable || lines[0].message == "" {
			t.Errorf("%+v: %+v", f, lines)
		}
	}
	if _, err := peekFile(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the head of a file that is not there: %v", err)
	}
	if got := (&unit{file: gone, size: 1}).places(nil); got != nil {
		t.Errorf("places %v in a file that is not there", got)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no longer an ELF file, but as long as one's header: ................"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := (&unit{file: text, size: 64}).places(nil); got != nil {
		t.Errorf("places %v in a file that is another one now", got)
	}
}

// TestArchiveCancelled stops within an archive.
func TestArchiveCancelled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.a")
	b := elftest.Ar(elftest.ArMember("a.so/", sound(t)), elftest.ArMember("text/", []byte("text")), elftest.ArMember("b.so/", sound(t)))
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := newCollector(nil, Options{Worst: 1})
	if lines, _ := c.file(ctx, &candidate{name: path, archive: true}); len(lines) != 2 || lines[0].file != path+"(a.so)" || lines[1].file != path+"(b.so)" {
		t.Errorf("members %+v; a.so and b.so were expected", lines)
	}
	cancel()
	if lines, _ := c.file(ctx, &candidate{name: path, archive: true}); len(lines) != 0 {
		t.Errorf("%d members after the end", len(lines))
	}
}

// TestStarting is told how much CFI there is before a file is worked on. A file without section headers may be nothing but CFI; of what is
// compressed four times as much is expected.
func TestStarting(t *testing.T) {
	const ehFrame = 0x98 // as readelf says
	for _, tt := range []struct {
		name string
		edit func(p *elftest.Patcher)
		want func(size uint64) uint64
	}{
		{"as it is", func(*elftest.Patcher) {}, func(uint64) uint64 { return ehFrame }},
		{"with .debug_frame", func(p *elftest.Patcher) { p.AddSection(".debug_frame", 0, make([]byte, 100)) }, func(uint64) uint64 { return ehFrame + 100 }},
		{"compressed", func(p *elftest.Patcher) {
			p.AddSection(".debug_frame", uint64(elf.SHF_COMPRESSED), make([]byte, 100))
		}, func(uint64) uint64 { return ehFrame + 400 }},
		{"compressed as it was", func(p *elftest.Patcher) { p.AddSection(".zdebug_frame", 0, make([]byte, 100)) }, func(uint64) uint64 { return ehFrame + 400 }},
		{"that it does not have", func(p *elftest.Patcher) { p.Put64(p.Section(".eh_frame")+elftest.ShSize, 1<<50) }, func(uint64) uint64 { return 0 }},
		{"no section headers", func(p *elftest.Patcher) {
			p.Put64(elftest.EhShoff, 0)
			p.Put32(elftest.EhShnum, 0)
		}, func(size uint64) uint64 { return size }},
	} {
		p := elftest.Patch(t.Fatalf, sound(t))
		tt.edit(p)
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, p.B, 0o666); err != nil {
			t.Fatal(err)
		}
		var got []uint64
		run(t, Options{Jobs: 1, Starting: func(cfi, size uint64) { got = append(got, cfi, size) }}, path)
		size := uint64(len(p.B))
		if want := []uint64{tt.want(size), size}; !slices.Equal(got, want) {
			t.Errorf("%s: %d; %d were expected", tt.name, got, want)
		}
	}
}

// TestLossy has the files that lose something, those that lose most first, and members of archives together.
func TestLossy(t *testing.T) {
	c := newCollector([]root{{name: "/lib", real: "/lib"}}, Options{})
	of := func(file string, reason translate.Reason, bytes uint64) line {
		return line{
			file: file, described: 1000, formats: make([]Format, len(Formats)),
			gaps: []gapSum{{reason, translate.Sum{Functions: 1, Ranges: 1, Bytes: bytes}}},
		}
	}
	add := func(disk string, lines ...line) { c.add(&candidate{name: disk}, lines, nil) }
	add("/lib/some", of("/lib/some", translate.SPRule, 5))
	add("/lib/a.a", of("/lib/a.a(small.o)", translate.DRAP, 1), of("/lib/a.a(large.o)", translate.DRAP, 50))
	add("/lib/none", of("/lib/none", translate.DRAP, 0))
	add("/lib/start", of("/lib/start", translate.Outermost, 99)) // where nothing is lost
	got := fmt.Sprintf("%+v", c.finish().Lossy())
	if want := "[{Path:/lib/a.a Package:false Names:[/lib/a.a(large.o) /lib/a.a(small.o)]} {Path:/lib/some Package:false Names:[/lib/some]}]"; got != want {
		t.Errorf("%s; %s was expected", got, want)
	}
}

// TestLongLists says what lists leave out.
func TestLongLists(t *testing.T) {
	var roots []root
	for _, name := range []string{"/a", "/b\x1b", "/c", "/d", "/e"} {
		roots = append(roots, root{name: name, real: name})
	}
	c := newCollector(roots, Options{Worst: 2})
	const n = maxFiles + 2
	for i := range n {
		l := line{file: fmt.Sprint("/a/", i), formats: make([]Format, len(Formats))}
		if i < 3 {
			l.status, l.message = damaged, "words"
		}
		c.add(&candidate{name: l.file}, []line{l}, nil)
	}
	s := c.finish()
	s.WorstFunctions = []BadFunction{
		{File: "/a/0", Function: strings.Repeat("é", maxName+1), Size: 30, Lost: 3, Reason: "drap"},
		{File: "/a/1", Section: ".text", Begin: 16, Size: 20, Lost: 2, Reason: "drap"},
		{File: "/a/2", Begin: 0x1000, Size: 10, Lost: 1, Reason: "drap"},
	}
	if got, want := s.heading(), `/a, "/b\x1b", /c and 2 other paths`; got != want {
		t.Errorf("heading %s; %s was expected", got, want)
	}
	if p := s.page(nil); p.NotListed != "2 files" {
		t.Errorf("%q are not listed", p.NotListed)
	}
	var text bytes.Buffer
	if err := s.Text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  The first of 3; the CSV form has all.\n", "  " + strings.Repeat("é", maxName-3) + "...\n", "  at .text+0x10\n", "  at 0x1000\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
}

// A fullWriter takes so many bytes, and no more.
type fullWriter struct{ room int }

func (w *fullWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.room)
	w.room -= n
	if n < len(b) {
		return n, errDisk
	}
	return n, nil
}

// TestWriteErrors expects of all forms that they say when they could not be written, wherever that is.
func TestWriteErrors(t *testing.T) {
	s := model(100)
	for _, form := range Forms {
		var whole bytes.Buffer
		if err := s.Write(&whole, form); err != nil {
			t.Fatal(err)
		}
		n := whole.Len()
		for _, room := range []int{0, n / 2, n - 1} {
			if err := s.Write(&fullWriter{room}, form); !errors.Is(err, errDisk) {
				t.Errorf("%s, %d of %d bytes: %v", form, room, n, err)
			}
		}
		if err := s.Write(&fullWriter{n}, form); err != nil {
			t.Errorf("%s, with room for all: %v", form, err)
		}
	}
}

// TestWorstNone keeps nothing where nothing is asked for.
func TestWorstNone(t *testing.T) {
	for most, want := range map[int][]int{0: {}, 1: {1}, 2: {1, 2}, 5: {1, 2, 3}} {
		w := worst[int]{max: most, cmp: func(a, b *int) int { return *a - *b }}
		for _, v := range []int{2, 3, 1} {
			w.add(v)
		}
		if got := w.list(); got == nil || !slices.Equal(got, want) {
			t.Errorf("%d at most: %v; %v were expected", most, got, want)
		}
	}
}
