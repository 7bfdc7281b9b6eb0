package pack

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/lab/peer"
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
	args = append([]string{"-bb", "--quiet", "--target", "x86_64", "--define", "_topdir " + top, "--define", "__os_install_post %{nil}", "--define", "debug_package %{nil}",
		"--define", "_build_id_links none", "--define", "__find_provides %{nil}", "--define", "__find_requires %{nil}", "--define", "_use_internal_dependency_generator 0"}, args...)
	run(t, top, "rpmbuild", append(args, spec)...)
	all, err := filepath.Glob(filepath.Join(top, "RPMS/*/*.rpm"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	return all[0]
}

// TestLargeRPM has rpmbuild build a package with a file of more than 4 GiB, whose members have numbers only.
func TestLargeRPM(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 4 GiB, of holes for the most part")
	}
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
	files, err := Each(t.Context(), pkg, func(m *Member) error {
		if m.Size > MaxMember {
			if _, err := m.Load(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes; at most %d were expected", int64(size), int64(MaxMember))) || m.Size != size {
				return fmt.Errorf("a member of %d bytes is read: %v", m.Size, err)
			}
			large, stripped = large+1, true
			members[m.Index] = "large"
			return nil
		}
		c, err := m.Load()
		if err != nil {
			return err
		}
		b := make([]byte, c.Size())
		_, err = c.ReadAt(b, 0)
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
		t.Errorf("%d files; %d were expected", len(got), len(want))
	}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %.40q; %.40q was expected", name, got[name], text)
		}
	}
}

// A rpmTag is one of a header that a test makes: of numbers of 16 or 32 bits, or of strings.
type rpmTag struct {
	number uint32
	value  any
}

// rpmHeaderOf encodes a header.
func rpmHeaderOf(tags ...rpmTag) []byte {
	var index, data []byte
	for _, tag := range tags {
		var typ, count int
		var b []byte
		align := 1
		switch v := tag.value.(type) {
		case string:
			typ, count, b = typeString, 1, []byte(v+"\x00")
		case []string:
			typ, count = typeStrings, len(v)
			for _, s := range v {
				b = append(b, s+"\x00"...)
			}
		case []uint16:
			typ, count, align = typeInt16, len(v), 2
			for _, n := range v {
				b = binary.BigEndian.AppendUint16(b, n)
			}
		case []uint32:
			typ, count, align = typeInt32, len(v), 4
			for _, n := range v {
				b = binary.BigEndian.AppendUint32(b, n)
			}
		case []uint64:
			typ, count, align = typeInt64, len(v), 8
			for _, n := range v {
				b = binary.BigEndian.AppendUint64(b, n)
			}
		}
		for len(data)%align != 0 {
			data = append(data, 0)
		}
		for _, n := range []int{int(tag.number), typ, len(data), count} {
			index = binary.BigEndian.AppendUint32(index, uint32(n))
		}
		data = append(data, b...)
	}
	out := []byte(headerMagic + "\x00\x00\x00\x00")
	out = binary.BigEndian.AppendUint32(out, uint32(len(tags)))
	out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
	return append(append(out, index...), data...)
}

// rpmFile puts a package together.
func rpmFile(payload []byte, tags ...rpmTag) []byte {
	out := append([]byte(rpmMagic+"\x03\x00"), make([]byte, leadSize-6)...)
	out = append(out, rpmHeaderOf(rpmTag{1000, []uint32{7}}, rpmTag{1004, "odd"})...)
	for len(out)%8 != 0 {
		out = append(out, 0)
	}
	return append(append(out, rpmHeaderOf(tags...)...), payload...)
}

// newc is a member of a cpio archive.
func newc(name string, inode, mode, links int, contents string) []byte {
	b := fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		inode, mode, 0, 0, links, 0, len(contents), 8, 1, 0, 0, len(name)+1, 0, name)
	return padded(append(padded(b), contents...))
}

func padded(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// stripped is a member that the header of the package describes.
func stripped(i int, contents string) []byte {
	return padded(append(fmt.Appendf(nil, "07070X%08x\x00\x00", i), contents...))
}

var cpioTrailer = newc(cpioEnd, 0, 0, 1, "")

func gzipped9(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

// strippedTags are those of a package with the files of strippedPayload.
func strippedTags() []rpmTag {
	return []rpmTag{
		{tagBaseNames, []string{"one", "d", "link", "first", "second", "ghost"}},
		{tagDirNames, []string{"/usr/bin/", "/usr/"}},
		{tagDirIndexes, []uint32{0, 1, 0, 0, 0, 0}},
		{tagFileModes, []uint16{0o100755, 0o040755, 0o120777, 0o100755, 0o100755, 0o100644}},
		{tagFileFlags, []uint32{0, 0, 0, 0, 0, flagGhost}},
		{tagFileLinks, []string{"", "", "one", "", "", ""}},
		{tagFileDevices, []uint32{1, 1, 1, 1, 1, 1}},
		{tagFileInodes, []uint32{1, 2, 3, 4, 4, 4}},
		{tagLongSizes, []uint64{3, 4096, 3, 5, 5, 9}},
		{tagPayloadFormat, "cpio"},
	}
}

func strippedPayload() []byte {
	return bytes.Join([][]byte{stripped(0, "One"), stripped(1, ""), stripped(2, "one"), stripped(3, ""), stripped(4, "links"), cpioTrailer}, nil)
}

// TestStripped has the form for large files with small ones; TestLargeRPM has what rpmbuild makes.
func TestStripped(t *testing.T) {
	payload := gzipped9(strippedPayload())
	want := map[string]string{"usr/bin/one": "One", "usr/bin/first": "links"}
	sum := sha256.Sum256(payload)
	tags := append(strippedTags(), rpmTag{tagPayloadSumBy, []uint32{sumSHA256}}, rpmTag{tagPayloadSum, []string{hex.EncodeToString(sum[:])}})
	same(t, write(t, filepath.Join(t.TempDir(), "p"), rpmFile(payload, tags...)), want)
}

// TestRPMErrors has packages with one thing wrong.
func TestRPMErrors(t *testing.T) {
	with := func(number uint32, value any) []rpmTag {
		out := strippedTags()
		for i := range out {
			if out[i].number == number {
				out[i].value = value
				return out
			}
		}
		return append(out, rpmTag{number, value})
	}
	ok := strippedPayload()
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"only a lead", []byte(rpmMagic + "\x03\x00" + strings.Repeat("\x00", 90)), "at offset 0x60: unexpected EOF"},
		{"no header", append([]byte(rpmMagic), make([]byte, 200)...), "at offset 0x60: no header: it begins with 00 00 00 00"},
		{"a header of 4 GiB", append(append([]byte(rpmMagic), make([]byte, 92)...), headerMagic+"\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff"...),
			"a header of 1 tags and 4294967295 bytes does not fit the 16 bytes that are left"},
		{"a delta", rpmFile(ok, with(tagPayloadFormat, "drpm")...), `a payload of format "drpm"; cpio was expected`},
		{"another digest", rpmFile(ok, append(with(tagPayloadSum, []string{strings.Repeat("0", 64)}), rpmTag{tagPayloadSumBy, []uint32{sumSHA256}})...), "the SHA-256 is "},
		{"another digest in version 6", rpmFile(ok, with(tagPayloadSum, strings.Repeat("0", 64))...), "the SHA-256 is "},
		{"a list that is shorter", rpmFile(ok, with(tagFileModes, []uint16{1})...), "a list of 1 files beside one of 6"},
		{"a list that is missing", rpmFile(ok, strippedTags()[1:]...), "a list of 6 files beside one of 0"},
		{"a folder that is not there", rpmFile(ok, with(tagDirIndexes, []uint32{0, 1, 2, 0, 0, 0})...), "file 2 is in folder 2 of 2"},
		{"a list of another type", rpmFile(ok, with(tagFileModes, "text")...), "tag 1030, of type 6 with 1 values"},
		{"a number that is no member's", rpmFile(stripped(6, ""), strippedTags()...), `member "00000006" of a package with 6 files`},
		{"a size of 2^63", rpmFile(ok, with(tagLongSizes, []uint64{1 << 63, 0, 0, 0, 0, 0})...), "file 0 has 9223372036854775808 bytes"},
		{"no cpio", rpmFile([]byte("text that is none"), strippedTags()...), `at offset 0x0: no member of a cpio archive: it begins with "text t"`},
		{"no end", rpmFile(ok[:len(ok)-len(cpioTrailer)], strippedTags()...), "payload: at offset 0x60: unexpected EOF"},
		{"a name of 4 GiB", rpmFile([]byte("070701"+strings.Repeat("ffffffff", 13)), strippedTags()...), "a name of 4294967295 bytes; 1 to 4096 were expected"},
		{"a number with a sign", rpmFile([]byte("070701+0000000"+strings.Repeat("0", 96)), strippedTags()...), `field 0 of a member is "+0000000"`},
		{"a file that is cut off", rpmFile(newc("./a", 1, 0o100755, 1, strings.Repeat("x", 100))[:150], strippedTags()...), "payload: at offset 0x96, in or after a: unexpected EOF"},
	} {
		_, err := contents(write(t, filepath.Join(t.TempDir(), "p"), tt.b))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; %q was expected", tt.name, err, tt.want)
		}
	}
}
