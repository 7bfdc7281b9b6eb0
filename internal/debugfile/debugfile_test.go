package debugfile

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// plain returns a file with a build-id but without .gnu_debuglink.
func plain(t *testing.T) []byte {
	t.Helper()
	return testfile.Read(t, "../../testdata/bin/amd64/plt")
}

// plainWith returns the plain file. If notes is not nil, it replaces the build-id note; if link is not nil, it becomes
// .gnu_debuglink.
func plainWith(t *testing.T, notes, link []byte) []byte {
	t.Helper()
	p := elftest.Patch(t.Fatalf, plain(t))
	if notes != nil {
		p.Put32(int(p.U64(p.Section(".note.gnu.build-id")+elftest.ShOff))+8, 1) // its type becomes NT_GNU_ABI_TAG
		p.AddSection(".note.other", 0, notes)
		p.Put32(p.Section(".note.other")+elftest.ShType, uint32(elf.SHT_NOTE))
	}
	if link != nil {
		p.AddSection(".gnu_debuglink", 0, link)
	}
	return p.B
}

// debugLink returns the contents of .gnu_debuglink for a debug file with the given contents.
func debugLink(name string, data []byte) []byte {
	return binary.LittleEndian.AppendUint32(elftest.Pad([]byte(name+"\x00"), 4), crc32.ChecksumIEEE(data))
}

func put(t *testing.T, path string, b []byte) string {
	t.Helper()
	testfile.Write(t, path, b)
	return path
}

var none = []byte{}

// TestNamed opens named debug files, and expects an error unless they belong to the program.
func TestNamed(t *testing.T) {
	note := func(id string) []byte { return elftest.Note(4, uint32(len(id)), 3, "GNU\x00", []byte(id)) }
	moved := func() []byte {
		p := elftest.Patch(t.Fatalf, plain(t))
		h := p.Section(".text") + elftest.ShAddr
		p.Put64(h, p.U64(h)+16)
		return p.B
	}
	other := testfile.Read(t, "../../testdata/bin/amd64/undefra")
	withID := func(add func(*elftest.Object)) []byte {
		o := elftest.NewObject()
		o.Add(".note.gnu.build-id", elf.SHT_NOTE, elf.SHF_ALLOC, note("abcd"))
		add(o)
		return o.Bytes()
	}
	object := withID(func(*elftest.Object) {})
	bare := elftest.Patch(t.Fatalf, plain(t))
	for _, field := range []int{elftest.EhShnum, elftest.EhShstrndx} {
		bare.Put16(field, 0)
	}
	bare.Put64(elftest.EhShoff, 0)
	for _, tt := range []struct {
		name        string
		file, debug []byte
		want        string // error, or "" for none
	}{
		{"the same build-id", plain(t), plain(t), ""},
		{"a different build-id", plain(t), plainWith(t, note("abcd"), nil),
			"it belongs to a different build: its build-id is 61626364, not "},
		{"the same build-id, and a link with a different checksum", plainWith(t, nil, debugLink("debug", []byte("x"))),
			plain(t), ""},
		{"the right checksum", plainWith(t, none, debugLink("debug", plainWith(t, none, nil))),
			plainWith(t, none, nil), ""},
		{"a wrong checksum", plainWith(t, none, debugLink("debug", []byte("x"))), plainWith(t, none, nil),
			"it belongs to a different build: its checksum is 0x"},
		{"neither build-id nor link, the same code", plainWith(t, none, nil), plainWith(t, none, nil), ""},
		{"code at a different address", plain(t), moved(), "it belongs to a different program: "},
		{"different code", plain(t), other, "it belongs to a different program: it has 1 code sections, not 3"},
		{"no section headers, the same build-id", bare.B, plain(t), ""},
		{"an object", plain(t), elftest.NewObject().Bytes(),
			"of the file and its debug file, only one is a relocatable object"},
		{"of an object", object, object, ""},
		{"of an object, without a build-id", elftest.NewObject().Bytes(), elftest.NewObject().Bytes(),
			"relocatable objects with neither a build-id nor .gnu_debuglink cannot have a debug file"},
		{"of an object with more code", object, withID(func(o *elftest.Object) { o.Code(".text.more", 4) }),
			"it has 2 code sections, not 1"},
		{"of an object with a different section name",
			withID(func(o *elftest.Object) { o.Code(".a", 4) }), withID(func(o *elftest.Object) { o.Code(".b", 4) }),
			"its code section 1 is .b, not .a"},
		{"a different machine", plain(t), elftest.BigObject(elf.EM_S390, 0).Bytes(),
			"it is for machine EM_S390, BigEndian"},
		{"an empty file", plain(t), nil, `not an ELF file: starts with ""`},
		{"section headers past the end", plain(t), plain(t)[:64], "section header table at file offset 0x12e0"},
		{"notes past the end", plain(t), func() []byte {
			p := elftest.Patch(t.Fatalf, plain(t))
			p.Put64(p.Section(".note.gnu.build-id")+elftest.ShOff, 1<<40)
			return p.B
		}(), "section .note.gnu.build-id at file offset 0x10000000000: 36 bytes do not fit in the file"},
		{"the file's notes past the end", func() []byte {
			p := elftest.Patch(t.Fatalf, plain(t))
			p.Put64(p.Section(".note.gnu.build-id")+elftest.ShOff, 1<<40)
			return p.B
		}(), plain(t), "section .note.gnu.build-id at file offset 0x10000000000: 36 bytes do not fit in the file"},
	} {
		path := put(t, filepath.Join(t.TempDir(), "debug"), tt.debug)
		d, err := Open(path, "", elftest.Parse(t, tt.file))
		switch {
		case tt.want == "":
			if err != nil || d.Path != path || d.File() == nil || d.File().Size != uint64(len(tt.debug)) {
				t.Errorf("%s: %v, %+v", tt.name, err, d)
			}
		case err == nil || !strings.Contains(err.Error(), tt.want) || d != nil:
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		d.Close()
	}
}

// TestNoFile expects errors for everything but regular files, without blocking.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, errors.Join(syscall.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("folder"), 0o700),
		os.Symlink(at("loop"), at("loop"))))
	for name, want := range map[string]string{
		at("fifo"): "regular file", at("folder"): "regular file", "/dev/zero": "regular file",
		at("loop"): "too many levels of symbolic links", at("none"): "no such file or directory",
	} {
		d, err := Open(name, "", elftest.Parse(t, plain(t)))
		if d != nil || err == nil || !strings.HasPrefix(err.Error(), "debug file "+name+": ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", name, err, want)
		}
	}
}

// TestHuge opens sparse debug files of 4 TiB: a build-id is read, but no checksum is computed.
func TestHuge(t *testing.T) {
	for _, tt := range []struct {
		name        string
		file, debug []byte
		want        string
	}{
		{"build-id", plain(t), plain(t), ""},
		{"checksum", plainWith(t, none, debugLink("debug", nil)), plainWith(t, none, nil),
			"it has no build-id, and its 4398046511104 bytes exceed the checksum limit of 4294967296"},
	} {
		path := put(t, filepath.Join(t.TempDir(), "debug"), tt.debug)
		if err := os.Truncate(path, 1<<42); err != nil {
			t.Skipf("no files of that size: %v", err)
		}
		d, err := Open(path, "", elftest.Parse(t, tt.file))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
		d.Close()
	}
}

// TestAuto searches the paths in the GDB manual ("Debugging Information in Separate Files") in the documented order.
// Files that do not belong to the program are skipped.
func TestAuto(t *testing.T) {
	defer func(root string) { Root = root }(Root)
	Root = t.TempDir()
	dir := t.TempDir()
	real := must.Get(filepath.EvalSymlinks(dir))(t)
	data := plainWith(t, nil, debugLink("prog.debug", nil))
	f := elftest.Parse(t, data)
	id, _, err := f.BuildID()
	if err != nil || len(id) != 20 { // SHA-1
		t.Fatalf("build-id %x, %v", id, err)
	}
	prog := put(t, filepath.Join(real, "prog"), data)
	link := filepath.Join(dir, "link")
	must.Do(t, os.Symlink(prog, link))
	s := hex.EncodeToString(id)
	places := []string{
		filepath.Join(Root, ".build-id", s[:2], s[2:]+".debug"),
		filepath.Join(real, "prog.debug"), filepath.Join(real, ".debug", "prog.debug"),
		filepath.Join(Root, real, "prog.debug"),
	}
	foreign := plainWith(t, elftest.Note(4, 4, 3, "GNU\x00", []byte("abcd")), nil)
	for i, place := range places {
		for _, before := range places[:i] {
			put(t, before, foreign)
		}
		for _, path := range []string{prog, link} {
			put(t, place, plain(t))
			if d, err := Open(Auto, path, f); err != nil || d.Path != place {
				t.Errorf("%s is found as %q, %v", place, d.Path, err)
			} else {
				d.Close()
			}
		}
	}
	for _, place := range places {
		put(t, place, foreign)
	}
	if d, err := Open(Auto, prog, f); d != nil || err != nil || d.File() != nil {
		t.Errorf("files of another build: %v, %v", d, err)
	}
	must.Do(t, os.Remove(places[2]))
	// The debug file is recognized by any of its names.
	found := func(name, of string) bool {
		info := must.Get(os.Stat(name))(t)
		return IsFound(info, of)
	}
	put(t, places[3], plain(t))
	other := filepath.Join(dir, "other")
	must.Do(t, os.Link(places[3], other))
	text := put(t, filepath.Join(dir, "text"), []byte("not an ELF file"))
	for _, tt := range []struct {
		name, of string
		want     bool
	}{{other, prog, true}, {places[3], link, true}, {places[1], prog, false}, {prog, prog, false}, {other, text, false},
		{other, dir, false}, {other, "-", false}} {
		if found(tt.name, tt.of) != tt.want {
			t.Errorf("%s is found for %s: want %t", tt.name, tt.of, tt.want)
		}
	}
}

// TestNone expects no debug file if none is requested, or if an object has neither a build-id nor .gnu_debuglink.
func TestNone(t *testing.T) {
	object := elftest.Parse(t, elftest.NewObject().Bytes())
	for name, f := range map[string]*elffile.File{"": elftest.Parse(t, plain(t)), Auto: object} {
		if d, err := Open(name, "", f); d != nil || err != nil {
			t.Errorf("%q: %v, %v", name, d, err)
		}
	}
}

// TestLink parses .gnu_debuglink: a name, zeros up to a multiple of 4, and a checksum.
func TestLink(t *testing.T) {
	const want = "lacks a file name or a checksum"
	for _, tt := range []struct {
		name string
		data []byte
		link string
		sum  uint32
		err  string
	}{
		{"valid", []byte("prog.debug\x00\x00\x44\x33\x22\x11"), "prog.debug", 0x11223344, ""},
		{"with a name of four bytes", []byte("prog\x00\x00\x00\x00\x44\x33\x22\x11"), "prog", 0x11223344, ""},
		{"without a zero byte", []byte("prog.debug"), "", 0, want},
		{"without a name", make([]byte, 8), "", 0, want},
		{"without a checksum", []byte("debug\x00"), "", 0, want},
		{"with half a checksum", []byte("debug\x00\x00\x00\x44\x33"), "", 0, want},
		{"empty", none, "", 0, want},
	} {
		link, err := linkOf(elftest.Parse(t, plainWith(t, nil, tt.data)))
		if link.name != tt.link || link.sum != tt.sum || (err == nil) != (tt.err == "") || err != nil &&
			!strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %+v, %v; want %q, %#x, %q", tt.name, link, err, tt.link, tt.sum, tt.err)
		}
	}
	p := elftest.Patch(t.Fatalf, plainWith(t, nil, debugLink("debug", nil)))
	p.Put64(p.Section(".gnu_debuglink")+elftest.ShOff, 1<<40)
	if d, err := Open(Auto, "", elftest.Parse(t, p.B)); d != nil || err == nil ||
		!strings.Contains(err.Error(), "section .gnu_debuglink at file offset 0x10000000000") {
		t.Errorf("past the end: %v, %v", d, err)
	}
}

// TestLinkElsewhere expects links that are not plain file names to be ignored.
func TestLinkElsewhere(t *testing.T) {
	for _, name := range []string{"/dev/zero", "../debug", "a/b", ""} {
		if got := (&marks{link: link{name: name}}).candidates("/usr/bin/prog"); len(got) > 0 {
			t.Errorf("%q leads to %v", name, got)
		}
	}
}
