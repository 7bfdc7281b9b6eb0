package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// Arguments of the program for packages.
var (
	toPackage = []string{"pkg", "IN", "-o", "OUT"}
	toNothing = []string{"pkg", "--dry-run", "IN"}
	toSurvey  = []string{"survey", "IN"}
	ofPackage = [][]string{toPackage, toNothing, toSurvey}
)

// tooMuch is part of what is said of an input that would take too much.
const tooMuch = "more work than its size justifies"

// TestHostileInputs has archives, packages and images. Each member would be accepted alone.
func TestHostileInputs(t *testing.T) {
	long.Test(t)
	program := build(t)
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	tool, _, _ := bytes.Cut(version, []byte("\n"))
	for _, tt := range []struct {
		name   string
		make   func(t testing.TB) []byte
		args   [][]string
		status []int // of each
		want   string
	}{
		{"300 objects with compressed CFI", compressedObjects,
			[][]string{toOut, toText, {"survey", "--objects", "IN"}}, []int{1, 1, 0}, tooMuch},
		{"PLTs with expressions", pltArchive, [][]string{toOut, toText}, []int{1, 1}, tooMuch},
		{"old sections of many rows", rowsArchive, [][]string{{"-q", "--update", "IN", "-o", "OUT"}}, []int{0}, ""},
		{"small objects", smallObjects, [][]string{toOut, toText}, []int{0, 0}, ""},
		{"a package with zeros", debOf(zerosIn, "xz"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"a package with fewer zeros", debOf(fewerZeros, "xz"), ofPackage, []int{0, 0, 0}, "1 converted"},
		{"the same of gzip", debOf(zerosIn, "gzip"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"the same of zstd", debOf(zerosIn, "zstd"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"a program followed by zeros", debOf(zerosBehind(256<<20, 0), "xz"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"a program followed by fewer zeros", debOf(zerosBehind(50<<20, 0), "zstd"), ofPackage, []int{0, 0, 0},
			"1 converted"},
		{"a program followed by bytes", debOf(zerosBehind(50<<20, 'x'), "zstd"), ofPackage, []int{0, 0, 0},
			"1 converted"},
		{"a large dictionary", debOf(fewerZeros, "xz", "--lzma2=preset=6,dict=128MiB"), ofPackage, []int{0, 0, 0},
			"1 converted"},
		{"a large window", debOf(fewerZeros, "zstd", "--ultra", "-22", "--long=27"), ofPackage, []int{0, 0, 0},
			"1 converted"},
		{"small programs", debOf(smallPrograms, "xz"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"damaged programs", debOf(damagedPrograms, "xz"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"programs with much CFI", debOf(framePrograms, "zstd"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"names", debOf(names, "zstd"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"long names", debOf(longNames, "zstd"), ofPackage, []int{1, 1, 0}, tooMuch},
		{"sums", manySums, ofPackage[:2], []int{1, 1}, "md5sums of "},
		{"configuration files", manyConffiles, ofPackage[:2], []int{1, 1}, "conffiles of "},
		{"an RPM with zeros", zerosRPM, ofPackage, []int{1, 1, 0}, tooMuch},
		{"a tar with zeros", zerosTar, [][]string{toSurvey}, []int{0}, tooMuch},
		{"a layer of many images", manyImages, [][]string{toSurvey}, []int{0}, tooMuch},
		{"a survey of many files", manyLines, [][]string{{"merge", "IN"}, {"merge", "--report", "json", "IN"}},
			[]int{0, 0}, "190,000"},
		{"a debug file with compressed CFI", framesApart, [][]string{{"--dry-run", "--debug-file", "IN", "IN"}},
			[]int{0}, "verified"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			data := bytes.Replace(tt.make(t), []byte("TOOL"), tool, 1) // which surveys are from
			for i, args := range tt.args {
				_, status, out := bounded(t, program, data, nil, args...)
				if status != tt.status[i] || i == 0 && !strings.Contains(out, tt.want) {
					t.Errorf("%v: exit status %d; want %d\n%.2000s\nwhich should contain %q", args, status,
						tt.status[i], out, tt.want)
				}
			}
		})
	}
}

// compressedObjects is an archive of objects, each with 11 MiB of .debug_frame.
func compressedObjects(t testing.TB) []byte {
	var f elftest.Frames
	cie := f.Near()
	for len(f.B) < 1<<20 {
		f.Here(cie, 16)
	}
	o := elftest.NewObject()
	o.Add(".debug_frame", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, elftest.Compressed(elf.COMPRESS_ZSTD, 11<<20,
		zstdOf(t, bytes.Repeat(f.B[:1<<20], 11))))
	return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", o.Bytes()), 300))
}

func zstdOf(t testing.TB, b []byte) []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(b, nil)
}

// pltArchive has programs with a PLT of a megabyte, whose CFA depends on the pc.
func pltArchive(t testing.TB) []byte {
	b := described(t, func(f *elftest.Frames, text uint64) { f.FDE(f.CIE(elftest.Sound...), text, 1<<20, steady...) }).B
	return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", b), 1000))
}

// rowsArchive has programs with an .sframe whose FDEs share their rows.
func rowsArchive(t testing.TB) []byte {
	section := sharedRows(1, 2, 1<<26, 2)
	section[3] = 1 // sorted, so that it is looked at
	return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", checked(section)(t)), 1000))
}

// smallObjects has as many objects as fit into 10 MB.
func smallObjects(testing.TB) []byte {
	one := elftest.ArMember("one.o/", elftest.NewObject().Bytes())
	return elftest.Ar(bytes.Repeat(one, 9_600_000/len(one)))
}

// A tarFill adds members to an archive.
type tarFill func(t testing.TB, w *tar.Writer)

// member adds a file with the contents, which are repeated.
func member(t testing.TB, w *tar.Writer, name string, times int, contents ...[]byte) {
	size := 0
	for _, b := range contents {
		size += len(b)
	}
	if times > 1 {
		size = size - len(contents[len(contents)-1]) + times*len(contents[len(contents)-1])
	}
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(size), Mode: 0o755})
	for i, b := range contents {
		n := 1
		if i == len(contents)-1 {
			n = times
		}
		for range n {
			if err == nil {
				_, err = w.Write(b)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

var mebibyte = make([]byte, 1<<20)

func zerosIn(t testing.TB, w *tar.Writer) {
	member(t, w, "plt", 1, fixture(t, "plt"))
	member(t, w, "zeros", 256, mebibyte)
}

func fewerZeros(t testing.TB, w *tar.Writer) {
	member(t, w, "plt", 1, fixture(t, "plt"))
	member(t, w, "zeros", 50, mebibyte)
}

// zerosBehind is a program with so many bytes after its end.
func zerosBehind(size int, c byte) tarFill {
	return func(t testing.TB, w *tar.Writer) {
		member(t, w, "plt", size>>20, fixture(t, "plt"), bytes.Repeat([]byte{c}, 1<<20))
	}
}

func smallPrograms(t testing.TB, w *tar.Writer) {
	for i := range 30_000 {
		member(t, w, fmt.Sprint(i), 1, fixture(t, "plt"))
	}
}

func damagedPrograms(t testing.TB, w *tar.Writer) {
	for i := range 100_000 {
		member(t, w, fmt.Sprint(i), 1, []byte(elf.ELFMAG))
	}
}

// framePrograms are different ones with 4 MB of small FDEs each.
func framePrograms(t testing.TB, w *tar.Writer) {
	b := described(t, func(f *elftest.Frames, text uint64) {
		cie := f.Near()
		for i := 0; len(f.B) < 4_000_000; i++ {
			f.Here(cie, 16, 0x0e, 0x80|byte(i), 0x80|byte(i>>7), byte(i>>14))
		}
	}).B
	for i := range 12 {
		member(t, w, fmt.Sprint(i), 1, b)
	}
}

func names(t testing.TB, w *tar.Writer) {
	for i := range 1_000_000 {
		member(t, w, fmt.Sprintf("%x", i), 1, nil)
	}
}

func longNames(t testing.TB, w *tar.Writer) {
	for i := range 100_000 {
		member(t, w, fmt.Sprintf("%s%06d", strings.Repeat("x/", 2000), i), 1, nil)
	}
}

// tarred returns an archive, compressed by a program.
func tarred(t testing.TB, fill tarFill, program string, args ...string) []byte {
	cmd := exec.Command(peer.Look(t, program), append(args, "-c")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(in)
	fill(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// debOf makes a package.
func debOf(fill tarFill, program string, args ...string) func(testing.TB) []byte {
	suffix := map[string]string{"xz": "xz", "gzip": "gz", "zstd": "zst"}[program]
	return func(t testing.TB) []byte {
		return controlledBy(t, nil, "data.tar."+suffix, tarred(t, fill, program, args...))
	}
}

// controlledBy makes a package with a file in its control archive.
func controlledBy(t testing.TB, control tarFill, name string, data []byte) []byte {
	if control == nil {
		control = func(testing.TB, *tar.Writer) {}
	}
	return elftest.Ar(elftest.ArMember("debian-binary", []byte("2.0\n")),
		elftest.ArMember("control.tar.gz", tarred(t, control, "gzip")), elftest.ArMember(name, data))
}

func manySums(t testing.TB) []byte {
	line := []byte(strings.Repeat("0", 32) + "  a\n")
	return controlledBy(t, func(t testing.TB, w *tar.Writer) { member(t, w, "md5sums", 30, bytes.Repeat(line, 1<<15)) },
		"data.tar.zst", tarred(t, fewerZeros, "zstd"))
}

func manyConffiles(t testing.TB) []byte {
	var b []byte
	for i := range 1_000_000 {
		b = fmt.Appendf(b, "/%x\n", i)
	}
	return controlledBy(t, func(t testing.TB, w *tar.Writer) { member(t, w, "conffiles", 1, b) }, "data.tar.zst",
		tarred(t, fewerZeros, "zstd"))
}

func zerosTar(t testing.TB) []byte { return tarred(t, zerosIn, "bzip2") }

// zerosRPM has 256 MiB of zeros.
func zerosRPM(t testing.TB) []byte {
	top := t.TempDir()
	spec := filepath.Join(top, "p.spec")
	text := "Name: p\nVersion: 1\nRelease: 1\nSummary: s\nLicense: l\n%description\nd\n%install\nmkdir %{buildroot}/d\n" +
		"cp plt %{buildroot}/d\ntruncate -s 256M %{buildroot}/d/zeros\n%files\n/d\n"
	text = strings.Replace(text, "cp plt", "cp "+top+"/plt", 1)
	for name, b := range map[string][]byte{spec: []byte(text), filepath.Join(top, "plt"): fixture(t, "plt")} {
		if err := os.WriteFile(name, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(peer.Look(t, "rpmbuild"), "-bb", "--quiet", "--target", "x86_64", "--define",
		"_topdir "+top, "--define",
		"__os_install_post %{nil}", "--define", "debug_package %{nil}", "--define", "_build_id_links none", "--define",
		"_binary_payload w9.gzdio", "--define", "_use_internal_dependency_generator 0",
		spec).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all, err := filepath.Glob(filepath.Join(top, "RPMS/*/*.rpm"))
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	b, err := os.ReadFile(all[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// framesApart is a program with compressed .debug_frame, as a debug file has it.
func framesApart(t testing.TB) []byte {
	var f elftest.Frames
	cie := f.Near()
	for i := 0; len(f.B) < 1<<20; i++ {
		f.Here(cie, 16, 0x0e, 0x80|byte(i), 0x80|byte(i>>7), byte(i>>14))
	}
	p := elftest.Patch(t.Fatalf, fixture(t, "plt"))
	p.AddSection(".debug_frame", uint64(elf.SHF_COMPRESSED), elftest.Compressed(elf.COMPRESS_ZSTD, 11<<20,
		zstdOf(t, bytes.Repeat(f.B[:1<<20], 11))))
	return p.B
}

// manyImages is a layout with a thousand images of the same layer, which has 20,000 folders.
func manyImages(t testing.TB) []byte {
	layer := tarred(t, func(t testing.TB, w *tar.Writer) {
		for i := range 20_000 {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		member(t, w, "plt", 1, fixture(t, "plt"))
	}, "gzip")
	return tarred(t, func(t testing.TB, w *tar.Writer) {
		blob := func(kind string, b []byte) string {
			sum := fmt.Sprintf("%x", sha256.Sum256(b))
			member(t, w, "blobs/sha256/"+sum, 1, b)
			return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%d}`, kind,
				sum, len(b))
		}
		member(t, w, "oci-layout", 1, []byte(`{"imageLayoutVersion":"1.0.0"}`))
		in := blob("layer.v1.tar+gzip", layer)
		var all []string
		for i := range 999 {
			config := blob("config.v1+json",
				fmt.Appendf(nil, `{"architecture":"a%d","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`, i))
			all = append(all, blob("manifest.v1+json", fmt.Appendf(nil, `{"schemaVersion":2,"config":%s,"layers":[%s]}`,
				config, in)))
		}
		member(t, w, "index.json", 1, []byte(`{"schemaVersion":2,"manifests":[`+strings.Join(all, ",")+`]}`))
	}, "gzip", "-1")
}

// manyLines is a survey of many files with the shortest records.
func manyLines(testing.TB) []byte {
	const n = 190_000
	const refused = `"files":%d,"refused":[{"reason":"no-cfi","text":"no CFI","files":%[1]d}]}`
	named := func(list, name string) string {
		return `"` + list + `":[{"name":"` + name + `",` + fmt.Sprintf(refused, n) + "],"
	}
	b := []byte(`{"schema":3,"tool":"TOOL",` + named("paths", "no") + named("abis", "amd64") +
		named("languages", "unknown") + named("compilers", "unknown"))
	b = fmt.Appendf(b, `"total":{`+refused+"}\n", n)
	for i := range n {
		b = fmt.Appendf(b, "{\"file\":\"no/%x\",\"abi\":\"amd64\",\"status\":\"no-cfi\"}\n", i)
	}
	return b
}
