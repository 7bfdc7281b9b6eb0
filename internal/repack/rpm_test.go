package repack

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// The packages in testdata were made by rpmbuild 4.20 from sample.spec there, with "fixtures" as the folder of the
// fixtures for amd64 at that time and _binary_payload as their names say. scripts/lab repack makes others, and has rpm
// look at the results.

// The places of values in a header, by hand: tag, type, offset and count of each entry, and the contents after them.
func contentsOf(t testing.TB, b []byte, tag uint32) []byte {
	t.Helper()
	n := int(binary.BigEndian.Uint32(b[8:]))
	for i := range n {
		if e := b[16+16*i:]; binary.BigEndian.Uint32(e) == tag {
			return b[16+16*n+int(binary.BigEndian.Uint32(e[8:])):]
		}
	}
	t.Fatalf("no tag %d", tag)
	return nil
}

// headersOf returns the two headers and the payload.
func headersOf(b []byte) (sig, main, payload []byte) {
	size := func(b []byte) int {
		return 16 + 16*int(binary.BigEndian.Uint32(b[8:])) + int(binary.BigEndian.Uint32(b[12:]))
	}
	sig = b[96:]
	sig = sig[:size(sig)]
	rest := b[96+(len(sig)+7)/8*8:]
	return sig, rest[:size(rest)], rest[size(rest):]
}

// extracted returns the files of a payload by their names, as cpio has them, and the headers without sizes.
func extracted(t testing.TB, payload []byte, program string) (files map[string]string, headers []string) {
	t.Helper()
	if program != "" {
		cmd := exec.Command(peer.Look(t, program), "-dc")
		cmd.Stdin = bytes.NewReader(payload)
		var err error
		if payload, err = cmd.Output(); err != nil {
			t.Fatalf("%s: %v", program, err)
		}
	}
	files = make(map[string]string)
	for b := payload; ; {
		var size, name int
		fmt.Sscanf(string(b[54:62]), "%x", &size)
		fmt.Sscanf(string(b[94:102]), "%x", &name)
		begin := (110 + name + 3) / 4 * 4
		text := string(b[110 : 110+name-1])
		headers = append(headers, string(b[:54])+string(b[62:begin]))
		if text == "TRAILER!!!" {
			return files, headers
		}
		files[text] = string(b[begin : begin+size])
		b = b[begin+(size+3)/4*4:]
	}
}

// TestRPM converts packages in each of their compressions.
func TestRPM(t *testing.T) {
	for name, program := range map[string]string{"none": "", "gzip": "gzip", "xz": "xz", "zstd": "zstd"} {
		t.Run(name, func(t *testing.T) {
			in := testfile.Read(t, "testdata/"+name+".rpm")
			out, res := repacked(t, in, Options{})
			_, wasMain, wasPayload := headersOf(in)
			sig, main, payload := headersOf(out)
			was, wasHeaders := extracted(t, wasPayload, program)
			is, headers := extracted(t, payload, program)
			if !slices.Equal(headers, wasHeaders) {
				t.Errorf("headers %q; want %q", headers, wasHeaders)
			}
			changed := 0
			for file, before := range was {
				want := before
				if strings.HasPrefix(before, "\x7fELF") && file != "./etc/plt.conf" {
					want = string(converted(t, []byte(before)))
					changed++
				}
				if is[file] != want {
					t.Errorf("%s has %d bytes; want others, %d", file, len(is[file]), len(want))
				}
			}
			if changed != 3 || len(res.Files) != 4 || res.Others != 2 {
				t.Errorf("%d files changed, of %d, and %d others; want 3 of 4, and 2", changed,
					len(res.Files), res.Others)
			}
			reasons := make(map[convert.Reason]int)
			for _, f := range res.Files {
				reasons[f.Result.Stays]++
			}
			if want := map[convert.Reason]int{"": 3, Conffile: 1}; !reflect.DeepEqual(reasons, want) {
				t.Errorf("%v; want %v", reasons, want)
			}
			// The sums, each from its definition.
			if got, want := string(contentsOf(t, sig, 273)[:64]), fmt.Sprintf("%x", sha256.Sum256(main)); got != want {
				t.Errorf("SHA256 of the header %s; want %s", got, want)
			}
			if got, want := string(contentsOf(t, sig, 269)[:40]), fmt.Sprintf("%x", sha1.Sum(main)); got != want {
				t.Errorf("SHA1 of the header %s; want %s", got, want)
			}
			if got, want := [16]byte(contentsOf(t, sig, 1004)), md5.Sum(slices.Concat(main, payload)); got != want {
				t.Errorf("MD5 %x; want %x", got, want)
			}
			if got, want := binary.BigEndian.Uint32(contentsOf(t, sig, 1000)),
				len(main)+len(payload); int(got) != want {
				t.Errorf("size %d; want %d", got, want)
			}
			if got, want := string(contentsOf(t, main, 5092)[:64]),
				fmt.Sprintf("%x", sha256.Sum256(payload)); got != want {
				t.Errorf("SHA256 of the payload %s; want %s", got, want)
			}
			// All files together: that with two names once.
			grown := 0
			for file := range was {
				grown += len(is[file]) - len(was[file])
			}
			if got, want := binary.BigEndian.Uint32(contentsOf(t, main, 1009)),
				int(binary.BigEndian.Uint32(contentsOf(t, wasMain, 1009)))+grown; int(got) != want {
				t.Errorf("size of all files %d; want %d", got, want)
			}
			again, res := repacked(t, out, Options{})
			if !res.Same || !bytes.Equal(again, out) {
				t.Error("what is converted does not stay as it is")
			}
			if twice, _ := repacked(t, in, Options{Options: convert.Options{Workers: 3}}); !bytes.Equal(twice, out) {
				t.Error("the second time, and with another number of workers, it has other bytes")
			}
		})
	}
}

// unsummed returns a package that is not compressed, and has no sums of its header and payload: their tags are others.
func unsummed(t testing.TB) []byte {
	t.Helper()
	return unsummedOf(t, "none")
}

// unsummedOf is the same for a package of the given compression.
func unsummedOf(t testing.TB, compressor string) []byte {
	t.Helper()
	b := testfile.Read(t, "testdata/"+compressor+".rpm")
	sig, main, _ := headersOf(b)
	for _, h := range []struct {
		b    []byte
		tags []uint32
	}{{sig, []uint32{269, 273, 1004}}, {main, []uint32{5092}}} {
		for i := range int(binary.BigEndian.Uint32(h.b[8:])) {
			if e := h.b[16+16*i:]; slices.Contains(h.tags, binary.BigEndian.Uint32(e)) {
				binary.BigEndian.PutUint32(e, 20000+binary.BigEndian.Uint32(e))
			}
		}
	}
	return b
}

// TestRPMDamaged changes the header, and the payload: one of the sums says so, whichever there are.
func TestRPMDamaged(t *testing.T) {
	whole := testfile.Read(t, "testdata/none.rpm")
	_, main, payload := headersOf(whole)
	begin := len(whole) - len(main) - len(payload)
	// Without the tags of some sums, the others are still there: of the header in the first two, of both in the third.
	for _, tags := range [][]uint32{nil, {269}, {273}, {1004}} {
		for _, at := range []int{begin + len(main) - 200, len(whole) - 2000} {
			b := slices.Clone(whole)
			for _, tag := range tags {
				i := bytes.Index(b[:begin], binary.BigEndian.AppendUint32(nil, tag))
				binary.BigEndian.PutUint32(b[i:], 20000+tag)
			}
			b[at] ^= 1
			refused(t, b, "the package is damaged: its sum is ")
		}
	}
}

// TestRPMSigned has signatures of each kind: their tags in the place of one that is not looked at.
func TestRPMSigned(t *testing.T) {
	const reserved = 1008
	for tag, name := range map[uint32]string{
		267: "DSA", 268: "RSA", 274: "FILESIGNATURES", 276: "VERITYSIGNATURES", 278: "OPENPGP", 1002: "PGP",
		1005: "GPG", 1006: "PGP5",
	} {
		b := testfile.Read(t, "testdata/none.rpm")
		at := bytes.Index(b[:1000], binary.BigEndian.AppendUint32(nil, reserved))
		binary.BigEndian.PutUint32(b[at:], tag)
		refused(t, b, fmt.Sprintf("signature %s (tag %d): a signature would become invalid; convert the package before it is signed", name, tag))
	}
	b := testfile.Read(t, "testdata/none.rpm")
	_, main, _ := headersOf(b)
	at := bytes.Index(main, binary.BigEndian.AppendUint32(nil, 1007)) // the builder's name, which is not needed
	binary.BigEndian.PutUint32(main[at:], 5090)
	refused(t, b, "signatures of files (tag 5090): a signature would")
}

// TestRPMConfig has a program with two names, each of which is that of a configuration file: it stays, by the other
// name, too.
func TestRPMConfig(t *testing.T) {
	for _, name := range []string{"plt", "plt-hard"} {
		b := unsummed(t)
		_, main, payload := headersOf(b)
		i := slices.Index(strings.Split(string(contentsOf(t, main, 1117)), "\x00"), name)
		binary.BigEndian.PutUint32(contentsOf(t, main, 1037)[4*i:], 1) // RPMFILE_CONFIG
		out, res := repacked(t, b, Options{})
		was, _ := extracted(t, payload, "")
		_, _, payload = headersOf(out)
		is, _ := extracted(t, payload, "")
		for file := range was {
			changes := file == "./usr/bin/plt-suid" || file == "./usr/lib/pltlib.so"
			if (is[file] != was[file]) != changes {
				t.Errorf("%s is a configuration file: %s changes: %t", name, file, !changes)
			}
		}
		if i := slices.IndexFunc(res.Files, func(f File) bool {
			return strings.HasPrefix(f.Name, "usr/bin/plt") &&
				f.Result.Stays == Conffile
		}); i < 0 {
			t.Errorf("%s is a configuration file: %+v", name, res.Files)
		}
	}
}

// TestRPMWrong has packages whose headers contradict themselves.
func TestRPMWrong(t *testing.T) {
	change := func(tag uint32, value string) []byte {
		b := unsummed(t)
		_, main, _ := headersOf(b)
		copy(contentsOf(t, main, tag), value)
		return b
	}
	entry := func(tag uint32, at int, value uint32) []byte {
		b := unsummed(t)
		_, main, _ := headersOf(b)
		for i := 16; ; i += 16 {
			if binary.BigEndian.Uint32(main[i:]) == tag {
				binary.BigEndian.PutUint32(main[i+at:], value)
				return b
			}
		}
	}
	for _, test := range []struct {
		in   []byte
		want string
	}{
		{change(1116, "\x00\x00\x00\x77"), "tag 1116 has 119 for file"},
		{change(1118, "/other/"), "the header of the package does not have the file "},
		{change(1124, "drpm"), "tag 1124: unsupported payload format \"drpm\"; cpio is supported"},
		{change(5011, "\x00\x00\x00\x63"), "tag 5011: unsupported kind 99 of sums"},
		{entry(1035, 12, 3), "tag 1035 has 3 sums for "},
		{entry(1028, 12, 3), "tag 1028 has 3 values for "},
		{entry(1028, 4, 6), "tag 1028 has type 6, and "},
		{entry(1028, 8, 1<<30), " values at 0x40000000; up to 4194304 of types [3 4 5] within "},
		{entry(1117, 4, 4), "tag 1117 has type 4, and "},
	} {
		refused(t, test.in, test.want)
	}
	// A sum of a file that is not that of the file.
	b := unsummed(t)
	_, main, payload := headersOf(b)
	files, _ := extracted(t, payload, "")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(files["./usr/bin/plt-suid"])))
	copy(main[bytes.LastIndex(main, []byte(sum)):], strings.Repeat("0", 64))
	if err := tried(t, b); err == nil || !strings.Contains(err.Error(), "but the sum of the file is "+sum) {
		t.Errorf("a wrong sum: %v", err)
	}
}

// TestStripped has files whose headers in the payload have their numbers only, as those of more than 4 GiB have.
func TestStripped(t *testing.T) {
	in := unsummed(t)
	_, main, payload := headersOf(in)
	m := described(t, in)
	// The same payload with other headers.
	var stripped []byte
	for b := payload; ; {
		var size, name int
		fmt.Sscanf(string(b[54:62]), "%x", &size)
		fmt.Sscanf(string(b[94:102]), "%x", &name)
		begin := (110 + name + 3) / 4 * 4
		text := string(b[110 : 110+name-1])
		if text == "TRAILER!!!" {
			stripped = append(stripped, b...)
			break
		}
		stripped = fmt.Appendf(stripped, "07070X%08x\x00\x00", m.index[strings.TrimPrefix(text, "./")])
		stripped = append(stripped, b[begin:begin+(size+3)/4*4]...)
		b = b[begin+(size+3)/4*4:]
	}
	b := slices.Concat(in[:len(in)-len(payload)], stripped)
	out, res := repacked(t, b, Options{})
	if res.Same || len(res.Files) != 4 {
		t.Fatalf("%d files; want 4", len(res.Files))
	}
	grown := 0
	for _, f := range res.Files {
		grown += int(f.After - f.Before)
	}
	if len(out) != len(b)+grown {
		t.Errorf("%d bytes; want %d", len(out), len(b)+grown)
	}
	_, now, _ := headersOf(out)
	if bytes.Equal(now, main) {
		t.Error("the header stays")
	}
	if again, res := repacked(t, out, Options{}); !res.Same || !bytes.Equal(again, out) {
		t.Error("what is converted does not stay as it is")
	}
}

// TestRPMTail has something after the end of the archive.
func TestRPMTail(t *testing.T) {
	in := unsummed(t)
	zeros := make([]byte, 10_000)
	out, res := repacked(t, slices.Concat(in, zeros), Options{})
	if res.Same || !bytes.HasSuffix(out, zeros) {
		t.Error("the zeros after the end are not what they were")
	}
}

// TestBzip2 refuses a package of bzip2 if a file changes, also with DryRun.
func TestBzip2(t *testing.T) {
	b := testfile.Read(t, "testdata/bzip2.rpm")
	const want = "bzip2 is only read; build the package anew with another compression, such as xz"
	refused(t, b, want)
	if _, err := Convert(t.Context(), bytes.NewReader(b), int64(len(b)), io.Discard,
		Options{Options: convert.Options{DryRun: true}}); err == nil || err.Error() != want {
		t.Errorf("DryRun: %v", err)
	}
}

// TestRPMTool has rpm itself look at the results, where there is one.
func TestRPMTool(t *testing.T) {
	for _, name := range []string{"none", "gzip", "xz", "zstd"} {
		out, _ := repacked(t, testfile.Read(t, "testdata/"+name+".rpm"), Options{})
		dir := t.TempDir()
		put(t, dir+"/x.rpm", out, 0o644)
		if got := string(run(t, "rpm", "-K", "--nosignature", dir+"/x.rpm")); !strings.HasSuffix(got,
			": digests OK\n") {
			t.Errorf("%s: %s", name, got)
		}
	}
}
