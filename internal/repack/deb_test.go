package repack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

const fixtures = "../../testdata/bin/amd64"

// put writes a file, and the folders that it is in.
func put(t testing.TB, path string, b []byte, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
}

// run runs a program, and returns what it prints.
func run(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(peer.Look(t, name), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, stderr.Bytes())
	}
	return out
}

// repacked converts a package.
func repacked(t testing.TB, b []byte, opt Options) ([]byte, *Result) {
	t.Helper()
	var out bytes.Buffer
	res, err := Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	if err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != res.Written {
		t.Errorf("%d bytes; the result says %d", out.Len(), res.Written)
	}
	return out.Bytes(), res
}

// converted returns a file with .sframe.
func converted(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out,
		convert.Options{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// long is a name that takes an extended header.
var long = "usr/lib/" + strings.Repeat("long/", 30) + "name"

// tree makes what a package is made of, and returns those of its files that are to be converted.
func tree(t testing.TB) (dir string, programs []string) {
	t.Helper()
	dir = t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	plt, lib := testfile.Read(t, fixtures+"/plt"), testfile.Read(t, fixtures+"/pltlib.so")
	put(t, at("usr/bin/plt"), plt, 0o755)
	put(t, at("usr/bin/suid"), plt, 0o4755)
	put(t, at("usr/bin/script"), []byte("#!/bin/sh\n"), 0o755)
	put(t, at("usr/lib/pltlib.so"), lib, 0o644)
	put(t, at("usr/lib/two words"), lib, 0o644)
	put(t, at(long), lib, 0o644)
	put(t, at("etc/conf"), plt, 0o755)
	put(t, at("usr/lib/done"), converted(t, plt), 0o755)
	put(t, at("usr/lib/empty"), nil, 0o644)
	put(t, at("usr/lib/broken"), plt[:len(plt)/2], 0o644)
	put(t, at("usr/lib/elf"), []byte("\x7fELF"), 0o644)
	put(t, at("usr/lib/object.o"), object(t), 0o644)
	put(t, at("usr/lib/libx.a"), []byte("!<arch>\n"), 0o644)
	if err := errors.Join(os.Link(at("usr/bin/plt"), at("usr/bin/name")),
		os.Symlink("plt", at("usr/bin/link"))); err != nil {
		t.Fatal(err)
	}
	sums := run(t, "sh", "-c", `cd "$1" && find usr -type f -exec md5sum {} +`, "sh", dir)
	put(t, at("DEBIAN/md5sums"), sums, 0o644)
	put(t, at("DEBIAN/conffiles"), []byte("/etc/conf\n"), 0o644)
	put(t, at("DEBIAN/postinst"), []byte("#!/bin/sh\nexit 0\n"), 0o755)
	put(t, at("DEBIAN/triggers"), []byte("activate-noawait ldconfig\n"), 0o644)
	put(t, at("DEBIAN/control"), []byte("Package: x\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@x>\nInstalled-Size: 7\nDescription: x\n"), 0o644)
	return dir, []string{"usr/bin/plt", "usr/bin/suid", "usr/lib/pltlib.so", "usr/lib/two words", long}
}

// deb makes a package of a folder by dpkg-deb.
func deb(t testing.TB, dir, compressor string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.deb")
	run(t, "dpkg-deb", "--root-owner-group", "-Z"+compressor, "-b", dir, path)
	return testfile.Read(t, path)
}

// A tarFile is a file of an archive, as archive/tar reads it.
type tarFile struct {
	*tar.Header
	contents []byte
}

// untar reads an archive.
func untar(t testing.TB, b []byte) []tarFile {
	t.Helper()
	var all []tarFile
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		var contents []byte
		if err == nil {
			contents, err = io.ReadAll(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tarFile{h, contents})
	}
}

// sameButContents expects two archives to have the same files, those that are named with a new section, and returns
// what changed.
func sameButContents(t *testing.T, before, after []byte) (changed []string) {
	t.Helper()
	was, is := untar(t, before), untar(t, after)
	if len(was) != len(is) {
		t.Fatalf("%d files; want %d", len(is), len(was))
	}
	for i, w := range was {
		s := is[i]
		if !bytes.Equal(s.contents, w.contents) {
			changed = append(changed, strings.TrimPrefix(w.Name, "./"))
			if want := converted(t, w.contents); !bytes.Equal(s.contents, want) {
				t.Errorf("%s is not what the conversion of the file alone gives", w.Name)
			}
			w.Size = int64(len(s.contents))
			if _, ok := w.PAXRecords["size"]; ok {
				w.PAXRecords["size"] = fmt.Sprint(w.Size)
			}
		}
		if !reflect.DeepEqual(s.Header, w.Header) {
			t.Errorf("header %+v; want %+v", s.Header, w.Header)
		}
	}
	return changed
}

// TestDeb converts packages that dpkg-deb made, in each of its compressions.
func TestDeb(t *testing.T) {
	dir, programs := tree(t)
	for _, compressor := range []string{"none", "gzip", "xz", "zstd"} {
		t.Run(compressor, func(t *testing.T) {
			t.Parallel()
			b := deb(t, dir, compressor)
			out, res := repacked(t, b, Options{})
			folder := t.TempDir()
			at := func(name string) string { return filepath.Join(folder, name) }
			put(t, at("before.deb"), b, 0o644)
			put(t, at("after.deb"), out, 0o644)
			names := func(b []byte) string {
				var all []string
				for off := 8; off < len(b); {
					var size int
					fmt.Sscan(string(b[off+48:off+58]), &size)
					all = append(all, string(b[off:off+48])) // name, date, owner, mode
					off += 60 + size + size&1
				}
				return strings.Join(all, "\n")
			}
			if names(out) != names(b) {
				t.Errorf("members\n%s\nwere expected, and not\n%s", names(b), names(out))
			}
			changed := sameButContents(t, run(t, "dpkg-deb", "--fsys-tarfile", at("before.deb")),
				run(t, "dpkg-deb", "--fsys-tarfile", at("after.deb")))
			slices.Sort(changed)
			want := slices.Clone(programs)
			// tar has the contents under the name that it meets first.
			if slices.Contains(changed, "usr/bin/name") {
				want[0] = "usr/bin/name"
			}
			if slices.Sort(want); !slices.Equal(changed, want) {
				t.Errorf("%q are converted; want %q", changed, want)
			}
			run(t, "dpkg-deb", "-R", at("after.deb"), at("after"))
			run(t, "sh", "-c", `cd "$1" && md5sum --quiet -c DEBIAN/md5sums`, "sh", at("after"))
			for _, name := range []string{"conffiles", "postinst", "triggers", "control"} {
				if !bytes.Equal(testfile.Read(t, at("after/DEBIAN/"+name)), testfile.Read(t, dir+"/DEBIAN/"+name)) {
					t.Errorf("%s is not what it was", name)
				}
			}
			was, is := run(t, "dpkg-deb", "--ctrl-tarfile", at("before.deb")),
				run(t, "dpkg-deb", "--ctrl-tarfile", at("after.deb"))
			if len(was) != len(is) {
				t.Errorf("the control archive has %d bytes; want %d", len(is), len(was))
			}
			for _, f := range untar(t, is) {
				if f.Name == "./md5sums" && bytes.Equal(f.contents, testfile.Read(t, dir+"/DEBIAN/md5sums")) {
					t.Error("md5sums is what it was")
				}
			}
			reasons := map[convert.Reason]int{Conffile: 1, Defective: 2, Object: 1, Library: 1, Present: 1,
				"": len(programs)}
			for _, f := range res.Files {
				reasons[f.Result.Stays]--
			}
			for why, n := range reasons {
				if n != 0 {
					t.Errorf("reason %q: %d fewer than expected", why, n)
				}
			}
			if res.Others != 2 {
				t.Errorf("%d other files; want 2", res.Others)
			}
			again, _ := repacked(t, b, Options{Options: convert.Options{Workers: 3}})
			if !bytes.Equal(again, out) {
				t.Error("the second time, and with another number of workers, it has other bytes")
			}
			for _, update := range []bool{false, true} {
				twice, res := repacked(t, out, Options{Options: convert.Options{Update: update}})
				if !res.Same || !bytes.Equal(twice, out) {
					t.Errorf("update %t: what is converted does not stay as it is", update)
				}
			}
			if forced, res := repacked(t, out,
				Options{Options: convert.Options{Force: true}}); res.Same != bytes.Equal(forced, out) {
				t.Errorf("made again it is the same: %t", res.Same)
			}
			two, res := repacked(t, out, Options{Options: convert.Options{Update: true, Version: sframe.V2}})
			if res.Same || bytes.Equal(two, out) {
				t.Error("the files stay in another format")
			}
		})
	}
}

// object returns a relocatable object.
func object(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	put(t, dir+"/a.s", []byte(".text\nf: .cfi_startproc\n push %rbx\n.cfi_adjust_cfa_offset 8\n pop %rbx\n.cfi_adjust_cfa_offset -8\n ret\n.cfi_endproc\n"), 0o644)
	run(t, "as", "--64", dir+"/a.s", "-o", dir+"/a.o")
	return testfile.Read(t, dir+"/a.o")
}

// TestObjects converts objects, but no modules of the kernel.
func TestObjects(t *testing.T) {
	dir := t.TempDir()
	o := object(t)
	put(t, dir+"/usr/lib/a.o", o, 0o644)
	put(t, dir+"/usr/lib/a.ko", o, 0o644)
	put(t, dir+"/DEBIAN/control", []byte("Package: x\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@x>\nDescription: x\n"), 0o644)
	_, res := repacked(t, deb(t, dir, "none"), Options{Objects: true})
	got := make(map[string]convert.Reason)
	for _, f := range res.Files {
		got[f.Name] = f.Result.Stays
	}
	if want := map[string]convert.Reason{"usr/lib/a.o": "", "usr/lib/a.ko": Module}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

// TestUnchanged has packages without anything to convert: they are copied.
func TestUnchanged(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/usr/bin/script", []byte("#!/bin/sh\n"), 0o755)
	put(t, dir+"/DEBIAN/control", []byte("Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"), 0o644)
	b := deb(t, dir, "xz")
	out, res := repacked(t, b, Options{})
	if !res.Same || !bytes.Equal(out, b) || len(res.Files) > 0 {
		t.Errorf("it is not what it was: %+v", res)
	}
}

// TestCoverage has a program with too little coverage.
func TestCoverage(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/usr/bin/drap", testfile.Read(t, fixtures+"/drap1"), 0o755)
	put(t, dir+"/DEBIAN/control", []byte("Package: x\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@x>\nDescription: x\n"), 0o644)
	b := deb(t, dir, "none")
	var out bytes.Buffer
	opt := Options{Options: convert.Options{Version: sframe.V2, MinCoverage: 100}}
	res, err := Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt)
	if !errors.Is(err, convert.ErrCoverage) || res == nil || out.Len() > 0 {
		t.Errorf("%v, %v, %d bytes", err, res, out.Len())
	}
}

// TestMembers has unknown members: they stay, in their places.
func TestMembers(t *testing.T) {
	dir, _ := tree(t)
	folder := t.TempDir()
	put(t, folder+"/x.deb", deb(t, dir, "gzip"), 0o644)
	put(t, folder+"/_extra", []byte("odd"), 0o644)
	put(t, folder+"/last", []byte("also odd!"), 0o644)
	run(t, "sh", "-c", `cd "$1" && ar q x.deb _extra last`, "sh", folder)
	out, _ := repacked(t, testfile.Read(t, folder+"/x.deb"), Options{})
	put(t, folder+"/y.deb", out, 0o644)
	if got := string(run(t, "ar", "t", folder+
		"/y.deb")); got != "debian-binary\ncontrol.tar.gz\ndata.tar.gz\n_extra\nlast\n" {
		t.Errorf("members %q", got)
	}
	if got := string(run(t, "ar", "p", folder+"/y.deb", "_extra", "last")); got != "oddalso odd!" {
		t.Errorf("contents %q", got)
	}
	for _, name := range []string{"_gpgorigin", "_gpgbuilder"} {
		put(t, folder+"/"+name, []byte("signature"), 0o644)
		run(t, "sh", "-c", `cd "$1" && cp x.deb signed.deb && ar q signed.deb "$2"`, "sh", folder, name)
		refused(t, testfile.Read(t, folder+"/signed.deb"), name+": a signature would become invalid")
	}
	put(t, folder+"/data.tar.gz", []byte("second"), 0o644)
	run(t, "sh", "-c", `cd "$1" && cp x.deb two.deb && ar q two.deb data.tar.gz`, "sh", folder)
	refused(t, testfile.Read(t, folder+"/two.deb"), "a second data.tar; remove one")
}

// refused expects an error that has the words, and nothing to be written.
func refused(t testing.TB, b []byte, words string) {
	t.Helper()
	var out bytes.Buffer
	_, err := Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, Options{})
	if err == nil || !strings.Contains(err.Error(), words) || out.Len() > 0 {
		t.Errorf("%v, %d bytes written; want an error with %q", err, out.Len(), words)
	}
}

// TestDates keeps dates that are no whole seconds, and other records of extended headers.
func TestDates(t *testing.T) {
	program := testfile.Read(t, fixtures+"/plt")
	for _, records := range []map[string]string{
		nil, {"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
	} {
		var in bytes.Buffer
		w := tar.NewWriter(&in)
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: "./" + long, Size: int64(len(program)), Mode: 0o4755, Uid: 1 << 22,
			Uname: "user", Format: tar.FormatPAX,
			ModTime: time.Unix(1700000000, 123456789), AccessTime: time.Unix(1, 5), PAXRecords: records,
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		w.Write(program)
		w.Close()
		if changed := sameButContents(t, in.Bytes(), edited(t, in.Bytes(), converted(t, program))); len(changed) != 1 {
			t.Errorf("%q changed; want one", changed)
		}
	}
}

// edited returns an archive whose files have other contents.
func edited(t testing.TB, b, contents []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := edit(&out, b, contents); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// edit writes an archive whose files have other contents, or the same if they are nil.
func edit(out io.Writer, b, contents []byte) error {
	c := &changes{of: literal(b)}
	err := (&packer{ctx: context.Background()}).entries(c.of, func(e *tarEntry) error {
		if contents == nil || !e.regular() {
			return nil
		}
		return e.replace(c, literal(contents))
	})
	if err == nil {
		now, _ := c.reader(context.Background())
		_, err = io.Copy(out, now)
	}
	return err
}

// TestSizes has sizes in each way in which they are written, and puts others in their places.
func TestSizes(t *testing.T) {
	header := func(size string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Size: 0, Mode: 0o644,
			Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		h := b.Bytes()[:tarBlock]
		copy(sizeField(h), size)
		putSum(h)
		return h
	}
	for size, want := range map[string]string{
		"00000000005\x00": "00000001750\x00",
		"         5 \x00": "      1750 \x00",
		"00000000005 ":    "00000001750 ",
		"5\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00":    "00000001750\x00",
		"\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05": "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\xe8",
	} {
		in := slices.Concat(header(size), append([]byte("words"), make([]byte, tarBlock-5)...),
			make([]byte, 2*tarBlock))
		out := edited(t, in, bytes.Repeat([]byte("x"), 1000))
		if got := string(sizeField(out)); got != want {
			t.Errorf("size %q becomes %q; want %q", size, got, want)
		}
		if all := untar(t, out); len(all) != 1 || len(all[0].contents) != 1000 {
			t.Errorf("size %q: %v", size, all)
		}
	}
	// A record of the size goes before what the header has, and is not changed.
	for _, old := range []string{"9 size=5\n", "29 comment=some other record\n9 size=5\n16 other=record\n"} {
		x := header(fmt.Sprintf("%011o\x00", len(old)))
		x[156] = 'x'
		putSum(x)
		in := slices.Concat(x, append([]byte(old), make([]byte, tarBlock-len(old))...), header("00000000000\x00"),
			append([]byte("words"), make([]byte, tarBlock-5)...), make([]byte, 2*tarBlock))
		if err := edit(&bytes.Buffer{}, in, bytes.Repeat([]byte("x"), 100_000)); err == nil ||
			!strings.Contains(err.Error(), "file has its size in an extended header, which is not supported") {
			t.Errorf("%q: %v", old, err)
		}
	}
}
