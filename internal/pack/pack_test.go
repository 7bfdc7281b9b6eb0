package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/testkit/peer"
)

// contents returns the files that a package has when it is unpacked.
func contents(name string) (map[string]string, error) {
	var members []string
	files, err := Each(context.Background(), name, func(m *Member) error {
		if m.Index != len(members) {
			return fmt.Errorf("member %d comes as number %d", m.Index, len(members))
		}
		c, err := m.Load()
		if err != nil {
			return err
		}
		b, err := io.ReadAll(io.NewSectionReader(c, 0, m.Size))
		members = append(members, string(b))
		if err == nil && !bytes.HasPrefix(b, m.Head) {
			err = fmt.Errorf("%s begins with %q, not with %q", m.Name, b[:min(len(b), HeadSize)], m.Head)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, f := range files {
		text := fmt.Sprint(f.Err)
		if f.Err == nil {
			text = members[f.Member]
		}
		if _, ok := out[f.Name]; ok {
			return nil, fmt.Errorf("%s is there twice", f.Name)
		}
		out[f.Name] = text
	}
	return out, nil
}

// tree returns the regular files below a folder, one with several names under its first.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	seen := make(map[inode.ID]string)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		rel = filepath.ToSlash(rel)
		id, _ := inode.Of(info)
		if other, ok := seen[id]; ok {
			delete(out, other)
			rel = min(rel, other)
		}
		seen[id] = rel
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same compares what a package has with what is expected.
func same(t *testing.T, pkg string, want map[string]string) {
	t.Helper()
	if is, err := Is(pkg); !is || err != nil {
		t.Errorf("%s is no package: %v", pkg, err)
	}
	got, err := contents(pkg)
	if err != nil {
		t.Errorf("%s: %v", pkg, err)
		return
	}
	if maps.Equal(got, want) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if b, ok := got[name]; !ok {
			t.Errorf("%s: %s is missing", pkg, name)
		} else if b != want[name] {
			t.Errorf("%s: %s has %d bytes %.40q; want %d of %.40q", pkg, name, len(b), b, len(want[name]),
				want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is not expected: %.40q", pkg, name, got[name])
		}
	}
}

// run runs a program, or skips the test if there is none.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(peer.Look(t, name), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return name
}

// sample makes a tree with what is special: long names, other names, holes, links of both kinds.
func sample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	write(t, at("usr/bin/prog"), bytes.Repeat([]byte("program "), 5000))
	write(t, at("usr/bin/empty"), nil)
	write(t, at("usr/lib/"+strings.Repeat("a", 120)+"/lib.so"), []byte("library"))
	write(t, at("usr/lib/"+strings.Repeat(strings.Repeat("long", 20)+"/", 4)+"lib.so"), []byte("deep"))
	write(t, at("usr/share/süß name\n"), []byte("name"))
	write(t, at("usr/share/oneMiB"), bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 1<<17))
	if err := os.Symlink("prog", at("usr/bin/alias")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin", at("bin")); err != nil {
		t.Fatal(err)
	}
	write(t, at("usr/bin/zz-second"), []byte("several names"))
	for _, name := range []string{"usr/lib/third", "usr/bin/first"} {
		if err := os.Link(at("usr/bin/zz-second"), at(name)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(at("usr/share/holes"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, off := range []int64{1 << 20, 3<<20 + 5} {
		if _, err := f.WriteAt([]byte("between holes"), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(5 << 20); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTar has GNU tar write every form that it knows, and programs compress them.
func TestTar(t *testing.T) {
	dir := sample(t)
	run(t, dir, "mkfifo", "usr/pipe")
	want := treeOf(t, dir)
	out := t.TempDir()
	for _, format := range []string{"gnu", "oldgnu", "pax", "posix"} {
		for _, more := range [][]string{nil, {"--sparse"}, {"--sparse", "--sparse-version=0.0"},
			{"--sparse", "--sparse-version=0.1"}, {"--hard-dereference"}, {"-P", "--transform=s,^,/,S"}} {
			t.Run(format+strings.Join(more, ""), func(t *testing.T) {
				name := filepath.Join(out, format+strings.ReplaceAll(strings.Join(more, ""), "/", "")+".tar")
				run(t, dir, "tar", append([]string{"--format=" + format, "-cf", name},
					append(more, "bin", "usr")...)...)
				want := want
				if slices.Contains(more, "--hard-dereference") { // what has several names is several files
					want = maps.Clone(want)
					want["usr/bin/zz-second"], want["usr/lib/third"] = want["usr/bin/first"], want["usr/bin/first"]
				}
				same(t, name, want)
			})
		}
	}
	run(t, dir, "tar", "--format=gnu", "-cf", filepath.Join(out, "plain"), ".")
	same(t, filepath.Join(out, "plain"), want)
	for _, c := range [][]string{{"gzip"}, {"bzip2"}, {"xz"}, {"zstd"}, {"xz", "--check=sha256", "--block-size=300000"},
		{"zstd", "-3", "--long=27"}, {"lzma"}, {"bzip2", "-1"}} {
		t.Run(strings.Join(c, ""), func(t *testing.T) {
			peer.Look(t, c[0])
			name := filepath.Join(out, "packed"+strings.Join(c, ""))
			run(t, out, "sh", "-c", strings.Join(c, " ")+" -c <plain >"+name)
			same(t, name, want)
		})
	}
}

// TestParts has compressed tars that are several files one after the other, as pigz, pixz and apk make them.
func TestParts(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{"a": strings.Repeat("one", 10000), "b": strings.Repeat("two", 100000)}
	tarred := tarOf(t, regular("a", want["a"]), regular("b", want["b"]))
	write(t, filepath.Join(dir, "1"), tarred[:5000])
	write(t, filepath.Join(dir, "2"), tarred[5000:])
	for _, c := range []string{"gzip", "bzip2", "xz", "zstd"} {
		peer.Look(t, c)
		run(t, dir, "sh", "-c", fmt.Sprintf("%s -c 1 >%[1]s; %[1]s -c 2 >>%[1]s", c))
		same(t, filepath.Join(dir, c), want)
	}
}

// A member of a tar that a test makes.
type tarMember struct {
	tar.Header
	contents string
}

func regular(name, contents string) tarMember {
	return tarMember{tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(contents)), Mode: 0o755}, contents}
}

func linked(typ byte, name, to string) tarMember {
	return tarMember{tar.Header{Name: name, Typeflag: typ, Linkname: to, Mode: 0o755}, ""}
}

func tarOf(t testing.TB, members ...tarMember) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range members {
		if err := w.WriteHeader(&members[i].Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, members[i].contents); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestReplaced has tars in which a name comes again, and compares with what GNU tar unpacks.
func TestReplaced(t *testing.T) {
	for name, members := range map[string][]tarMember{
		"by a file":              {regular("a", "old"), regular("b", "b"), regular("a", "new")},
		"under another spelling": {regular("./a", "old"), regular("b/../a", "new"), regular("/a", "newest")},
		"by a symbolic link":     {regular("a", "old"), linked(tar.TypeSymlink, "a", "b"), regular("b", "b")},
		"by a folder":            {regular("a", "old"), linked(tar.TypeDir, "a/", ""), regular("a/b", "b")},
		"by a link":              {regular("a", "old"), regular("b", "b"), linked(tar.TypeLink, "a", "b")},
		"linked before":          {regular("b", "old"), linked(tar.TypeLink, "c", "b"), regular("b", "new")},
		"linked twice":           {regular("b", "b"), linked(tar.TypeLink, "c", "b"), linked(tar.TypeLink, "a", "./c")},
		"a comment for all": {{tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header",
			PAXRecords: map[string]string{"comment": "c"}}, ""}, regular("a", "a")},
		"a link to a link": {linked(tar.TypeSymlink, "a", "b"), linked(tar.TypeLink, "c", "a"),
			regular("b", "b")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := write(t, filepath.Join(dir, "x.tar"), tarOf(t, members...))
			run(t, dir, "mkdir", "out")
			if name == "under another spelling" { // tar refuses the second one
				same(t, file, map[string]string{"a": "newest"})
				return
			}
			run(t, dir, "tar", "-xf", file, "-C", "out")
			same(t, file, treeOf(t, filepath.Join(dir, "out")))
		})
	}
}

// TestDeb has dpkg-deb build packages with every compression.
func TestDeb(t *testing.T) {
	dir := sample(t)
	for _, name := range []string{"bin", "usr/share/süß name\n"} { // the latter dpkg-deb refuses
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := treeOf(t, dir)
	write(t, filepath.Join(dir, "DEBIAN/control"),
		[]byte("Package: p\nVersion: 1\nArchitecture: all\nMaintainer: m <m@example.org>\nDescription: d\n"))
	for _, how := range []string{"none", "gzip", "xz", "zstd"} {
		name := filepath.Join(t.TempDir(), how+".deb")
		run(t, dir, "dpkg-deb", "--root-owner-group", "-Z"+how, "-b", dir, name)
		same(t, name, want)
	}
}
