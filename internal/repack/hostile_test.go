package repack

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/rpm"
	"cfi2sframe/internal/testkit/testfile"
)

// made makes a package by hand, of members by their names and contents.
func made(members ...string) []byte {
	b := []byte(archive.Magic)
	for i := 0; i < len(members); i += 2 {
		b = fmt.Appendf(b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", members[i], 0, 0, 0, 0o100644, len(members[i+1]))
		b = append(b, members[i+1]...)
		if len(b)&1 != 0 {
			b = append(b, '\n')
		}
	}
	return b
}

// tarOf makes an archive of files by their names and contents.
func tarOf(t testing.TB, files ...string) string {
	t.Helper()
	var members []tarMember
	for i := 0; i < len(files); i += 2 {
		members = append(members, regular(files[i], files[i+1]))
	}
	return tarWith(t, members...)
}

// A tarMember is a member of an archive.
type tarMember struct {
	tar.Header
	contents string
}

func regular(name, contents string) tarMember {
	return tarMember{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(contents)), Mode: 0o755}, contents}
}

func linked(typ byte, name, to string) tarMember {
	return tarMember{tar.Header{Typeflag: typ, Name: name, Linkname: to}, ""}
}

// tarWith makes an archive of members of any type.
func tarWith(t testing.TB, members ...tarMember) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range members {
		err := w.WriteHeader(&members[i].Header)
		if err == nil {
			_, err = io.WriteString(w, members[i].contents)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// plain is a package that is not compressed.
func plain(t testing.TB) []byte {
	t.Helper()
	program := string(testfile.Read(t, fixtures+"/plt"))
	sums := md5Of([]byte(program)) + "  usr/bin/plt\n"
	return made("debian-binary", "2.0\n", "control.tar", tarOf(t, "./md5sums", sums), "data.tar",
		tarOf(t, "./usr/bin/plt", program))
}

// md5Of returns the sum of a file as md5sum prints it.
func md5Of(b []byte) string { return fmt.Sprintf("%x", md5.Sum(b)) }

// tried converts what may be anything, and returns what that says. Whatever it is, nothing else happens.
func tried(t testing.TB, b []byte) error {
	t.Helper()
	var out bytes.Buffer
	res, err := Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, Options{})
	if (err != nil) != (res == nil) || err != nil && out.Len() > 0 {
		t.Errorf("%v, %v, %d bytes written", err, res, out.Len())
	}
	if err != nil && err.Error() == "" {
		t.Error("an error without words")
	}
	return err
}

// TestHostile has packages that are not what they say.
func TestHostile(t *testing.T) {
	empty := tarOf(t)
	program := string(testfile.Read(t, fixtures+"/plt"))
	file := tarOf(t, "usr/bin/plt", program)
	// with returns an archive whose first header has another field, and the sum of that.
	with := func(archive string, at int, field string) string {
		b := []byte(archive)
		copy(b[at:], field)
		putSum(b[:tarBlock])
		return string(b)
	}
	pkg := func(data string) []byte {
		return made("debian-binary", "2.0\n", "control.tar", empty, "data.tar", data)
	}
	for name, test := range map[string]struct {
		in   []byte
		want string
	}{
		"nothing":        {nil, ErrKind.Error()},
		"text":           {[]byte("This is no package.\n"), ErrKind.Error()},
		"static library": {made("a.o/", "x"), ErrKind.Error()},
		"no members":     {[]byte(archive.Magic), ErrKind.Error()},
		"no control":     {made("debian-binary", "2.0\n", "data.tar", file), "the package has no member control.tar"},
		"no data":        {made("debian-binary", "2.0\n", "control.tar", empty), "no member data.tar"},
		"version": {made("debian-binary", "0.9\n", "control.tar", empty, "data.tar", file),
			`at offset 0x44, in or after debian-binary: unsupported version "0.9\n" of the format; 2.0 is supported`},
		"two data": {made("debian-binary", "2.0\n", "control.tar", empty, "data.tar", file, "data.tar.gz", ""),
			"a second data.tar; remove one"},
		"two controls": {made("debian-binary", "2.0\n", "control.tar", empty, "control.tar", empty, "data.tar",
			file), "a second control.tar; remove one"},
		"member too large": {bytes.Replace(made("debian-binary", "2.0\n"), []byte("4         `"), []byte("400       `"),
			1), "archive at offset 0x8: member of size \"400\" does not fit"},
		"member's size": {bytes.Replace(made("debian-binary", "2.0\n"), []byte("4         `"), []byte("-4        `"),
			1), "archive at offset 0x8: member of size \"-4\""},
		"wrong md5sums": {made("debian-binary", "2.0\n", "control.tar",
			tarOf(t, "md5sums", md5Of(nil)+"  usr/bin/plt\n"), "data.tar", file),
			"md5sums has d41d8cd98f00b204e9800998ecf8427e for usr/bin/plt, but the sum of the file is " + md5Of([]byte(program))},

		"no archive":      {pkg("This is no archive."), "data.tar: tar archive at offset 0x13: unexpected EOF"},
		"size of nothing": {pkg(with(file, 124, "77777777777")), "tar archive at offset"},
		"size of all": {pkg(with(file, 124, "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff")),
			"unexpected EOF"},
		"negative size": {pkg(with(file, 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")),
			"invalid tar header"},
		"size in words":     {pkg(with(file, 124, "many bytes ")), "invalid tar header"},
		"sum":               {pkg("x" + file[1:]), "invalid tar header"},
		"extended too long": {pkg(with(with(file, 156, "x"), 124, "00077777777")), "tar archive at offset 0x"},
		"records":           {pkg(with(file, 156, "x")), "invalid tar header"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) { refused(t, test.in, test.want) })
	}
	for _, record := range []string{"9 size=-5\n", "10 size=-5\n", "0 x=y\n", "99 x=y\n", "4 x\n"} {
		x := with(with(tarOf(t, "x", record)[:2*tarBlock], 156, "x"), 0, "pax")
		refused(t, pkg(x+file), "invalid tar header")
	}
}

// TestSigned leaves files that are signed.
func TestSigned(t *testing.T) {
	program := testfile.Read(t, fixtures+"/plt")
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for name, records := range map[string]map[string]string{"signed": {"SCHILY.xattr.security.ima": "\x03\x02"},
		"plain": nil} {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(program)), Mode: 0o755, PAXRecords: records,
			Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Write(program)
	}
	w.Close()
	_, res := repacked(t, made("debian-binary", "2.0\n", "control.tar", tarOf(t), "data.tar", data.String()), Options{})
	for _, f := range res.Files {
		if (f.Name == "signed") != (f.Result.Stays == Signed) {
			t.Errorf("%s: %q", f.Name, f.Result.Stays)
		}
	}
}

// TestSparse leaves files that are stored without their holes, in each way in which GNU tar does that.
func TestSparse(t *testing.T) {
	dir := t.TempDir()
	program := testfile.Read(t, fixtures+"/plt")
	f, err := os.Create(dir + "/prog")
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(40) { // more pieces than there is room for in one header
		if _, err := f.WriteAt(program, i<<20); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	for _, format := range []string{"gnu", "pax --sparse-version=0.0", "pax --sparse-version=0.1",
		"pax --sparse-version=1.0"} {
		data := run(t, "sh", "-c", `cd "$1" && tar -c --sparse --format=`+format+` prog`, "sh", dir)
		if len(data) > 40*(len(program)+1<<14) {
			t.Skip("the file system has no holes")
		}
		b := made("debian-binary", "2.0\n", "control.tar", tarOf(t), "data.tar", string(data))
		out, res := repacked(t, b, Options{})
		if !res.Same || !bytes.Equal(out, b) {
			t.Errorf("%s: it is not what it was: %+v", format, res)
		}
		if len(res.Files) != 1 || res.Files[0].Result.Stays != Sparse || res.Others != 0 {
			t.Errorf("%s: %+v; want one sparse file", format, res)
		}
	}
}

// TestSums has lists of sums and of configuration files that are odd, and names that come twice. What of md5sums is
// right before is right after.
func TestSums(t *testing.T) {
	program := testfile.Read(t, fixtures+"/plt")
	done, script := md5Of(converted(t, program)), "#!/bin/sh\n"
	was := md5Of(program)
	a := regular("./a", string(program))
	for name, test := range map[string]struct {
		data                     []tarMember
		conffiles, before, after string
		converted                int
	}{
		"link": {[]tarMember{a, linked(tar.TypeLink, "./b", "./a")}, "", was + "  a\n" + was + "  b\n",
			done + "  a\n" + done + "  b\n", 1},
		"link to link": {[]tarMember{a, linked(tar.TypeLink, "b", "a"), linked(tar.TypeLink, "c", "b")}, "",
			was + "  c\n", done + "  c\n", 1},
		"link to itself": {[]tarMember{a, linked(tar.TypeLink, "a", "a")}, "", was + "  a\n", done + "  a\n", 1},
		"file by link": {[]tarMember{a, regular("s", script), linked(tar.TypeLink, "a", "s")}, "",
			md5Of([]byte(script)) + "  a\n",
			md5Of([]byte(script)) + "  a\n", 1},
		"file by symbolic link": {[]tarMember{a, regular("s", script), linked(tar.TypeSymlink, "a", "s")}, "",
			md5Of([]byte(script)) + "  a\n",
			md5Of([]byte(script)) + "  a\n", 1},
		"file by file": {[]tarMember{a, regular("a", script)}, "", md5Of([]byte(script)) + "  a\n",
			md5Of([]byte(script)) + "  a\n", 1},
		"asterisk":       {[]tarMember{a}, "", was + " *a\n", done + " *a\n", 1},
		"space in front": {[]tarMember{regular(" a", string(program))}, "", was + "   a\n", done + "   a\n", 1},
		"conffile": {[]tarMember{a, regular("c d", string(program))}, "/c d \nremove-on-upgrade /a\n",
			was + "  a\n", was + "  a\n", 0},
		"odd conffiles":    {[]tarMember{a}, "\na\n \nflag\n", was + "  a\n", done + "  a\n", 1},
		"package in there": {[]tarMember{a, regular("x.deb", string(plain(t)))}, "", was + "  a\n", done + "  a\n", 1},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			b := made("debian-binary", "2.0\n", "control.tar", tarOf(t, "md5sums", test.before, "conffiles",
				test.conffiles), "data.tar", tarWith(t, test.data...))
			out, res := repacked(t, b, Options{})
			n, others := 0, 0
			for _, f := range res.Files {
				if f.Result.Stays == "" {
					n++
				}
			}
			for _, m := range test.data {
				if m.Typeflag == tar.TypeReg && m.contents != string(program) {
					others++
				}
			}
			if n != test.converted || res.Others != others || res.Same != (n == 0) {
				t.Errorf("%d converted, %d others; want %d and %d", n, res.Others, test.converted, others)
			}
			control := out[len(made("debian-binary", "2.0\n"))+60:]
			if got := untar(t, control[:len(tarOf(t, "md5sums", test.before, "conffiles",
				test.conffiles))])[0]; string(got.contents) != test.after {
				t.Errorf("md5sums\n%s; expected was\n%s", got.contents, test.after)
			}
		})
	}
}

// TestSumLists has a list of each kind of sum. One does not name the changed file. The test reads them by the
// programs that make such lists.
func TestSumLists(t *testing.T) {
	program := string(testfile.Read(t, fixtures+"/plt"))
	dir := t.TempDir()
	put(t, dir+"/a", []byte(program), 0o755)
	put(t, dir+"/s", []byte("#!/bin/sh\n"), 0o755)
	lists := []string{"md5sum", "sha1sum", "sha256sum", "sha512sum"}
	for i := range lists {
		var control []string
		for j, name := range lists {
			files := "a s"
			if i == j {
				files = "s"
			}
			control = append(control, name+"s", string(run(t, "sh", "-c", "cd "+dir+" && "+name+" "+files)))
		}
		b := made("debian-binary", "2.0\n", "control.tar", tarOf(t, control...), "data.tar",
			tarWith(t, regular("a", program), regular("s", "#!/bin/sh\n")))
		out, _ := repacked(t, b, Options{})
		to := t.TempDir()
		put(t, to+"/deb", out, 0o644)
		run(t, "dpkg-deb", "-R", to+"/deb", to+"/files")
		for _, name := range lists {
			run(t, "sh", "-c", "cd "+to+"/files && "+name+" --strict --quiet -c DEBIAN/"+name+"s")
		}
		if bytes.Equal(testfile.Read(t, to+"/files/a"), []byte(program)) {
			t.Error("nothing has changed")
		}
	}
	for i, name := range lists {
		control := tarOf(t, name+"s", strings.Repeat("0", []int{32, 40, 64, 128}[i])+"  a\n")
		refused(t, made("debian-binary", "2.0\n", "control.tar", control, "data.tar", tarOf(t, "a", program)),
			name+"s has 0")
	}
}

// TestSumForms has the lines that "md5sum -c" accepts, which says so before and after, and lines that it does not.
func TestSumForms(t *testing.T) {
	program := string(testfile.Read(t, fixtures+"/plt"))
	sum := md5Of([]byte(program))
	for name, lines := range map[string]string{
		"CRLF":    sum + "  a\r\n" + sum + "  s\r\n",
		"capital": strings.ToUpper(sum) + " *a\n",
		"comment": "# comment\n\n" + sum + "  a",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			data := tarOf(t, "a", program, "s", program)
			out, res := repacked(t, made("debian-binary", "2.0\n", "control.tar", tarOf(t, "md5sums", lines),
				"data.tar", data), Options{})
			if res.Same {
				t.Fatal("nothing has changed")
			}
			to := t.TempDir()
			for _, f := range []string{"a", "s"} {
				put(t, filepath.Join(to, f), []byte(program), 0o755)
			}
			put(t, to+"/sums", []byte(lines), 0o644)
			check := "cd " + to + " && LC_ALL=C md5sum --strict --quiet -c "
			run(t, "sh", "-c", check+"sums")
			put(t, to+"/deb", out, 0o644)
			run(t, "dpkg-deb", "-R", to+"/deb", to)
			run(t, "sh", "-c", check+"DEBIAN/md5sums")
		})
	}
	for name, line := range map[string]string{
		"no name": sum + "  ", "no sum": "a", "short sum": sum[1:] + "  a", "one space": sum + " a", "tab": sum + "\ta",
		"escaped": `\` + sum + `  a\\b`, "BSD": "MD5 (a) = " + sum,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			lines := sum + "  s\n" + line + "\n"
			refused(t, made("debian-binary", "2.0\n", "control.tar", tarOf(t, "md5sums", lines), "data.tar",
				tarOf(t, "a", program, "s", program)),
				"md5sums, line 2: ")
		})
	}
}

// TestConffileLink has a configuration file that is another name of a program, and the other way round.
func TestConffileLink(t *testing.T) {
	program := string(testfile.Read(t, fixtures+"/plt"))
	pkg := func(conffile string) []byte {
		return made("debian-binary", "2.0\n", "control.tar", tarOf(t, "conffiles", conffile), "data.tar",
			tarWith(t, regular("a", program), linked(tar.TypeLink, "b", "a"), linked(tar.TypeLink, "c", "b")))
	}
	refused(t, pkg("/b\n"), "the configuration file b is another name of a, which changes")
	refused(t, pkg("/c\n"), "the configuration file c is another name of b, which changes")
	if _, res := repacked(t, pkg("/a\n"), Options{}); !res.Same {
		t.Errorf("%+v", res.Files)
	}
}

// TestCompressorEnds has an xz that is killed, as for want of memory.
func TestCompressorEnds(t *testing.T) {
	dir, _ := tree(t)
	b := deb(t, dir, "xz")
	put(t, dir+"/xz", []byte("#!/bin/sh\nkill -9 $$\n"), 0o755)
	t.Setenv("PATH", dir)
	refused(t, b, dir+"/xz: signal: killed")
}

// TestTruncated ends packages early, in each of their compressions.
func TestTruncated(t *testing.T) {
	files := []string{"testdata/gzip.rpm", "testdata/xz.rpm", "testdata/zstd.rpm", "testdata/bzip2.rpm"}
	all := [][]byte{plain(t)}
	for _, f := range files {
		all = append(all, testfile.Read(t, f))
	}
	for i, b := range all {
		step := max(1, len(b)/40)
		for n := 0; n < len(b); n += step {
			if err := tried(t, b[:n]); err == nil {
				t.Errorf("package %d: nothing is said of one of %d bytes that ends after %d", i, len(b), n)
			}
		}
	}
}

// TestFlipped changes bytes: of the parts with sums that is said.
func TestFlipped(t *testing.T) {
	for _, name := range []string{"testdata/gzip.rpm", "testdata/xz.rpm", "testdata/zstd.rpm", "testdata/bzip2.rpm",
		"testdata/none.rpm"} {
		b := testfile.Read(t, name)
		for i := 0; i < len(b); i += 1 + len(b)/60 {
			c := slices.Clone(b)
			c[i] ^= 0x41
			_ = tried(t, c) // a header has no sum of its own that is read
		}
	}
	b := plain(t)
	for i := 0; i < len(b); i += 1 + len(b)/500 {
		c := slices.Clone(b)
		c[i] ^= 0x41
		_ = tried(t, c)
	}
}

// TestBombs has packages that say little, and would take much memory.
func TestBombs(t *testing.T) {
	program := string(testfile.Read(t, fixtures+"/plt"))
	file := []byte(tarOf(t, "usr/bin/plt", program))
	copy(sizeField(file), "17777777777") // 2 GiB - 1; the file has some KiB
	putSum(file[:tarBlock])
	huge := []byte(tarOf(t, "usr/bin/plt", program))
	copy(sizeField(huge), "70000000000")
	putSum(huge[:tarBlock])
	sums := []byte(tarOf(t, "md5sums", ""))
	copy(sizeField(sums), "07777777777")
	putSum(sums[:tarBlock])
	header := testfile.Read(t, "testdata/none.rpm")
	binary.BigEndian.PutUint32(header[rpm.LeadSize+12:], 0xfffffff)
	dictionary := compressedBy(t, "xz", "--lzma2=dict=1536MiB", file)
	for name, b := range map[string][]byte{
		"file":       made("debian-binary", "2.0\n", "control.tar", tarOf(t), "data.tar", string(file)),
		"huge file":  made("debian-binary", "2.0\n", "control.tar", tarOf(t), "data.tar", string(huge)),
		"md5sums":    made("debian-binary", "2.0\n", "control.tar", string(sums), "data.tar", string(file)),
		"header":     header,
		"dictionary": made("debian-binary", "2.0\n", "control.tar", tarOf(t), "data.tar.xz", string(dictionary)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := tried(t, b)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 160<<20 {
			t.Errorf("%s: %v, after %d bytes of memory", name, err, took)
		}
	}
}

// compressedBy returns what a program makes of contents.
func compressedBy(t testing.TB, program, flags string, b []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	put(t, path, b, 0o644)
	return run(t, program, "-c", flags, path)
}

// TestCancelled ends the work at each of its steps: nothing of the result is written that is not all of it.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := plain(t)
	var out bytes.Buffer
	if _, err := Convert(ctx, bytes.NewReader(b), int64(len(b)), &out, Options{}); !errors.Is(err, context.Canceled) ||
		out.Len() > 0 {
		t.Errorf("%v, %d bytes", err, out.Len())
	}
}

// FuzzConvert converts anything: there is an error that says where, or a package whose parts are what they were.
func FuzzConvert(f *testing.F) {
	f.Add(plain(f))
	for _, name := range []string{"gzip", "xz", "zstd", "bzip2", "none"} {
		f.Add(testfile.Read(f, "testdata/"+name+".rpm"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		opt := Options{}
		opt.Workers = 1
		res, err := Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
		if err != nil {
			if out.Len() > 0 {
				t.Errorf("%v, and %d bytes written", err, out.Len())
			}
			return
		}
		if res.Same {
			if !bytes.Equal(out.Bytes(), b) {
				t.Error("it says that nothing changed, and other bytes are written")
			}
			return
		}
		var again bytes.Buffer
		twice, err := Convert(context.Background(), bytes.NewReader(out.Bytes()), int64(out.Len()), &again, opt)
		if err != nil || !twice.Same || len(twice.Files) != len(res.Files) {
			t.Errorf("what is converted does not stay as it is: %v", err)
		}
	})
}

// FuzzTar copies what may be an archive: all of it is there again.
func FuzzTar(f *testing.F) {
	f.Add([]byte(tarOf(f, "a", "text", strings.Repeat("long/", 40)+"x", "")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		if err := edit(&out, b, nil); err == nil && !bytes.Equal(out.Bytes(), b) {
			t.Error("it is not what it was")
		}
	})
}
