package repack

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha3"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/rpm"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

var errDevice = errors.New("the device has failed")

// A readerAt reads by a function.
type readerAt func(p []byte, off int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// A filling writer has room for so many bytes.
type filling struct{ room int }

func (w *filling) Write(p []byte) (int, error) {
	if len(p) > w.room {
		return w.room, errDevice
	}
	w.room -= len(p)
	return len(p), nil
}

// A cancelling writer ends a context with the first byte.
type cancelling struct{ cancel context.CancelFunc }

func (w cancelling) Write(p []byte) (int, error) {
	w.cancel()
	return len(p), nil
}

// packages returns one of each kind, not compressed and compressed, in which something is to be converted.
func packages(t testing.TB) map[string][]byte {
	t.Helper()
	program := testfile.Read(t, fixtures+"/plt")
	sums := md5Of(program) + "  usr/bin/plt\n"
	return map[string][]byte{
		"deb": plain(t),
		"deb, gzip": made("debian-binary", "2.0\n", "control.tar.gz",
			string(compressedBy(t, "gzip", "-n", []byte(tarOf(t, "md5sums", sums)))),
			"data.tar.gz", string(compressedBy(t, "gzip", "-n", []byte(tarOf(t, "usr/bin/plt", string(program))))),
			"_extra", "odd"),
		"rpm":       testfile.Read(t, "testdata/none.rpm"),
		"rpm, gzip": testfile.Read(t, "testdata/gzip.rpm"),
	}
}

// TestReadFails has packages that cannot be read: at each place, and at each time. The error is that of the device, not
// one of the package.
func TestReadFails(t *testing.T) {
	for name, b := range packages(t) {
		for at := 0; at < len(b); at += 1 + len(b)/100 {
			in := readerAt(func(p []byte, off int64) (int, error) {
				if off+int64(len(p)) > int64(at) && off < int64(len(b)) {
					return 0, errDevice
				}
				return bytes.NewReader(b).ReadAt(p, off)
			})
			var out bytes.Buffer
			if _, err := Convert(t.Context(), in, int64(len(b)), &out, Options{}); !errors.Is(err, errDevice) ||
				out.Len() > 0 {
				t.Errorf("%s: at %#x: %v, %d bytes written", name, at, err, out.Len())
			}
		}
		for most, done := 0, false; !done; most++ {
			n := 0
			in := readerAt(func(p []byte, off int64) (int, error) {
				if n++; n > most {
					return 0, errDevice
				}
				return bytes.NewReader(b).ReadAt(p, off)
			})
			_, err := Convert(t.Context(), in, int64(len(b)), io.Discard, Options{})
			if done = n <= most; done != (err == nil) || !done && !errors.Is(err, errDevice) {
				t.Errorf("%s: read %d: %v", name, most, err)
			}
		}
	}
}

// TestEndsAnywhere ends the context at each time at which the package is read, before a file is converted, and when the
// first byte is written.
func TestEndsAnywhere(t *testing.T) {
	for name, b := range packages(t) {
		for at, done := 1, false; !done; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			in := readerAt(func(p []byte, off int64) (int, error) {
				if n++; n == at {
					cancel()
				}
				return bytes.NewReader(b).ReadAt(p, off)
			})
			_, err := Convert(ctx, in, int64(len(b)), io.Discard, Options{})
			if done = n < at; done != (err == nil) || !done && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: read %d: %v", name, at, err)
			}
			cancel()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		opt := Options{Options: convert.Options{Starting: func(convert.Work) { cancel() }}}
		if _, err := Convert(ctx, bytes.NewReader(b), int64(len(b)), &out, opt); !errors.Is(err, context.Canceled) ||
			out.Len() > 0 {
			t.Errorf("%s: while a file is converted: %v, %d bytes written", name, err, out.Len())
		}
		ctx, cancel = context.WithCancel(t.Context())
		if res, err := Convert(ctx, bytes.NewReader(b), int64(len(b)), cancelling{cancel}, Options{}); !errors.Is(err,
			context.Canceled) || res != nil {
			t.Errorf("%s: while it is written: %v", name, err)
		}
	}
}

// TestWriteFails has no room for the result, for an archive, and for the temporary file.
func TestWriteFails(t *testing.T) {
	for name, b := range packages(t) {
		out, _ := repacked(t, b, Options{})
		for room := 0; room < len(out); room += 1 + len(out)/50 {
			if res, err := Convert(t.Context(), bytes.NewReader(b), int64(len(b)), &filling{room},
				Options{}); !errors.Is(err, errDevice) || res != nil {
				t.Errorf("%s: room for %d bytes: %v", name, room, err)
			}
		}
	}
	none := t.TempDir() + "/none"
	t.Setenv("TMPDIR", none)
	for _, b := range packages(t) {
		refused(t, b, "cannot write to "+none+": no such file or directory")
	}
}

// described returns the work on a package whose headers are read.
func described(t testing.TB, b []byte) *rpmPackage {
	t.Helper()
	headers, err := rpm.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	m := &rpmPackage{packer: &packer{ctx: t.Context(), src: literal(b)}, Package: headers}
	if err := m.describe(); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestShrinks has a package that becomes shorter while it is worked on.
func TestShrinks(t *testing.T) {
	b := made("debian-binary", "2.0\n", "control.tar", tarOf(t), "data.tar", tarOf(t), "last", strings.Repeat("x", 100))
	if _, err := Convert(t.Context(), bytes.NewReader(b[:len(b)-50]), int64(len(b)), io.Discard,
		Options{}); err == nil || !strings.Contains(err.Error(), "the file ends early") {
		t.Errorf("%v; it ends early", err)
	}
}

// TestDryRun says of each file what becomes of it, and writes nothing.
func TestDryRun(t *testing.T) {
	for name, b := range packages(t) {
		_, want := repacked(t, b, Options{})
		out, res := repacked(t, b, Options{Options: convert.Options{DryRun: true}})
		if len(out) > 0 || len(res.Files) != len(want.Files) || res.Others != want.Others || res.Read != int64(len(b)) {
			t.Fatalf("%s: %d bytes written, %+v; want %+v", name, len(out), res, want)
		}
		for i, f := range res.Files {
			if w := want.Files[i]; f.Name != w.Name || f.Before != w.Before || f.Result.Stays != w.Result.Stays {
				t.Errorf("%s: %+v; want %+v", name, f, w)
			}
		}
	}
}

// TestRPMCoverage has a program with too little coverage instead of larger ones.
func TestRPMCoverage(t *testing.T) {
	program, little := testfile.Read(t, fixtures+"/plt"), testfile.Read(t, fixtures+"/drap1")
	b := unsummed(t)
	little = append(little, make([]byte, len(program)-len(little))...)
	b = bytes.ReplaceAll(b, program, little)
	b = bytes.ReplaceAll(b, fmt.Appendf(nil, "%x", sha256.Sum256(program)),
		fmt.Appendf(nil, "%x", sha256.Sum256(little)))
	repacked(t, b, Options{})
	var out bytes.Buffer
	for _, dry := range []bool{false, true} {
		opt := Options{Options: convert.Options{Version: sframe.V2, MinCoverage: 100, DryRun: dry}}
		res, err := Convert(t.Context(), bytes.NewReader(b), int64(len(b)), &out, opt)
		if !errors.Is(err, convert.ErrCoverage) || !strings.Contains(err.Error(), "usr/bin/plt") || res == nil ||
			len(res.Files) == 0 || out.Len() > 0 {
			t.Errorf("%v, %+v, %d bytes", err, res, out.Len())
		}
	}
}

// TestStarting is told how large each file and its call frame information are, as debug/elf has it.
func TestStarting(t *testing.T) {
	program := testfile.Read(t, fixtures+"/plt")
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	want := convert.Work{Size: uint64(len(program)), CFI: f.Section(".eh_frame").Size}
	var got []convert.Work
	repacked(t, plain(t), Options{Options: convert.Options{DryRun: true,
		Starting: func(w convert.Work) { got = append(got, w) }}})
	if !slices.Equal(got, []convert.Work{want}) {
		t.Errorf("%+v; want %+v", got, want)
	}
}

// TestText has words for each of the reasons that docs/packages.md names.
func TestText(t *testing.T) {
	docs := string(testfile.Read(t, "../../docs/packages.md"))
	for reason := range texts {
		if Text(reason) == "" || !strings.Contains(docs, "`"+string(reason)+"`") {
			t.Errorf("%q: %q", reason, Text(reason))
		}
	}
	for _, reason := range []convert.Reason{"no-cfi", "no-code", "32-bit", "machine", "no-room", "debug-only",
		"current"} {
		if got := Text(reason); got == "" || got != reason.Text() {
			t.Errorf("%q: %q", reason, got)
		}
	}
}

// TestLongLinks has hard links to names that take a header of their own, in both forms: md5sums also has them.
func TestLongLinks(t *testing.T) {
	program := testfile.Read(t, fixtures+"/plt")
	was, done := md5Of(program), md5Of(converted(t, program))
	for _, format := range []tar.Format{tar.FormatGNU, tar.FormatPAX} {
		file, link := regular(long, string(program)), linked(tar.TypeLink, "b", long)
		file.Format, link.Format = format, format
		b := made("debian-binary", "2.0\n", "control.tar", tarOf(t, "md5sums", was+"  "+long+"\n"+was+"  b\n"),
			"data.tar", tarWith(t, file, link))
		out, _ := repacked(t, b, Options{})
		if want := done + "  " + long + "\n" + done + "  b\n"; !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %q is not there", format, want)
		}
	}
}

// TestTarLimits has archives that end within something.
func TestTarLimits(t *testing.T) {
	file := tarOf(t, "a", strings.Repeat("x", tarBlock))
	large := []byte(file[:tarBlock])
	copy(sizeField(large), "\x80\x00\x00\x00\x00\x00\x00\x20\x00\x00\x00\x00")
	putSum(large)
	for _, test := range []struct{ in, want string }{
		{string(large), "tar archive at offset 0x200: a: unexpected EOF"},
		{file[:tarBlock+100], "tar archive at offset 0x200: a: unexpected EOF"},
	} {
		if err := edit(io.Discard, []byte(test.in), nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v; want %q", err, test.want)
		}
	}
}

// TestNumbers has numbers that are too large for their fields, and a checksum in the form of GNU's large numbers.
func TestNumbers(t *testing.T) {
	file := []byte(tarOf(t, "a", "text"))
	raw := sizeField(bytes.Clone(file[:tarBlock]))
	if !putNumber(raw, 1<<33-1) || string(raw[:11]) != "77777777777" {
		t.Errorf("%q", raw)
	}
	if putNumber(raw, 1<<33) {
		t.Error("8 GiB fit")
	}
	e := &tarEntry{Header: &tar.Header{Size: 4}, name: "a", off: tarBlock}
	large := io.NewSectionReader(bytes.NewReader(nil), 0, 1<<33)
	if err := e.replace(&changes{of: literal(file)}, large); err == nil ||
		err.Error() != "the header of a cannot express a size of 8589934592 bytes" {
		t.Errorf("%v", err)
	}
	// The sum takes the place of the spaces that are counted for it.
	number := func(b []byte) uint64 {
		n, err := strconv.ParseUint(strings.Trim(string(sumField(b)), " \x00"), 8, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	sum := number(file)
	copy(sumField(file), binary.BigEndian.AppendUint64(nil, sum|1<<63))
	putSum(file[:tarBlock])
	if got := binary.BigEndian.Uint64(sumField(file)); got != sum|1<<63 {
		t.Errorf("checksum %#x; want %#x", got, sum|1<<63)
	}
}

// TestDamagedParts has parts of packages that end early, are not compressed as they say, or whose stream has another
// sum.
func TestDamagedParts(t *testing.T) {
	program := string(testfile.Read(t, fixtures+"/plt"))
	file, empty := tarOf(t, "usr/bin/plt", program), tarOf(t)
	pkg := func(control, data string) []byte {
		return made("debian-binary", "2.0\n", "control.tar", control, "data.tar", data)
	}
	dataAt := len(made("debian-binary", "2.0\n", "control.tar", empty)) + 60
	for _, test := range []struct {
		in   []byte
		want string
	}{
		{pkg(empty, file[:tarBlock+10]),
			fmt.Sprintf("deb package at offset %#x: data.tar: tar archive at offset 0x200: usr/bin/plt: unexpected EOF",
				dataAt)},
		{pkg(empty, file[:tarBlock+3000]), "data.tar: tar archive at offset 0x200: usr/bin/plt: unexpected EOF"},
		{pkg(tarOf(t, "conffiles", "/etc/a\n")[:tarBlock+3], file),
			"deb package at offset 0x84: control.tar: tar archive at offset 0x200: conffiles: unexpected EOF"},
		{made("debian-binary", "2.0\n")[:60/2], "archive at offset 0x8: 22 bytes are left"},
	} {
		refused(t, test.in, test.want)
	}
	z := compressedBy(t, "gzip", "-n", []byte(file))
	z[len(z)-8] ^= 1 // RFC 1952: CRC-32, and size
	refused(t, made("debian-binary", "2.0\n", "control.tar", empty, "data.tar.gz", string(z)),
		"data.tar.gz: at offset ")
	b := unsummedOf(t, "gzip")
	b[len(b)-8] ^= 1
	_, _, payload := headersOf(b)
	refused(t, b, fmt.Sprintf("RPM package at offset %#x: payload: at offset ", len(b)-len(payload)))
}

// TestRPMHeaders has headers that cannot be believed. Types and tags are those of rpm's manual.
func TestRPMHeaders(t *testing.T) {
	const typeInt32, typeString, typeBin = 4, 6, 7
	in := unsummed(t)
	sigAt := 96
	_, main, payload := headersOf(in)
	mainAt := len(in) - len(main) - len(payload)
	// entry changes four bytes of a tag's entry in the header that begins at an offset.
	entry := func(b []byte, header int, tag uint32, at int, value uint32) []byte {
		b = slices.Clone(b)
		for i := header + 16; ; i += 16 {
			if binary.BigEndian.Uint32(b[i:]) == tag {
				binary.BigEndian.PutUint32(b[i+at:], value)
				return b
			}
		}
	}
	changed := func(b []byte, at int, value string) []byte {
		b = slices.Clone(b)
		copy(b[at:], value)
		return b
	}
	whole := testfile.Read(t, "testdata/none.rpm")
	// tagged returns where the value of a tag begins.
	tagged := func(b []byte, tag uint32) int {
		_, main, payload := headersOf(b)
		return len(b) - len(payload) - len(contentsOf(t, main, tag))
	}
	for name, test := range map[string]struct {
		in   []byte
		want string
	}{
		"payload format": {entry(in, mainAt, 1124, 4, typeBin),
			fmt.Sprintf("RPM package at offset %#x: tag 1124 has type 7, and ", mainAt)},
		"digests":          {entry(in, mainAt, 1035, 4, typeBin), "tag 1035 has type 7, and "},
		"digest algorithm": {entry(in, mainAt, 5011, 4, typeBin), "tag 5011 has type 7, and "},
		"type of SHA-1": {entry(whole, sigAt, 269, 4, typeInt32),
			fmt.Sprintf("RPM package at offset %#x: tag 269 has type 4, and ", sigAt)},
		"short MD5":   {entry(whole, sigAt, 1004, 12, 15), "tag 1004 has 15 bytes, not 16"},
		"type of MD5": {entry(whole, sigAt, 1004, 4, typeInt32), "tag 1004 has type 4, and "},
		"plain sum":   {changed(in, tagged(in, 5097), "\x00"), "tag 5097 cannot hold a string of 64 bytes"},
		"size of all": {changed(in, tagged(in, 1009), "\xff\xff\xff\xff"),
			"tag 1009 has 1 values of 4 bytes, and cannot hold "},
		"magic number": {changed(in, len(in)-len(payload), "x"),
			fmt.Sprintf("RPM package at offset %#x: payload at offset 0x0, decompressed: ", len(in)-len(payload))},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) { refused(t, test.in, test.want) })
	}
	// The sum of both alone.
	b := entry(entry(entry(whole, sigAt, 269, 0, 20269), sigAt, 273, 0, 20273), mainAt, 5092, 0, 25092)
	refused(t, b, "but tag 1004 has ")
	// Other sums of files, by their numbers in OpenPGP (RFC 9580): SHA3-256 has as many digits as those that are there.
	files, _ := extracted(t, payload, "")
	b = changed(in, tagged(in, 5011), "\x00\x00\x00\x0c")
	for _, f := range files {
		b = bytes.ReplaceAll(b, fmt.Appendf(nil, "%x", sha256.Sum256([]byte(f))),
			fmt.Appendf(nil, "%x", sha3.Sum256([]byte(f))))
	}
	out, _ := repacked(t, b, Options{})
	_, main, payload = headersOf(out)
	is, _ := extracted(t, payload, "")
	for name, f := range is {
		if strings.HasPrefix(f, elf.ELFMAG) && !bytes.Contains(main, fmt.Appendf(nil, "%x", sha3.Sum256([]byte(f)))) {
			t.Errorf("%s: the header does not have its SHA3-256", name)
		}
	}
	err := tried(t, changed(in, tagged(in, 5011), "\x00\x00\x00\x0e"))
	if err == nil || !slices.ContainsFunc(slices.Collect(maps.Values(files)), func(f string) bool {
		return strings.Contains(err.Error(), fmt.Sprintf("but the sum of the file is %x", sha3.Sum512([]byte(f))))
	}) {
		t.Errorf("%v; want a SHA3-512", err)
	}
	// The other name of a program has another sum.
	m := described(t, in)
	file := slices.Index(m.names, "usr/bin/plt")
	linked := m.files.Linked(file)
	if len(linked) != 2 {
		t.Fatalf("%d names; want 2", len(linked))
	}
	for _, i := range linked {
		m := described(t, in)
		copy(m.digests[i], strings.Repeat("0", 64))
		b := slices.Concat(in[:mainAt], m.Main.Raw, in[mainAt+len(main):])
		if err := tried(t, b); err == nil || !strings.Contains(err.Error(), "but the sum of the file is ") {
			t.Errorf("%s with another sum: %v", m.names[i], err)
		}
	}
}
