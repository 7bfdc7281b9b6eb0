package rpm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/rpmtest"
)

// headers reads the headers of a package.
func headers(b []byte) (sig, main *Header, err error) {
	p, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	return p.Sig, p.Main, nil
}

// headerOf returns the second header of a package with these tags.
func headerOf(t testing.TB, tags ...rpmtest.Tag) *Header {
	t.Helper()
	_, h, err := headers(rpmtest.Package(nil, tags...))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// expect expects an error of something at an offset.
func expect(t *testing.T, name string, err error, off, payload int64, want string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Off != off || e.Payload != payload || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v; want %q at %#x, %#x", name, err, want, off, payload)
	}
}

// mainOff is where the second header of rpmtest's packages is: after the lead, and a header of two tags with a number
// and "odd", padded.
const mainOff = 96 + 16 + 2*16 + 8

// The values of values, by their types, and others of the same size.
var values = []rpmtest.Tag{
	{Number: 1, Value: []uint16{1, 0xffff}},
	{Number: 2, Value: []uint32{2, 0xfffffffe, 3}},
	{Number: 3, Value: []uint64{1<<64 - 1}},
	{Number: 4, Value: "text"},
	{Number: 5, Value: []string{"one", "", "three"}},
	{Number: 6, Value: []byte("bin\x00")},
	{Number: 7, Value: []uint32{}},
	{Number: 8, Value: []string{}},
}

func TestValues(t *testing.T) {
	sig, h, err := headers(rpmtest.Package([]byte("payload"), values...))
	if err != nil {
		t.Fatal(err)
	}
	if sig.Off != 96 || h.Off != mainOff || h.End() != mainOff+int64(len(rpmtest.Header(values...))) {
		t.Errorf("headers at %d and %d, which ends at %d", sig.Off, h.Off, h.End())
	}
	if tags := h.Tags(); !slices.Equal(tags, []uint32{1, 2, 3, 4, 5, 6, 7, 8}) || !h.Has(8) || h.Has(9) {
		t.Errorf("tags %d", tags)
	}
	for tag, want := range map[uint32][]uint64{1: {1, 0xffff}, 2: {2, 0xfffffffe, 3}, 3: {1<<64 - 1}, 7: {}, 9: nil} {
		if got, err := h.Numbers(tag); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("tag %d: %d, %v; want %d", tag, got, err, want)
		}
	}
	for tag, want := range map[uint32]string{4: `["text"]`, 5: `["one" "" "three"]`, 8: "[]", 9: "[]"} {
		all, err := h.Texts(tag)
		if got := fmt.Sprintf("%q", all); err != nil || got != want {
			t.Errorf("tag %d: %s, %v; want %s", tag, got, err, want)
		}
	}
	for tag, want := range map[uint32]string{4: "text", 5: "one", 8: "", 9: ""} {
		if got, err := h.Text(tag); err != nil || got != want {
			t.Errorf("tag %d: %q, %v; want %q", tag, got, err, want)
		}
	}
	for tag, want := range map[uint32]string{6: "bin\x00", 9: ""} {
		if got, err := h.Bytes(tag); err != nil || string(got) != want {
			t.Errorf("tag %d: %q, %v; want %q", tag, got, err, want)
		}
	}
	// A tag that comes again: the last one counts.
	again := headerOf(t, rpmtest.Tag{Number: 4, Value: "first"}, rpmtest.Tag{Number: 4, Value: "last"})
	if got, err := again.Text(4); got != "last" || err != nil || !slices.Equal(again.Tags(), []uint32{4, 4}) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSet replaces values, and compares with a header that has those.
func TestSet(t *testing.T) {
	h := headerOf(t, values...)
	want := slices.Clone(values)
	want[0].Value = []uint16{1, 0x1234}
	want[1].Value = []uint32{0xffffffff, 0xfffffffe, 0x01020304}
	want[2].Value = []uint64{0x0102030405060708}
	want[3].Value = "next"
	want[4].Value = []string{"two", "", "three"}
	err := errors.Join(
		h.SetNumber(1, 1, 0x1234), h.SetNumber(2, 0, 0xffffffff), h.SetNumber(2, 2, 0x01020304),
		h.SetNumber(3, 0, 0x0102030405060708),
		h.SetText(4, "next"), h.SetText(5, "two"), h.SetNumber(9, 5, 1), h.SetText(9, "none"),
	)
	if err != nil || !bytes.Equal(h.Raw, rpmtest.Header(want...)) {
		t.Errorf("%v, %q; want %q", err, h.Raw, rpmtest.Header(want...))
	}
	for name, err := range map[string]error{
		"tag 1 has 2 values of 2 bytes, and cannot hold 65536 as value 0":      h.SetNumber(1, 0, 1<<16),
		"tag 2 has 3 values of 4 bytes, and cannot hold 4294967296 as value 0": h.SetNumber(2, 0, 1<<32),
		"tag 2 has 3 values of 4 bytes, and cannot hold 1 as value 3":          h.SetNumber(2, 3, 1),
		"tag 7 has 0 values of 4 bytes, and cannot hold 1 as value 0":          h.SetNumber(7, 0, 1),
		"tag 4 has type 6, and 1 values at":                                    h.SetNumber(4, 0, 1),
		"tag 1 has type 3, and 2 values at":                                    h.SetText(1, "x"),
		"tag 4 cannot hold a string of 5 bytes":                                h.SetText(4, "texts"),
		"tag 8 cannot hold a string of 0 bytes":                                h.SetText(8, ""),
	} {
		expect(t, name, err, mainOff, -1, name)
	}
	if !bytes.Equal(h.Raw, rpmtest.Header(want...)) {
		t.Error("what cannot be replaced has changed")
	}
}

// TestHeaders has packages whose headers do not fit.
func TestHeaders(t *testing.T) {
	lead := string(rpmtest.Lead())
	if lead[:4] != Magic {
		t.Errorf("a lead begins with %x", Magic)
	}
	sized := func(tags, size uint32, rest int) []byte {
		b := binary.BigEndian.AppendUint32([]byte(lead+rpmtest.HeaderMagic), tags)
		return append(binary.BigEndian.AppendUint32(b, size), make([]byte, rest)...)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		off  int64
		want string
	}{
		{"only a lead", []byte(lead), 96, "RPM package at offset 0x60: unexpected EOF in a header"},
		{"half of one", sized(0, 0, 0)[:104], 96, "unexpected EOF in a header"},
		{"no header", []byte(lead + strings.Repeat("\x00", 16)), 96,
			"no header: it begins with 00 00 00 00 00 00 00 00, not 8e ad e8 01 00 00 00 00"},
		{"4 GiB", sized(1, 1<<32-1, 0), 96, "a header of 1 tags and 4294967295 bytes does not fit: 16 bytes are left"},
		{"a byte more", sized(1, 4, 19), 96, "a header of 1 tags and 4 bytes does not fit: 35 bytes are left"},
		{"many tags", sized(1<<16, 0, 1<<20), 96, "a header of 65536 tags and 0 bytes does not fit"},
		{"no second one", sized(1, 4, 20), 136, "unexpected EOF in a header"},
	} {
		_, _, err := headers(tt.b)
		expect(t, tt.name, err, tt.off, -1, tt.want)
	}
	most := append(sized(1<<16-1, 0, 16*(1<<16-1)), rpmtest.Header()...)
	if sig, main, err := headers(most); err != nil || len(sig.Tags()) != 1<<16-1 || len(main.Tags()) != 0 {
		t.Errorf("as many tags as there may be: %v", err)
	}
	_, err := Open(bytes.NewReader([]byte(lead)), 1<<20)
	expect(t, "a file that is shorter", err, 96, -1, "unexpected EOF")
	broken := errors.New("no disk")
	if _, err := Open(failing{broken}, 1<<20); !errors.Is(err, broken) {
		t.Errorf("%v; want %v", err, broken)
	}
}

// A failing file cannot be read.
type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// TestOutOfBounds has tags whose values are not in the header, and some that just are.
func TestOutOfBounds(t *testing.T) {
	const data = 16 // bytes
	at := func(typ, off, count uint32) *Header {
		b := rpmtest.Header(rpmtest.Tag{Number: 1, Value: []byte("0123456789abcde\x00")})
		for i, n := range []uint32{typ, off, count} {
			binary.BigEndian.PutUint32(b[20+4*i:], n)
		}
		_, h, err := headers(slices.Concat(rpmtest.Lead(), rpmtest.Header(), b))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, e := range [][3]uint32{{3, 0, 8}, {3, 14, 1}, {4, 0, 4}, {4, 16, 0}, {5, 8, 1}} {
		if all, err := at(e[0], e[1], e[2]).Numbers(1); err != nil || len(all) != int(e[2]) {
			t.Errorf("%d: %d, %v", e, all, err)
		}
	}
	for _, e := range [][3]uint32{
		{0, 0, 1}, {1, 0, 1}, {2, 0, 1}, {6, 0, 1}, {7, 0, 1}, {3, 0, 9}, {3, 15, 1}, {4, 13, 1}, {4, 17, 0}, {5, 9, 1},
		{4, 1<<32 - 1, 1}, {5, 0, 1<<32 - 1}, {5, 0, 1 << 29},
	} {
		_, err := at(e[0], e[1], e[2]).Numbers(1)
		expect(t, fmt.Sprint(e), err, 112, -1,
			fmt.Sprintf("tag 1 has type %d, and %d values at %#x; up to 4194304 of types [3 4 5] within %d bytes are supported", e[0], e[2], e[1], data))
	}
	for _, e := range [][3]uint32{{6, 0, 1}, {6, 15, 1}, {8, 15, 1}, {8, 16, 0}} {
		if all, err := at(e[0], e[1], e[2]).Texts(1); err != nil || len(all) != int(e[2]) {
			t.Errorf("%d: %q, %v", e, all, err)
		}
	}
	for _, e := range [][3]uint32{{6, 0, 0}, {6, 0, 2}, {8, 0, 2}, {8, 0, 17}, {8, 16, 1}, {8, 17, 0},
		{8, 0, 1<<32 - 1}, {9, 0, 1}} {
		_, err := at(e[0], e[1], e[2]).Texts(1)
		expect(t, fmt.Sprint(e), err, 112, -1, "of types [6 8] within 16 bytes are supported")
		_, err = at(e[0], e[1], e[2]).Text(1)
		expect(t, fmt.Sprint(e), err, 112, -1, "of types [6 8] within 16 bytes are supported")
	}
	for _, e := range [][3]uint32{{6, 0, 1}, {7, 0, 17}, {7, 16, 1}, {7, 17, 0}} {
		_, err := at(e[0], e[1], e[2]).Bytes(1)
		expect(t, fmt.Sprint(e), err, 112, -1, "of types [7] within 16 bytes are supported")
	}
	if b, err := at(7, 2, 14).Bytes(1); err != nil || string(b) != "23456789abcde\x00" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFiles(t *testing.T) {
	f, err := headerOf(t, rpmtest.Tags()...).Files()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/usr/bin/one", "/usr/d", "/usr/bin/link", "/usr/bin/first", "/usr/bin/second",
		"/usr/bin/ghost"}; !slices.Equal(f.Names, want) {
		t.Errorf("%q; want %q", f.Names, want)
	}
	for i, want := range [][]int{{0}, {1}, {2}, {3, 4}, {3, 4}, {5}} {
		if got := f.Linked(i); !slices.Equal(got, want) {
			t.Errorf("file %d has the names %d; want %d", i, got, want)
		}
	}
	// Without inodes, no two are the same.
	f, err = headerOf(t, rpmtest.With(TagFileInodes, make([]uint32, 6))...).Files()
	if err != nil || !slices.Equal(f.Linked(3), []int{3}) {
		t.Errorf("%v; want no links", err)
	}
	// Sizes of 32 bits, where there are no others.
	tags := append(rpmtest.Tags(), rpmtest.Tag{Number: TagFileSizes, Value: []uint32{1, 2, 3, 4, 5, 6}})
	for i, want := range [][]uint64{{3, 4096, 3, 5, 5, 9}, {1, 2, 3, 4, 5, 6}} {
		if f, err := headerOf(t, tags...).Files(); err != nil || !slices.Equal(f.Sizes, want) {
			t.Errorf("%d: %v; want %d", i, err, want)
		}
		tags = slices.DeleteFunc(tags, func(tag rpmtest.Tag) bool { return tag.Number == TagLongFileSizes })
	}
	if f, err := headerOf(t).Files(); err != nil || len(f.Names) != 0 {
		t.Errorf("a package without files: %v", err)
	}
	for _, tt := range []struct {
		tags []rpmtest.Tag
		want string
	}{
		{rpmtest.With(TagFileModes, []uint16{1}), "tag 1030 has 1 values for 6 files"},
		{rpmtest.Tags()[1:], "tag 1116 has 6 values for 0 files"},
		{rpmtest.With(TagDirIndexes, []uint32{0, 1, 2, 0, 0, 0}),
			"tag 1116 has 2 for file 2, but there are 2 directories"},
		{rpmtest.With(TagFileModes, "text"), "tag 1030 has type 6, and 1 values"},
		{rpmtest.With(TagBaseNames, []uint32{1}), "tag 1117 has type 4, and 1 values"},
		{rpmtest.With(TagDirNames, []uint32{1}), "tag 1118 has type 4, and 1 values"},
	} {
		_, err := headerOf(t, tt.tags...).Files()
		expect(t, tt.want, err, mainOff, -1, tt.want)
	}
	defer func(n int) { maxNames = n }(maxNames)
	maxNames = 74 // which they have
	if _, err := headerOf(t, rpmtest.Tags()...).Files(); err != nil {
		t.Error(err)
	}
	maxNames--
	_, err = headerOf(t, rpmtest.Tags()...).Files()
	expect(t, "longer names", err, mainOff, -1, "names of files with more than 73 bytes in total")
}

// TestRPM compares with what rpm says of packages, as rpmbuild made them.
func TestRPM(t *testing.T) {
	for _, name := range []string{"none", "gzip", "xz"} {
		path := "../repack/testdata/" + name + ".rpm"
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := exec.Command(peer.Look(t, "rpm"), "-qp", "--nosignature", "--qf",
			`[%{FILENAMES} %{FILESIZES} %{FILEMODES:octal} %{FILEFLAGS} %{FILENLINKS}\n]`, path).Output()
		if err != nil {
			t.Fatal(err)
		}
		_, h, err := headers(b)
		if err != nil {
			t.Fatal(err)
		}
		f, err := h.Files()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range f.Names {
			got += fmt.Sprintf("%s %d %o %d %d\n", f.Names[i], f.Sizes[i], f.Modes[i], f.Flags[i], len(f.Linked(i)))
		}
		if got != string(want) || got == "" {
			t.Errorf("%s\n%s was expected", got, want)
		}
	}
}

// A read is what is seen of a member.
type read struct {
	Member
	contents, padding string
}

// all reads an archive, half of the contents of each member or all of it.
func all(a *Archive, half bool) (out []read, err error) {
	for {
		m, err := a.Next()
		if err != nil {
			return out, err
		}
		if m.Last {
			return append(out, read{Member: *m}), nil
		}
		r := read{Member: *m}
		in := io.Reader(a)
		if half {
			in = io.LimitReader(a, m.Size/2)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			return out, err
		}
		r.contents = string(b)
		if !half {
			b, err = a.Padding()
			if err != nil {
				return out, err
			}
			r.padding = string(b)
		}
		out = append(out, r)
	}
}

// TestArchive has members of each form.
func TestArchive(t *testing.T) {
	h := headerOf(t, rpmtest.Tags()...)
	named := rpmtest.Newc("./a", 0x1f, 0o100755, 2, "12345")
	summed := bytes.Replace(rpmtest.Newc("name\x00more", 1, 0o120777, 1, "abc"), []byte("070701"), []byte("070702"), 1)
	summed[len(summed)-1] = 'p' // there is something where zeros are
	payload := slices.Concat(named, summed, rpmtest.Payload())
	want := []read{
		{Member{Off: 0, File: -1, Name: "./a", Mode: 0o100755, Size: 5, Links: 2, Inode: [3]uint64{8, 1, 0x1f}},
			"12345", "\x00\x00\x00"},
		{Member{Off: 124, File: -1, Name: "name", Mode: 0o120777, Size: 3, Links: 1, Inode: [3]uint64{8, 1, 1}},
			"abc", "p"},
		{Member{Off: 248, File: 0, Name: "/usr/bin/one", Mode: 0o100755, Size: 3, Links: 1, Inode: [3]uint64{1, 0, 1}},
			"One", "\x00"},
		{Member{Off: 268, File: 1, Name: "/usr/d", Mode: 0o040755, Links: 1, Inode: [3]uint64{1, 0, 2}}, "", ""},
		{Member{Off: 284, File: 2, Name: "/usr/bin/link", Mode: 0o120777, Size: 3, Links: 1, Inode: [3]uint64{1, 0, 3}},
			"one", "\x00"},
		{Member{Off: 304, File: 3, Name: "/usr/bin/first", Mode: 0o100755, Links: 2, Inode: [3]uint64{1, 0, 4}}, "",
			""},
		{Member{Off: 320, File: 4, Name: "/usr/bin/second", Mode: 0o100755, Size: 5, Links: 2,
			Inode: [3]uint64{1, 0, 4}}, "links", "\x00\x00\x00"},
		{Member{Off: 344, File: -1, Name: "TRAILER!!!", Links: 1, Last: true}, "", ""},
	}
	files, err := h.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, files := range []*Files{nil, files} {
		got, err := all(NewArchive(iotest.DataErrReader(iotest.OneByteReader(bytes.NewReader(payload))), h, files),
			false)
		if err != nil {
			t.Fatal(err)
		}
		var whole []byte
		for i := range got {
			whole = append(append(append(whole, got[i].Raw...), got[i].contents...), got[i].padding...)
			got[i].Raw = nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v; want %+v", got, want)
		}
		if !bytes.Equal(whole, payload) {
			t.Errorf("%q together; want %q", whole, payload)
		}
	}
	half, err := all(NewArchive(bytes.NewReader(payload), h, nil), true)
	if err != nil || len(half) != len(want) {
		t.Fatalf("%d members, %v", len(half), err)
	}
	for i := range half {
		if half[i].Name != want[i].Name || half[i].contents != want[i].contents[:want[i].Size/2] {
			t.Errorf("%+v; want the half of %+v", half[i], want[i])
		}
	}
}

// TestResized gives members contents of another size, which is at 54.
func TestResized(t *testing.T) {
	named := string(rpmtest.Newc("a", 0x1f, 0o100755, 1, "x"))
	for _, tt := range []struct {
		before string
		size   int64
		want   string
	}{
		{named, 13, named[:54] + "0000000d" + named[62:112]},
		{named, 1 << 32, "the payload cannot express a size of 4294967296 bytes"},
		{"070702" + named[6:], 13, "a has a sum of bytes, which is not supported; build the package anew"},
		{string(rpmtest.Stripped(0, "One")), 1 << 40, string(rpmtest.Stripped(0, ""))},
	} {
		m, err := NewArchive(strings.NewReader(tt.before), headerOf(t, rpmtest.Tags()...), nil).Next()
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Resized(tt.size)
		if err != nil {
			got = []byte(err.Error())
		}
		if string(got) != tt.want {
			t.Errorf("%q; want %q", got, tt.want)
		}
	}
}

// TestArchiveErrors has payloads with one thing wrong.
func TestArchiveErrors(t *testing.T) {
	ok := rpmtest.Payload()
	for _, tt := range []struct {
		name    string
		payload string
		tags    []rpmtest.Tag
		off     int64
		want    string
	}{
		{"nothing", "", rpmtest.Tags(), 0, "payload at offset 0x0, decompressed: unexpected EOF"},
		{"no cpio", "text that is none", rpmtest.Tags(), 0, `no member of a cpio archive: it begins with "text t"`},
		{"no end", string(ok[:0x60]), rpmtest.Tags(), 0x60, "payload at offset 0x60, decompressed: unexpected EOF"},
		{"a number that is no member's", string(rpmtest.Stripped(6, "")), rpmtest.Tags(), 0,
			`member "00000006" of a package with 6 files`},
		{"a number that is none", "07070X0000000g\x00\x00", rpmtest.Tags(), 0,
			`member "0000000g" of a package with 6 files`},
		{"a number without padding", "07070X00000000\x00", rpmtest.Tags(), 15, "unexpected EOF"},
		{"a size of 2^63", string(ok), rpmtest.With(TagLongFileSizes, []uint64{1 << 63, 0, 0, 0, 0, 0}), 0,
			"file 0 has 9223372036854775808 bytes; at most 4611686018427387904 are supported"},
		{"a size of 2^62", string(ok), rpmtest.With(TagLongFileSizes, []uint64{1 << 62, 0, 0, 0, 0, 0}), int64(len(ok)),
			"unexpected EOF"},
		{"a name of 4 GiB", "070701" + strings.Repeat("ffffffff", 13), rpmtest.Tags(), 0,
			"a name of 4294967295 bytes; 1 to 4096 are supported"},
		{"a name of nothing", "070701" + strings.Repeat("00000000", 13), rpmtest.Tags(), 0,
			"a name of 0 bytes; 1 to 4096 are supported"},
		{"a name of 4097 bytes", string(rpmtest.Newc(strings.Repeat("n", 4096), 1, 0o100644, 1, "")), rpmtest.Tags(), 0,
			"a name of 4097 bytes; 1 to 4096 are supported"},
		{"half a name", string(rpmtest.Newc("name", 1, 0o100644, 1, "")[:112]), rpmtest.Tags(), 112, "unexpected EOF"},
		{"a name without padding", string(rpmtest.Newc("na", 1, 0o100644, 1, "")[:114]), rpmtest.Tags(), 114,
			"unexpected EOF"},
		{"half a header", string(rpmtest.Newc("name", 1, 0o100644, 1, "")[:100]), rpmtest.Tags(), 100,
			"unexpected EOF"},
		{"a number with a sign", "070701+0000000" + strings.Repeat("0", 96), rpmtest.Tags(), 0,
			`field 0 of a member is "+0000000", not 8 hexadecimal digits`},
		{"half of the contents", string(rpmtest.Newc("./a", 1, 0o100755, 1, strings.Repeat("x", 100))[:150]),
			rpmtest.Tags(), 150, "unexpected EOF"},
		{"more than half of the contents", string(rpmtest.Newc("./a", 1, 0o100755, 1, strings.Repeat("x", 100))[:200]),
			rpmtest.Tags(), 200, "unexpected EOF"},
		{"contents without padding", string(rpmtest.Newc("./a", 1, 0o100755, 1, "x")[:117]), rpmtest.Tags(), 117,
			"unexpected EOF"},
	} {
		for _, half := range []bool{false, true} {
			h := headerOf(t, tt.tags...)
			_, err := all(NewArchive(strings.NewReader(tt.payload), h, nil), half)
			expect(t, tt.name, err, h.End(), tt.off, tt.want)
		}
	}
	longest := append(rpmtest.Newc(strings.Repeat("n", 4095), 1, 0o100644, 1, ""), rpmtest.Trailer()...)
	if got, err := all(NewArchive(bytes.NewReader(longest), headerOf(t), nil), false); err != nil || len(got) != 2 ||
		len(got[0].Name) != 4095 {
		t.Errorf("a name of 4096 bytes: %v", err)
	}
	_, err := all(NewArchive(bytes.NewReader(ok), headerOf(t, rpmtest.With(TagFileModes, []uint16{1})...), nil), false)
	expect(t, "a header of other files", err, mainOff, -1, "tag 1030 has 1 values")
	broken := errors.New("no disk")
	h := headerOf(t)
	_, err = all(NewArchive(io.MultiReader(bytes.NewReader(ok[:3]), iotest.ErrReader(broken)), h, nil), false)
	if !errors.Is(err, broken) {
		t.Errorf("%v; want %v", err, broken)
	}
	expect(t, "a disk", err, h.End(), 3, "payload at offset 0x3, decompressed: no disk")
}

// FuzzPackage reads anything: an error of this package, or members that together are what was read.
func FuzzPackage(f *testing.F) {
	f.Add(rpmtest.Package(rpmtest.Payload(), rpmtest.Tags()...))
	f.Add(rpmtest.Package(append(rpmtest.Newc("./a", 1, 0o100755, 2, "12345"), rpmtest.Trailer()...),
		rpmtest.Tags()...))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, h, err := headers(b)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Error(err)
			}
			return
		}
		got, err := all(NewArchive(bytes.NewReader(b[h.End():]), h, nil), false)
		if err != nil && !errors.As(err, &e) {
			t.Error(err)
		}
		var whole []byte
		for i := range got {
			whole = append(append(append(whole, got[i].Raw...), got[i].contents...), got[i].padding...)
		}
		if !bytes.HasPrefix(b[h.End():], whole) {
			t.Errorf("%q together; want %q", whole, b[h.End():])
		}
	})
}
