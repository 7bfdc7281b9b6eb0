package survey

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/peer"
)

// packages makes packages of the same tree in every form, by name, and returns the tree.
func packages(t *testing.T) (dir string, all map[string]string) {
	t.Helper()
	dir = tree(t)
	for _, name := range []string{"drap2.so", "rbxcfa.so", "rareg.so", "fprules", "signal", "undefra", "plt"} {
		b, err := os.ReadFile(fixtures + "amd64/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "b", name), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lib := elftest.Ar(elftest.ArMember("one.so/", sound(t)), elftest.ArMember("text/", []byte("text")),
		elftest.ArMember("two.so/", sound(t)))
	if err := os.WriteFile(filepath.Join(dir, "b", "lib.a"), lib, 0o666); err != nil {
		t.Fatal(err)
	}
	all = make(map[string]string)
	out := t.TempDir()
	shell := func(name, line string) {
		program := strings.Fields(line)[0]
		if _, err := exec.LookPath(program); err != nil {
			t.Run(program, func(t *testing.T) { peer.Look(t, program) }) // the others are there
			return
		}
		file := filepath.Join(out, name)
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "OUT="+file, "TOP="+t.TempDir())
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b)
		}
		all[name] = file
	}
	shell("plain.tar", "tar -cf $OUT .")
	for name, how := range map[string]string{"gz": "gzip", "xz": "xz", "zst": "zstd", "bz2": "bzip2"} {
		shell("packed.tar."+name, how+" -c <"+filepath.Join(out, "plain.tar")+" >$OUT")
	}
	control := "Package: p\\nVersion: 1\\nArchitecture: all\\nMaintainer: m <m@example.org>\\nDescription: d\\n"
	for _, how := range []string{"xz", "zstd", "gzip", "none"} {
		shell(how+".deb", "dpkg-deb --version >&2; cp -a . $TOP/p; mkdir $TOP/p/DEBIAN; printf '"+control+
			"' >$TOP/p/DEBIAN/control; "+
			"dpkg-deb --root-owner-group -Z"+how+" -b $TOP/p $OUT")
	}
	spec := "Name: p\\nVersion: 1\\nRelease: 1\\nSummary: s\\nLicense: l\\n%%description\\nd\\n%%install\\ncp -a " + dir + "/. %%{buildroot}\\n%%files\\n/*\\n"
	shell("p.rpm", "rpmbuild --version >&2; printf '"+spec+
		"' >$TOP/p.spec; rpmbuild -bb --quiet --target x86_64 --define \"_topdir $TOP\" "+
		"--define '__os_install_post %{nil}' --define 'debug_package %{nil}' --define '_build_id_links none' --define '__find_provides %{nil}' "+
		"--define '__find_requires %{nil}' --define '_use_internal_dependency_generator 0' $TOP/p.spec; mv $TOP/RPMS/*/*.rpm $OUT")
	image(t, dir, filepath.Join(out, "layout"))
	all["layout"] = filepath.Join(out, "layout")
	shell("layout.tar", "tar -C "+all["layout"]+" -cf $OUT .")
	return dir, all
}

// image writes an image layout with a layer that has the files of a directory, below one in which they are of other
// contents.
func image(t *testing.T, dir, to string) {
	t.Helper()
	layer := func(contents func(b []byte) []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		seen := make(map[inode.ID]string)
		err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text = contents(text)
			rel, _ := filepath.Rel(dir, name)
			info, err := d.Info()
			if err != nil {
				return err
			}
			id, _ := inode.Of(info)
			if first, ok := seen[id]; ok {
				return w.WriteHeader(&tar.Header{Typeflag: tar.TypeLink, Name: rel, Linkname: first, Mode: 0o755})
			}
			seen[id] = rel
			if err := w.WriteHeader(&tar.Header{Name: rel, Size: int64(len(text)), Mode: 0o755}); err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		z.Close()
		return b.Bytes()
	}
	put := func(name string, b []byte) {
		name = filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(typ string, b []byte) map[string]any {
		sum := sha256.Sum256(b)
		put("blobs/sha256/"+hex.EncodeToString(sum[:]), b)
		return map[string]any{"mediaType": "application/vnd.oci.image." + typ, "digest": "sha256:" +
			hex.EncodeToString(sum[:]), "size": len(b)}
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	other, err := os.ReadFile(fixtures + "amd64/drap1")
	if err != nil {
		t.Fatal(err)
	}
	below := layer(func([]byte) []byte { return other })
	above := layer(func(b []byte) []byte { return b })
	manifest := blob("manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "config": blob("config.v1+json", []byte(`{"os": "linux", "architecture": "amd64"}`)),
		"layers": []any{blob("layer.v1.tar+gzip", below), blob("layer.v1.tar+gzip", above)},
	}))
	put("oci-layout", []byte(`{"imageLayoutVersion": "1.0.0"}`))
	put("index.json", encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}}))
}

// records returns what CSV has, by the names of files without a prefix, and in order.
func records(t *testing.T, s *Survey, prefix string) (map[string]string, []string) {
	t.Helper()
	var b bytes.Buffer
	if err := s.CSV(&b, nil); err != nil {
		t.Fatal(err)
	}
	all, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	var order []string
	for _, r := range all[1:] {
		name, ok := strings.CutPrefix(r[1], prefix)
		if !ok {
			t.Errorf("%s does not begin with %s", r[1], prefix)
		}
		order = append(order, name)
		out[name] = strings.Join(r[2:], ",")
	}
	return out, order
}

// TestPackages compares the surveys of packages with that of what is in them, file by file: lines, sums, and the names
// of the worst functions.
func TestPackages(t *testing.T) {
	dir, all := packages(t)
	for _, objects := range []bool{false, true} {
		opt := Options{Settings: Settings{Objects: objects}}
		want := run(t, opt, dir)
		lines, _ := records(t, want, dir+"/")
		if len(lines) < 10 || len(want.WorstFunctions) < 5 {
			t.Fatal("there is not much to compare")
		}
		for name, file := range all {
			t.Run(fmt.Sprintf("%s objects=%v", name, objects), func(t *testing.T) {
				opt.Jobs = 1 + len(name)%4
				s := run(t, opt, file)
				got, _ := records(t, s, file+"!")
				if !maps.Equal(got, lines) {
					t.Errorf("%d files; want %d", len(got), len(lines))
					for _, n := range slices.Sorted(maps.Keys(lines)) {
						if got[n] != lines[n] {
							t.Errorf("%s is\n%s\nwant\n%s", n, got[n], lines[n])
						}
					}
				}
				if a, b := fmt.Sprint(s.Total), fmt.Sprint(want.Total); a != b {
					t.Errorf("the sums are\n%s\nwant\n%s", a, b)
				}
				functions := func(s *Survey, prefix string) (out []string) {
					for _, f := range s.WorstFunctions {
						f = BadFunction{Function: f.Function, Symbol: f.Symbol, Section: f.Section, Begin: f.Begin,
							Size: f.Size, Lost: f.Lost, Reason: f.Reason,
							File: strings.TrimPrefix(f.File, prefix)}
						out = append(out, fmt.Sprint(f))
					}
					slices.Sort(out)
					return out
				}
				if a, b := functions(s, file+"!"), functions(want, dir+"/"); !slices.Equal(a, b) {
					t.Errorf("the worst functions are\n%s\nwant\n%s", strings.Join(a, "\n"),
						strings.Join(b, "\n"))
				}
			})
		}
	}
}

// TestPackagesBelow has packages below a path: they are opened if that is asked for, in each form and number of jobs
// alike, and a shard has all of a package or nothing.
func TestPackagesBelow(t *testing.T) {
	_, all := packages(t)
	dir := t.TempDir()
	for name, file := range all {
		if err := os.Rename(file, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, objects := range []bool{false, true} { // a Debian package is an archive, but none of objects
		closed := run(t, Options{Settings: Settings{Objects: objects}}, dir)
		if s := closed.Total.Skipped; closed.Total.Files != 0 || s.Other < uint64(len(all)) ||
			s.Objects+s.Archives > 0 {
			t.Errorf("%d files, %v; want all packages closed", closed.Total.Files, s)
		}
	}
	opt := Options{Settings: Settings{Packages: true}, Jobs: 1}
	want := written(t, run(t, opt, dir))
	opt.Jobs = 7
	if got := written(t, run(t, opt, dir)); got != want {
		t.Error("7 jobs make another survey than one")
	}
	s := run(t, opt, dir)
	if n := s.Total.Files % uint64(len(all)); s.Total.Files == 0 || n != 0 {
		t.Errorf("%d files in %d packages with the same", s.Total.Files, len(all))
	}
	parts := t.TempDir()
	var names []string
	seen := make(map[string]int)
	for i := 1; i <= 3; i++ {
		opt.Shard = Shard{i, 3}
		part := run(t, opt, dir)
		for _, l := range part.Files {
			if was, ok := seen[l.disk()]; ok && was != i {
				t.Errorf("%s is in shards %d and %d", l.disk(), was, i)
			}
			seen[l.disk()] = i
		}
		names = append(names, filepath.Join(parts, fmt.Sprint(i)))
		if err := os.WriteFile(names[i-1], []byte(written(t, part)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	merged, err := Merge(t.Context(), names, MergeOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if written(t, merged) != want {
		t.Error("the shards together are another survey than one of all")
	}
	opt = Options{}
	if err := os.WriteFile(names[0], []byte(written(t, run(t, opt, dir))), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(t.Context(), names[:2], MergeOptions{}, nil); err == nil ||
		!strings.Contains(err.Error(), "with --packages") {
		t.Errorf("with and without packages: %v", err)
	}
}

func written(t *testing.T, s *Survey) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.JSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPackageErrors has packages with something wrong: of those nothing counts but that.
func TestPackageErrors(t *testing.T) {
	dir := t.TempDir()
	prog, err := os.ReadFile(fixtures + "amd64/drap1")
	if err != nil {
		t.Fatal(err)
	}
	tarOf := func(size int64) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		w.WriteHeader(&tar.Header{Name: "usr/bin/drap1", Size: int64(len(prog)), Mode: 0o755})
		w.Write(prog)
		w.WriteHeader(&tar.Header{Name: "usr/bin/more", Size: size, Mode: 0o755})
		w.Write(prog[:min(int64(len(prog)), size)])
		w.Flush()
		return b.Bytes()
	}
	deb := func(b []byte) []byte {
		return elftest.Ar(elftest.ArMember("debian-binary", []byte("2.0\n")), elftest.ArMember("data.tar", b))
	}
	for name, b := range map[string][]byte{
		"short.deb": deb(tarOf(int64(len(prog)) + 1)), "cut.deb": deb(tarOf(64))[:3000],
		"cut.rpm": []byte("\xed\xab\xee\xdb"), "fine.deb": deb(tarOf(64)),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := run(t, Options{Settings: Settings{Packages: true}}, dir)
	got, order := records(t, s, dir+"/")
	want := []string{"cut.deb", "cut.rpm", "fine.deb!usr/bin/drap1", "fine.deb!usr/bin/more", "short.deb"}
	if !slices.Equal(order, want) {
		t.Fatalf("%q; want %q", order, want)
	}
	for name, text := range map[string]string{
		"cut.deb":   ",damaged,archive at offset 0x48: member of size ",
		"cut.rpm":   ",damaged,at offset 0x60: unexpected EOF",
		"short.deb": ",damaged,\"data.tar: at offset ",
	} {
		if !strings.Contains(got[name], strings.ReplaceAll(text, `"`, "")) {
			t.Errorf("%s: %s; want %s", name, got[name], text)
		}
	}
	if n := refusedBy(&s.Total)["damaged"]; n != 4 { // with "more", which has 64 bytes
		t.Errorf("%d damaged files; want 4", n)
	}

	// With a file that is too large, none counts.
	large := filepath.Join(dir, "large")
	if err := os.Mkdir(large, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(large, "a"), prog, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(large, "b"), prog, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(large, "b"), 1<<31); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-S", "-C", large, "-cf", large+".tar", "a", "b").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got, order = records(t, run(t, Options{}, large+".tar"), large)
	if !slices.Equal(order, []string{".tar"}) || !strings.Contains(got[".tar"], ",damaged,") ||
		!strings.Contains(got[".tar"], "in or after b: more work than its size justifies") {
		t.Errorf("%q: %q", order, got)
	}
}

// TestPlatforms has an image for a platform, and another that was not fetched.
func TestPlatforms(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prog"), sound(t), 0o755); err != nil {
		t.Fatal(err)
	}
	layout := filepath.Join(t.TempDir(), "layout")
	image(t, dir, layout)
	index := filepath.Join(layout, "index.json")
	b, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	absent := strings.Repeat("0123456789abcdef", 4)
	b = bytes.Replace(b, []byte(`}]`), []byte(`, "platform": {"os": "linux", "architecture": "amd64"}}, {"mediaType": "application/vnd.oci.image.manifest.v1+json", `+
		`"digest": "sha256:`+absent+`", "size": 5, "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}}]`), 1)
	if err := os.WriteFile(index, b, 0o666); err != nil {
		t.Fatal(err)
	}
	got, order := records(t, run(t, Options{}, layout), layout+"!")
	if want := []string{"linux/amd64!prog", "linux/arm64/v8"}; !slices.Equal(order, want) {
		t.Fatalf("%q; want %q", order, want)
	}
	if want := ",unreadable,the manifest blobs/sha256/" + absent + " is missing,"; !strings.HasPrefix(got["linux/arm64/v8"], want) {
		t.Errorf("%s; want %s", got["linux/arm64/v8"], want)
	}
	if !strings.HasPrefix(got["linux/amd64!prog"], "amd64,cfi,,") {
		t.Error(got["linux/amd64!prog"])
	}

	// A layer is missing.
	blobs, err := filepath.Glob(filepath.Join(layout, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range blobs {
		if b, err := os.ReadFile(name); err != nil || bytes.HasPrefix(b, []byte("\x1f\x8b")) {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, order = records(t, run(t, Options{}, layout), layout)
	if len(order) != 1 || !strings.HasPrefix(got[""], ",damaged,blobs/sha256/") ||
		!strings.Contains(got[""], ": no such file or directory,") {
		t.Errorf("%q; want a layer that is missing", got)
	}
}
