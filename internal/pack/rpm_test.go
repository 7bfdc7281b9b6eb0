package pack

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/rpm"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/rpmtest"
)

// TestRPM has rpmbuild build packages with every compression, and compares with what rpm2cpio and cpio unpack.
func TestRPM(t *testing.T) {
	tree := sample(t)
	if err := os.Remove(filepath.Join(tree, "usr/share/süß name\n")); err != nil { // rpmbuild would take it for two
		t.Fatal(err)
	}
	for _, how := range []string{"w9.gzdio", "w9.bzdio", "w6.xzdio", "w3.zstdio", "w6.lzdio", "w0.ufdio"} {
		t.Run(how, func(t *testing.T) {
			pkg := rpmOf(t, tree, "--define", "_binary_payload "+how)
			out := t.TempDir()
			peer.Look(t, "rpm2cpio")
			peer.Look(t, "cpio")
			run(t, out, "sh", "-c", "rpm2cpio "+pkg+" | cpio -id --quiet")
			same(t, pkg, treeOf(t, out))
			same(t, pkg, treeOf(t, tree))
		})
	}
}

// rpmOf has rpmbuild make a package of a tree, and returns its name.
func rpmOf(t *testing.T, tree string, args ...string) string {
	t.Helper()
	top := t.TempDir()
	spec := write(t, filepath.Join(top, "p.spec"), []byte(`Name: p
Version: 1
Release: 1
Summary: s
License: l
%description
d
%install
cp -a `+tree+`/. %{buildroot}
%files
/*
`))
	args = append([]string{"-bb", "--quiet", "--target", "x86_64", "--define", "_topdir " + top, "--define",
		"__os_install_post %{nil}", "--define", "debug_package %{nil}",
		"--define", "_build_id_links none", "--define", "__find_provides %{nil}", "--define", "__find_requires %{nil}",
		"--define", "_use_internal_dependency_generator 0"}, args...)
	run(t, top, "rpmbuild", append(args, spec)...)
	all, err := filepath.Glob(filepath.Join(top, "RPMS/*/*.rpm"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// TestLargeRPM has rpmbuild build a package with a file of more than 4 GiB, whose members have numbers only.
func TestLargeRPM(t *testing.T) {
	long.Test(t) // rpmbuild and the survey go through 4 GiB
	tree := sample(t)
	if err := os.Remove(filepath.Join(tree, "usr/share/süß name\n")); err != nil {
		t.Fatal(err)
	}
	want := treeOf(t, tree)
	const size = 1<<32 + 1<<20
	if err := os.Truncate(write(t, filepath.Join(tree, "usr/share/large"), []byte("large")), size); err != nil {
		t.Fatal(err)
	}
	pkg := rpmOf(t, tree, "--define", "_binary_payload w3.zstdio")
	got := make(map[string]string)
	large, stripped := 0, false
	members := make(map[int]string)
	old := newBudget
	newBudget = func(int64) *elffile.Budget { return elffile.NewBudget(size) }
	defer func() { newBudget = old }()
	files, err := Each(t.Context(), pkg, func(m *Member) error {
		if m.Size == size {
			large, stripped = large+1, true
			members[m.Index] = "large"
			return nil
		}
		c, err := m.Load()
		if err != nil {
			return err
		}
		b := make([]byte, m.Size)
		if _, err = c.ReadAt(b, 0); err == io.EOF { // of an empty file
			err = nil
		}
		members[m.Index] = string(b)
		return err
	})
	if err != nil || large != 1 || !stripped {
		t.Fatal(err, large)
	}
	for _, f := range files {
		got[f.Name] = members[f.Member]
	}
	want["usr/share/large"] = "large"
	if len(got) != len(want) {
		t.Errorf("%d files; want %d", len(got), len(want))
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %.40q; want %.40q", name, got[name], text)
		}
	}
}

func gzipped9(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

// TestStripped has the form for large files with small ones; TestLargeRPM has what rpmbuild makes.
func TestStripped(t *testing.T) {
	payload := gzipped9(rpmtest.Payload())
	want := map[string]string{"usr/bin/one": "One", "usr/bin/first": "links"}
	sum := sha256.Sum256(payload)
	tags := append(rpmtest.With(rpm.TagPayloadAlgo, []uint32{rpm.SHA256}),
		rpmtest.Tag{Number: rpm.TagPayloadSHA256, Value: []string{hex.EncodeToString(sum[:])}})
	same(t, write(t, filepath.Join(t.TempDir(), "p"), rpmtest.Package(payload, tags...)), want)
}

// TestLinks has files of two names: the contents with the second one, with the first one, and none.
func TestLinks(t *testing.T) {
	var payload []byte
	for i, contents := range []string{"", "one", "two", "", "", ""} {
		payload = append(payload, rpmtest.Newc("./"+string(rune('a'+i)), i/2+1, 0o100644, 2, contents)...)
	}
	name := write(t, filepath.Join(t.TempDir(), "p"), rpmtest.Package(append(payload, rpmtest.Trailer()...)))
	same(t, name, map[string]string{"a": "one", "c": "two", "e": ""})
}

// TestRPMErrors has packages with one thing wrong.
func TestRPMErrors(t *testing.T) {
	tags, with := rpmtest.Tags(), rpmtest.With
	ok := rpmtest.Payload()
	sums := gzipped9(ok)
	sums[len(sums)-8]++ // the CRC-32 by RFC 1952, section 2.3
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"a wrong checksum of gzip", rpmtest.Package(sums, tags...),
			fmt.Sprintf("payload: at offset %#x of the unpacked data: gzip: invalid checksum", len(ok))},
		{"no gzip behind its magic", rpmtest.Package([]byte("\x1f\x8b and so on"), tags...),
			"payload: at offset 0x0 of the unpacked data: gzip: "},
		{"only a lead", rpmtest.Lead(), "at offset 0x60: unexpected EOF in a header"},
		{"a delta", rpmtest.Package(ok, with(rpm.TagPayloadFormat, "drpm")...),
			`unsupported payload format "drpm"; cpio is supported`},
		{"a format of another type", rpmtest.Package(ok, with(rpm.TagPayloadFormat, []uint32{1})...),
			"at offset 0x98: tag 1124 has type 4, "},
		{"another digest", rpmtest.Package(ok, append(with(rpm.TagPayloadSHA256, []string{strings.Repeat("0", 64)}),
			rpmtest.Tag{Number: rpm.TagPayloadAlgo, Value: []uint32{rpm.SHA256}})...),
			"the package is damaged: its SHA-256 is "},
		{"another digest in version 6", rpmtest.Package(ok, with(rpm.TagPayloadSHA256, strings.Repeat("0", 64))...),
			"the package is damaged: its SHA-256 is "},
		{"a list that is shorter", rpmtest.Package(ok, with(rpm.TagFileModes, []uint16{1})...),
			"at offset 0x98: tag 1030 has 1 values"},
		{"no cpio", rpmtest.Package([]byte("text that is none"), tags...),
			`payload: at offset 0x0: no member of a cpio archive: it begins with "text t"`},
		{"no cpio, compressed", rpmtest.Package(gzipped9([]byte("text that is none")), tags...),
			`payload: at offset 0x0 of the unpacked data: no member of a cpio archive`},
		{"no end", rpmtest.Package(ok[:0x60], tags...), "payload: at offset 0x60: unexpected EOF"},
		{"a file that is cut off", rpmtest.Package(rpmtest.Newc("./a", 1, 0o100755, 1, strings.Repeat("x", 100))[:150],
			tags...), "payload: at offset 0x96, in or after a: unexpected EOF"},
	} {
		_, err := contents(write(t, filepath.Join(t.TempDir(), "p"), tt.b))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "RPM package") {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

// TestUnread has a visitor that does not read a file that is cut off.
func TestUnread(t *testing.T) {
	cut := rpmtest.Newc("./a", 1, 0o100755, 1, strings.Repeat("x", 100))[:200]
	name := write(t, filepath.Join(t.TempDir(), "p"), rpmtest.Package(cut))
	_, err := Each(t.Context(), name, func(*Member) error { return nil })
	if err == nil || err.Error() != "payload: at offset 0xc8, in or after a: unexpected EOF" {
		t.Errorf("%v; want an early end", err)
	}
}
