package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/rpm"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/rpmtest"
)

// failing expects an error with a text.
func failing(t *testing.T, name string, b []byte, want string) {
	t.Helper()
	_, err := contents(write(t, filepath.Join(t.TempDir(), "p"), b))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v; want %q", name, err, want)
	}
}

// debOf is a package whose files are in a tar.
func debOf(data string, b []byte) []byte {
	return elftest.Ar(elftest.ArMember("debian-binary", []byte("2.0\n")), elftest.ArMember("control.tar.gz", nil),
		elftest.ArMember(data, b))
}

func TestErrors(t *testing.T) {
	plain := tarOf(t, regular("usr/bin/a", strings.Repeat("a", 600)), regular("b", "b"))
	header := bytes.Clone(plain)
	header[512+1024+1]++ // in the header of b, after that of a and 600 bytes
	multi := bytes.Clone(plain)
	multi[156] = 'M'
	fix(multi)
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"no package", []byte("text"), "neither a package (.deb, .rpm or a tar) nor an image"},
		{"no file", nil, "neither a package"},
		{"a package without data", elftest.Ar(elftest.ArMember("debian-binary", []byte("2.0\n"))),
			"at offset 0x48: no member data.tar"},
		{"a package of another version", elftest.Ar(elftest.ArMember("debian-binary", []byte("3.0\n"))),
			`at offset 0x44, in or after debian-binary: unsupported version "3.0\n" of the format; 2.0 is supported`},
		{"a package cut off", debOf("data.tar", plain)[:2000],
			`archive at offset 0x84: member of size "3584" does not fit the archive of 2000 bytes`},
		{"a package of something else", debOf("data.tar.lz", []byte("LZIP\x01 and so on")),
			"data.tar.lz: at offset 0x"},
		{"a wrong checksum", header, "at offset 0x800, in or after usr/bin/a: archive/tar: invalid tar header"},
		{"a wrong checksum in a package", debOf("data.tar", header),
			"data.tar: at offset 0x800, in or after usr/bin/a: archive/tar: invalid tar header"},
		{"a wrong checksum in a compressed package", debOf("data.tar.gz", gzipped9(header)),
			"data.tar.gz: at offset 0x800 of the unpacked data, in or after usr/bin/a: "},
		{"a file cut off", plain[:900], "at offset 0x384, in or after usr/bin/a: unexpected EOF"},
		{"a file cut off before it begins", tarOf(t, regular("a", "a"))[:512],
			"at offset 0x200, in or after a: unexpected EOF"},
		{"a description cut off", tarOf(t, regular("index.json", "{"+strings.Repeat(" ", 600)))[:900],
			"at offset 0x384, in or after index.json: unexpected EOF"},
		{"a header cut off", plain[:1700], "at offset 0x6a4, in or after usr/bin/a: unexpected EOF"},
		{"a part of several volumes", multi, `in or after usr/bin/a: unsupported type 'M' of a member`},
		{"a file that is the root", tarOf(t, regular("a", "a"), regular("b/..", "b")), "a file without a name"},
		{"a link to what is not there", tarOf(t, regular("b", "b"), linked(tar.TypeLink, "a", "c")),
			"the hard link a leads to c, which is not before it"},
		{"a link to what comes later", tarOf(t, linked(tar.TypeLink, "a", "b"), regular("b", "b")),
			"the hard link a leads to b, which is not before it"},
		{"a name of 5000 bytes", tarOf(t, regular(strings.Repeat("n", 5000), "")),
			"a name of 5000 bytes; at most 4096 are accepted"},
		{"a link of 5000 bytes", tarOf(t, linked(tar.TypeSymlink, "a", strings.Repeat("n", 5000))),
			"a name of 5000 bytes; at most 4096 are accepted"},
	} {
		failing(t, tt.name, tt.b, tt.want)
	}
}

// fix makes the checksum of a tar's first header right.
func fix(b []byte) {
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b[:blockSize] {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// TestIs has what is no package.
func TestIs(t *testing.T) {
	dir := t.TempDir()
	plain := tarOf(t, regular("a", "a"))
	for name, b := range map[string][]byte{
		"empty": nil, "text": []byte("text"), "ELF": []byte("\x7fELF\x02\x01\x01"),
		"gzip of text": gzipped9([]byte("text")),
		"archive":      elftest.Ar(elftest.ArMember("one.o/", []byte("debian-binary"))), "zeros": make([]byte, 10240),
		"gzip of zeros": gzipped9(make([]byte, 10240)), "gzip cut off": gzipped9(plain)[:20],
		"half a header":      plain[:300],
		"archive of nothing": elftest.Ar(), "half of a member's name": []byte(elftest.ArMagic + debFirst[:8]),
		"a block of text": bytes.Repeat([]byte("text"), 128),
		"xz header only":  []byte("\xfd7zXZ\x00\x00\x04"), "zstd header only": []byte("\x28\xb5\x2f\xfd"),
		"bzip2 header only": []byte("BZh91AY&SY"),
	} {
		if is, err := Is(write(t, filepath.Join(dir, name), b)); is || err != nil {
			t.Errorf("%s: %v, %v; it is none", name, is, err)
		}
	}
	for _, b := range [][]byte{plain[:512], gzipped9(plain), debOf("data.tar", nil), []byte(rpm.Magic)} {
		if is, err := Is(write(t, filepath.Join(dir, "x"), b)); !is || err != nil {
			t.Errorf("%.20q: %v, %v; it is one", b, is, err)
		}
	}
	run(t, dir, "mkfifo", "pipe")
	for _, name := range []string{"pipe", "", "missing"} {
		name = filepath.Join(dir, name)
		if is, err := Is(name); is || err == nil {
			t.Errorf("%q: %v, %v; want an error", name, is, err)
		}
		if _, err := contents(name); err == nil {
			t.Errorf("%q: an error was expected", name)
		}
	}
}

// A brokenDisk gives nothing.
type brokenDisk struct{}

var errDisk = errors.New("input/output error")

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

// TestBrokenDisk expects that a file that cannot be read is not taken for one that is no package.
func TestBrokenDisk(t *testing.T) {
	if is, err := IsDeb(brokenDisk{}); is || err != errDisk {
		t.Errorf("%v, %v; want %v", is, err, errDisk)
	}
	if k, err := KindOf(brokenDisk{}, 1<<10); k != None || err != errDisk {
		t.Errorf("%v, %v; want %v", k, err, errDisk)
	}
}

// TestEmptyDisk expects the same of a file that ends before its size.
func TestEmptyDisk(t *testing.T) {
	if k, err := KindOf(strings.NewReader(""), 1<<10); k != None || err == nil ||
		!strings.Contains(err.Error(), "the file ends early") {
		t.Errorf("%v, %v", k, err)
	}
	if k, err := KindOf(strings.NewReader("text"), 4); k != None || err != nil {
		t.Errorf("%v, %v", k, err)
	}
}

// TestCutOff cuts compressed tars off anywhere, and changes a byte in them. Nothing of that may seem right, but where
// what is unpacked is the same.
func TestCutOff(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{"usr/bin/a": strings.Repeat("some text, ", 300), "b": "b"}
	write(t, filepath.Join(dir, "plain"), tarOf(t, regular("usr/bin/a", want["usr/bin/a"]), regular("b", "b")))
	for _, how := range []string{"gzip -n", "bzip2", "xz", "xz --check=crc32", "zstd --check"} {
		peer.Look(t, strings.Fields(how)[0])
		run(t, dir, "sh", "-c", how+" -c <plain >packed")
		b, err := os.ReadFile(filepath.Join(dir, "packed"))
		if err != nil {
			t.Fatal(err)
		}
		unharmed := 0
		for i := range b {
			name := write(t, filepath.Join(dir, "p"), debOf("data.tar.x", b[:i]))
			if _, err := contents(name); err == nil {
				t.Errorf("%s: %d bytes of %d are read without an error", how, i, len(b))
			}
			wrong := bytes.Clone(b)
			wrong[i] ^= 0x41
			name = write(t, filepath.Join(dir, "p"), debOf("data.tar.x", wrong))
			if got, err := contents(name); err == nil && !maps.Equal(got, want) {
				t.Errorf("%s: with byte %d of %d changed it is read without an error", how, i, len(b))
			} else if err == nil {
				unharmed++
			}
		}
		if unharmed > 10 {
			t.Errorf("%s: %d changes of a byte were not found", how, unharmed)
		}
	}
}

// limited leaves so much of a package's budget while a test runs.
func limited(t testing.TB, left uint64) {
	old := newBudget
	t.Cleanup(func() { newBudget = old })
	newBudget = func(int64) *elffile.Budget {
		b := elffile.NewBudget(0)
		for n := uint64(1 << 31); n > 0; n /= 2 {
			_ = b.Spend(1, n) // which leaves nothing
		}
		_ = b.Spend(-1, left)
		return b
	}
}

// TestLimits has packages. One part after the other is more than their budget.
func TestLimits(t *testing.T) {
	many := make([]tarMember, 100)
	for i := range many {
		many[i] = regular(fmt.Sprintf("%090d", i), "")
	}
	zeros := tarOf(t, regular("a", strings.Repeat("\x00", 1<<20)), regular("b", "b"))
	const more = "more work than its size justifies: 0 bytes of input; if it is sound, convert its parts one by one"
	limited(t, elffile.CostUnpacked<<19)
	failing(t, "a bomb", gzipped9(zeros), "of the unpacked data, in or after a: "+more)
	failing(t, "a bomb behind the end", gzipped9(append(tarOf(t, regular("b", "b")), make([]byte, 1<<20)...)), more)
	failing(t, "a bomb in a package", debOf("data.tar.gz", gzipped9(zeros)), "data.tar.gz: at offset 0x")
	dir := t.TempDir()
	if err := os.Truncate(write(t, filepath.Join(dir, "holes"), []byte("\x7fELF")), 1<<20); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "tar", "-S", "-cf", "holes.tar", "holes")
	holes, err := os.ReadFile(filepath.Join(dir, "holes.tar"))
	if err != nil {
		t.Fatal(err)
	}
	failing(t, "a bomb of holes", holes, "in or after holes: "+more)
	limited(t, elffile.CostUnpacked*520*100+99*elffile.CostEntry)
	failing(t, "more members", tarOf(t, many...), more)
	failing(t, "more members of an RPM", rpmtest.Package(bytes.Repeat(rpmtest.Newc("./a", 1, 0o100644, 1, ""), 200)),
		more)
	limited(t, elffile.CostUnpacked*520*100+100*elffile.CostEntry+99*90*costName)
	failing(t, "longer names", tarOf(t, many...), more)
	limited(t, elffile.CostUnpacked<<21)
	if _, err := contents(write(t, filepath.Join(t.TempDir(), "p"), gzipped9(zeros))); err != nil {
		t.Errorf("what is not more: %v", err)
	}
}

// TestMemory has a file of 128 MiB, which is not there, and one of zeros.
func TestMemory(t *testing.T) {
	const size = 128 << 20
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "a", Typeflag: tar.TypeReg, Size: size}); err != nil {
		t.Fatal(err)
	}
	announced := write(t, filepath.Join(t.TempDir(), "announced"), b.Bytes())
	dir := t.TempDir()
	if err := os.Truncate(write(t, filepath.Join(dir, "holes"), []byte("\x7fELF")), size); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "tar", "-S", "-cf", "holes.tar", "holes")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Each(t.Context(), announced, func(m *Member) error { _, err := m.Load(); return err }); err == nil ||
		!strings.Contains(err.Error(), "at offset 0x200, in or after a: unexpected EOF") {
		t.Errorf("a file without contents: %v", err)
	}
	n := 0
	_, err := Each(t.Context(), filepath.Join(dir, "holes.tar"), func(m *Member) error {
		n++
		c, err := m.Load()
		if err != nil {
			return err
		}
		defer c.Close()
		head, last := make([]byte, 4), make([]byte, 8)
		if _, err := c.ReadAt(head, 0); err != nil || string(head) != "\x7fELF" {
			return fmt.Errorf("it begins with %q, %v", head, err)
		}
		if k, err := c.ReadAt(last, size-4); k != 4 || err != io.EOF {
			return fmt.Errorf("%d bytes at the end, %v", k, err)
		}
		return nil
	})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || n != 1 || took > 8<<20 {
		t.Errorf("%d bytes were allocated, %v", took, err)
	}
}

// TestVisitor returns errors, and does not read all.
func TestVisitor(t *testing.T) {
	name := write(t, filepath.Join(t.TempDir(), "p"), tarOf(t, regular("a", strings.Repeat("a", 5000)),
		regular("b", "b")))
	own := errors.New("enough")
	if _, err := Each(t.Context(), name, func(*Member) error { return own }); err != own {
		t.Errorf("%v; want the error of the visitor", err)
	}
	files, err := Each(t.Context(), name, func(*Member) error { return nil })
	if err != nil || len(files) != 2 || files[0] != (File{"a", 0, nil}) || files[1] != (File{"b", 1, nil}) {
		t.Errorf("%v, %v", files, err)
	}
	if _, err := Each(t.Context(), write(t, name+".rpm",
		rpmtest.Package(append(rpmtest.Newc("./a", 1, 0o100644, 2, ""), rpmtest.Trailer()...))),
		func(*Member) error { return own }); err != own {
		t.Errorf("an empty file of two names: %v; want the error of the visitor", err)
	}
	// The error of the package has its place already.
	short := write(t, name+".cut", tarOf(t, regular("a", strings.Repeat("a", 5000)))[:2000])
	_, err = Each(t.Context(), short, func(m *Member) error {
		_, err := m.Load()
		return err
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != "at offset 0x7d0, in or after a: unexpected EOF" {
		t.Errorf("a file that is cut off: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Each(ctx, name, func(*Member) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want an end", err)
	}
}

// TestImageErrors has images with one thing wrong.
func TestImageErrors(t *testing.T) {
	layers := [][]byte{tarOf(t, regular("a", "a")), tarOf(t, regular("b", "b")), tarOf(t, regular("c", "c"))}
	blobs := func(l layout, typ string) (names []string) {
		for name, b := range l {
			if strings.Contains(string(b), typ) && strings.HasPrefix(name, blobDir) {
				names = append(names, name)
			}
		}
		return names
	}
	for _, tt := range []struct {
		name   string
		change func(l layout)
		want   string
	}{
		{"no index", func(l layout) { delete(l, indexFile) }, "manifest.json"},
		{"an index that is no JSON", func(l layout) { l[indexFile] = []byte("[1") },
			"index.json: unexpected end of JSON input"},
		{"an index of nothing", func(l layout) { l[indexFile] = []byte("{}") }, "no manifest describes an image"},
		{"a digest that leads out", func(l layout) {
			l[indexFile] = []byte(`{"manifests": [{"digest": "sha256:../../../../etc/passwd"}]}`)
		}, `digest "sha256:../../../../etc/passwd": not a sum of 32 bytes in hexadecimal digits`},
		{"a manifest that is not there",
			func(l layout) { delete(l, blobs(l, "diff_ids")[0]); delete(l, blobs(l, `"config":`)[0]) }, " is missing"},
		{"a manifest that is no JSON", func(l layout) {
			l[indexFile] = encoded(t, object{"manifests": []object{l.blob(ociType+"manifest.v1+json", []byte("{"))}})
		}, strings.Replace("blobs/"+digestOf([]byte("{")), ":", "/", 1) + ": unexpected end of JSON input"},
		{"a digest of MD5", func(l layout) {
			l[indexFile] = []byte(`{"manifests": [{"digest": "md5:00"}]}`)
		}, `digest "md5:00": unsupported algorithm`},
		{"a layer whose digest leads out", func(l layout) {
			b := bytes.Replace(l[blobs(l, `"config":`)[0]], []byte(digestOf(layers[2])), []byte("sha256:../x"), 1)
			l[indexFile] = encoded(t, object{"manifests": []object{l.blob(ociType+"manifest.v1+json", b)}})
		}, `: digest "sha256:../x": not a sum of 32 bytes in hexadecimal digits`},
		{"a manifest that is too large", func(l layout) {
			m := l.blob(ociType+"manifest.v1+json", append(bytes.Repeat([]byte(" "), maxText), "{}"...))
			l[indexFile] = encoded(t, object{"manifests": []object{m}})
		}, "; descriptions of images may have 4194304"},
		{"a list of Docker's that is none", func(l layout) { delete(l, indexFile); l[dockerFile] = []byte("{}") },
			"manifest.json: json: cannot unmarshal object"},
		{"a manifest of another digest", func(l layout) {
			name := blobs(l, `"config":`)[0]
			l[name] = append(l[name], ' ')
		}, "the digest is sha256:"},
		{"a layer that is not there", func(l layout) {
			delete(l, strings.Replace("blobs/"+digestOf(layers[2]), ":", "/",
				1))
		}, strings.Replace("blobs/"+digestOf(layers[2]), ":", "/", 1) + ": "},
		{"a layer of another digest", func(l layout) {
			l[strings.Replace("blobs/"+digestOf(layers[2]), ":", "/", 1)] = layers[1]
		}, "the digest is " + digestOf(layers[1]) + ", not " + digestOf(layers[2])},
		{"a layer that goes on", func(l layout) {
			name := strings.Replace("blobs/"+digestOf(layers[2]), ":", "/", 1)
			l[name] = append(bytes.Clone(l[name]), 0)
		}, ", not " + digestOf(layers[2])},
		{"a layer that does not unpack", func(l layout) {
			b := []byte("\x1f\x8b and so on")
			m := bytes.Replace(l[blobs(l, `"config":`)[0]], []byte(digestOf(layers[2])),
				[]byte(l.blob("", b)["digest"].(string)), 1)
			l[indexFile] = encoded(t, object{"manifests": []object{l.blob(ociType+"manifest.v1+json", m)}})
		}, strings.Replace("blobs/"+digestOf([]byte("\x1f\x8b and so on")), ":", "/",
			1) + ": at offset 0x0 of the unpacked data: gzip: "},
		{"a layer that is none", func(l layout) {
			l[strings.Replace("blobs/"+digestOf(layers[2]), ":", "/", 1)] = bytes.Repeat([]byte("text"), 200)
		}, "at offset 0x200: archive/tar: invalid tar header"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := make(layout)
			l.index(t, l.image(t, "amd64", layers...))
			tt.change(l)
			for form, name := range l.forms(t) {
				if _, err := contents(name); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v; want %q", form, err, tt.want)
				}
			}
		})
	}
}

// TestLoops has layers with symbolic links that lead in circles, up out of the root, and through ever more folders.
func TestLoops(t *testing.T) {
	for _, tt := range []struct {
		name    string
		members []tarMember
		want    string // of the error
	}{
		{"circle", []tarMember{linked(tar.TypeSymlink, "a", "b"), linked(tar.TypeSymlink, "b", "a"),
			regular("a/x", "x")}, "a/ leads through more than 255 symbolic links"},
		{"removed in a circle", []tarMember{linked(tar.TypeSymlink, "a", "a"), regular("a/.wh.x", "")},
			"a/ leads through more than 255 symbolic links"},
		{"a hard link into a circle", []tarMember{linked(tar.TypeSymlink, "a", "a"), linked(tar.TypeLink, "x", "a/x")},
			"a/ leads through more than 255 symbolic links"},
		{"a hard link to nothing", []tarMember{regular("b", "b"), linked(tar.TypeLink, "a", "d/c")},
			"the hard link a leads to d/c, which is in no layer so far"},
		{"a hard link to a folder", []tarMember{dir("d"), linked(tar.TypeLink, "a", "d")},
			"the hard link a leads to d, a directory"},
		{"itself", []tarMember{linked(tar.TypeSymlink, "a", "a/a"), regular("a/x", "x")},
			"a/ leads through more than 255 symbolic links"},
	} {
		l := make(layout)
		first := tt.members[:1] // what is removed is so from the layers below
		l.index(t, l.image(t, "amd64", tarOf(t, first...), tarOf(t, tt.members...)))
		if _, err := contents(l.folder(t)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
	// As many as are allowed, again and again.
	var again []tarMember
	again = append(again, linked(tar.TypeSymlink, "s", strings.Repeat("x/", 2000)), linked(tar.TypeSymlink, "s/r", "/"))
	for range 1000 {
		again = append(again, regular(strings.Repeat("s/r/", 120)+"f", "f"))
	}
	l := make(layout)
	l.index(t, l.image(t, "amd64", tarOf(t, again...)))
	if _, err := contents(l.folder(t)); err == nil ||
		!strings.Contains(err.Error(), "directories on the way to s/r/s") {
		t.Errorf("ways without end: %v", err)
	}
	l = make(layout)
	l.index(t, l.image(t, "amd64", tarOf(t, linked(tar.TypeSymlink, "a", "../../../etc"), regular("a/x", "x"),
		regular("../../y", "y"))))
	same(t, l.folder(t), map[string]string{"etc/x": "x", "y": "y"})
}

// TestNested has indexes in each other: as many as are accepted, more, and such that name the next one many times,
// which is read once.
func TestNested(t *testing.T) {
	nested := func(l layout, in object, depth, times int) {
		for range depth {
			all := make([]object, times)
			for i := range all {
				all[i] = in
			}
			in = l.blob(ociType+"index.v1+json", encoded(t, object{"manifests": all}))
		}
		l.index(t, in)
	}
	for _, times := range []int{1, 1000} {
		l := make(layout)
		nested(l, l.image(t, "amd64", tarOf(t, regular("a", "a"))), maxDepth, times)
		same(t, l.folder(t), map[string]string{"a": "a"})
		for depth, want := range map[int]string{maxDepth: "no manifest describes an image", maxDepth +
			1: ": more than 8 indexes in each other"} {
			l = make(layout)
			nested(l, l.blob(ociType+"manifest.v1+json", []byte("{}")), depth, times)
			if _, err := contents(l.folder(t)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d indexes, each %d times: %v; want %q", depth, times, err, want)
			}
		}
	}
}

// TestImageLimits has small images that are large once they are put together.
func TestImageLimits(t *testing.T) {
	layer := tarOf(t, regular("a", "a"), regular("b", "b"), regular("c", "c"))
	l := make(layout)
	l.index(t, l.image(t, "amd64", layer), l.image(t, "arm64", layer))
	same(t, l.folder(t), map[string]string{
		"linux/amd64!a": "a", "linux/amd64!b": "b", "linux/amd64!c": "c", "linux/arm64!a": "a", "linux/arm64!b": "b",
		"linux/arm64!c": "c",
	})
	const more = "more work than its size justifies"
	l = make(layout)
	var members []tarMember
	for i := range 1000 {
		members = append(members, linked(tar.TypeDir, fmt.Sprint(i), ""))
	}
	layer = tarOf(t, members...)
	var images []object
	for i := range 50 {
		images = append(images, l.image(t, fmt.Sprint(i), layer))
	}
	l.index(t, images...)
	limited(t, 30_000_000)
	if _, err := contents(l.folder(t)); err == nil || !strings.Contains(err.Error(), more) {
		t.Errorf("a layer of many images: %v", err)
	}
	l = make(layout)
	members = []tarMember{linked(tar.TypeSymlink, "s", strings.Repeat(strings.Repeat("x", 90)+"/", 40)+"y")}
	for i := range 12 {
		members = append(members, regular(fmt.Sprintf("s/%02d", i), ""))
	}
	l.index(t, l.image(t, "amd64", tarOf(t, members...)))
	same := tarOf(t, members...)
	limited(t, elffile.CostUnpacked*uint64(len(same)+1<<10)+13*(elffile.CostEntry+costNode)+4200*costName+1000*costStep+
		4000*costText)
	if _, err := contents(l.folder(t)); err == nil || !strings.Contains(err.Error(), more) {
		t.Errorf("names through a link: %v", err)
	}
}
