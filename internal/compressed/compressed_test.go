package compressed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// contents are like those of packages: words that occur again, and noise.
func contents(size int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < size {
		if r.IntN(3) > 0 && len(b) > 0 {
			from := r.IntN(len(b))
			b = append(b, b[from:min(len(b), from+r.IntN(200))]...)
		} else {
			b = append(b, byte(r.IntN(256)), byte(r.IntN(16)))
		}
	}
	return b[:size]
}

// by has a program turn one into the other.
func by(t testing.TB, b []byte, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(peer.Look(t, name), args...)
	cmd.Stdin = bytes.NewReader(b)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v %s", name, err, stderr.Bytes())
	}
	return out
}

// readAll decompresses.
func readAll(b []byte) ([]byte, *Form, error) {
	r, err := Open(context.Background(), nil, bytes.NewReader(b))
	if err != nil {
		return nil, r.Form, err
	}
	defer r.Close()
	out, err := io.ReadAll(r)
	return out, r.Form, err
}

// store compresses to a file.
func store(t testing.TB, to *os.File, b []byte, f *Form, workers int) error {
	return f.Store(t.Context(), to, workers, iotest.HalfReader(bytes.NewReader(b)))
}

// scratch makes a file.
func scratch(t testing.TB) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// write compresses.
func write(t testing.TB, b []byte, f *Form, workers int) []byte {
	t.Helper()
	to := scratch(t)
	if err := store(t, to, b, f, workers); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(to.Name())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var programs = map[string]struct {
	kind Kind
	pack []string
	read []string
}{
	"gzip":        {Gzip, []string{"gzip", "-9n"}, []string{"gzip", "-dc"}},
	"gzip fast":   {Gzip, []string{"gzip", "-1"}, []string{"gzip", "-dc"}},
	"xz":          {XZ, []string{"xz", "-1"}, []string{"xz", "-dc"}},
	"xz none":     {XZ, []string{"xz", "-0", "--check=none"}, []string{"xz", "-dc"}},
	"xz crc32":    {XZ, []string{"xz", "-0", "--check=crc32"}, []string{"xz", "-dc"}},
	"xz sha256":   {XZ, []string{"xz", "-0", "--check=sha256"}, []string{"xz", "-dc"}},
	"xz blocks":   {XZ, []string{"xz", "-0", "-T2", "--block-size=300000"}, []string{"xz", "-dc"}},
	"zstd":        {Zstd, []string{"zstd", "-3", "-qc"}, []string{"zstd", "-dqc"}},
	"zstd no sum": {Zstd, []string{"zstd", "-3", "-qc", "--no-check"}, []string{"zstd", "-dqc"}},
	"bzip2":       {Bzip2, []string{"bzip2", "-c"}, []string{"bzip2", "-dc"}},
	"lzma":        {LZMA, []string{"xz", "-0", "--format=lzma"}, []string{"xz", "-dc", "--format=lzma"}},
}

// TestPrograms reads what the programs write, and has them read what is written.
func TestPrograms(t *testing.T) {
	for name, p := range programs {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			large := long.Pick(t, 260_000, 1_300_000)
			for _, size := range []int{0, 1, large} {
				b := contents(size)
				packed := by(t, b, p.pack[0], p.pack[1:]...)
				if got := Of(packed); got != p.kind {
					t.Errorf("%d bytes: it is taken for %s", size, got)
				}
				got, form, err := readAll(packed)
				if err != nil || !bytes.Equal(got, b) {
					t.Fatalf("%d bytes: %d bytes, %v", size, len(got), err)
				}
				if p.kind == Bzip2 {
					if err := store(t, nil, b, form, 1); err == nil ||
						!strings.Contains(err.Error(), "bzip2 is only read; build the package anew") {
						t.Errorf("%v", err)
					}
					continue
				}
				mine := write(t, b, form, 1)
				if got := by(t, mine, p.read[0], p.read[1:]...); !bytes.Equal(got, b) {
					t.Errorf("%d bytes: what is written is read as %d bytes", size, len(got))
				}
				if !bytes.Equal(write(t, b, form, 4), mine) {
					t.Errorf("%d bytes: with four workers there are others", size)
				}
				got, again, err := readAll(mine)
				if err != nil || !bytes.Equal(got, b) {
					t.Errorf("%d bytes: what is written is read as %d bytes, %v", size, len(got), err)
				}
				if again != nil && again.xz.check != form.xz.check || again.checksum != form.checksum {
					t.Errorf("%d bytes: form %+v; want %+v", size, again, form)
				}
			}
		})
	}
}

// TestOpen reads streams without being told what made them.
func TestOpen(t *testing.T) {
	b := contents(5000)
	skipped := append([]byte("\x53\x2a\x4d\x18\x03\x00\x00\x00xyz"), by(t, b, "zstd", "-qc")...) // RFC 8878, 3.1.2
	for kind, packed := range map[Kind][]byte{
		None: b, Gzip: by(t, b, "gzip"), XZ: by(t, b, "xz"), Zstd: skipped, Bzip2: by(t, b, "bzip2"),
		LZMA: by(t, b, "xz", "--format=lzma"),
	} {
		r, err := Open(t.Context(), nil, bytes.NewReader(packed))
		if err != nil || r.Form.Kind != kind {
			t.Errorf("%s: it is taken for %+v, %v", kind, r.Form, err)
			continue
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes of %d, %v", kind, len(got), len(b), err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if kind == None {
			continue
		}
		r, err = Open(t.Context(), nil, bytes.NewReader(packed[:len(packed)-3]))
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if err == nil || !strings.HasPrefix(err.Error(), string(kind)) || strings.Count(err.Error(), string(kind)) > 1 {
			t.Errorf("%s that ends early: %v; want its name, once", kind, err)
		}
	}
	if _, form, err := readAll(skipped); err != nil || form.Writable() == nil {
		t.Errorf("a form with frames to be skipped: %+v, %v", form, err)
	}
	failing := errors.New("no disk")
	if _, err := Open(t.Context(), nil, iotest.ErrReader(failing)); err != failing {
		t.Errorf("%v; want %v", err, failing)
	}
}

// TestXZ looks at what xz says of what is written: blocks, and their checksums.
func TestXZ(t *testing.T) {
	b := contents(2_200_000)
	_, form, err := readAll(by(t, b, "xz", "-0")) // a dictionary of 256 KiB, and so blocks of 1 MiB
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.xz")
	if err := os.WriteFile(path, write(t, b, form, 2), 0o644); err != nil {
		t.Fatal(err)
	}
	out := string(by(t, nil, "xz", "--robot", "-lvv", path))
	if !strings.Contains(out, "\nfile\t1\t3\t") || !strings.Contains(out, "\tCRC64\t") ||
		!strings.Contains(out, "--lzma2=dict=256KiB") {
		t.Errorf("%s", out)
	}
}

// TestCancelled ends the work on blocks that take their time.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := io.MultiReader(bytes.NewReader(make([]byte, 24<<20)), cancelling{cancel})
	err := (&Form{Kind: XZ, xz: xzForm{dictionary: 8 << 20}}).Store(ctx, scratch(t), 1, r)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A cancelling reader ends the work.
type cancelling struct{ cancel func() }

func (c cancelling) Read(b []byte) (int, error) {
	c.cancel()
	return len(b), nil
}

// TestManyBlocks has small blocks, each with a dictionary of 64 MiB. All take the memory of one.
func TestManyBlocks(t *testing.T) {
	packed := by(t, contents(50_000), "xz", "-9", "--block-size=4096")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, _, err := readAll(packed)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || len(got) != 50_000 || took > 80<<20 {
		t.Errorf("%d bytes, %v; %d bytes were allocated", len(got), err, took)
	}
}

// TestDamaged changes and cuts off what programs write. None of it is read as something else, where there is a
// checksum.
func TestDamaged(t *testing.T) {
	b := contents(3000)
	for name, p := range programs {
		if p.kind == LZMA || name == "xz none" || name == "zstd no sum" { // without checksums
			continue
		}
		packed := by(t, b, p.pack[0], p.pack[1:]...)
		for n := 0; n < len(packed); n += 1 + len(packed)/60 {
			if got, form, err := readAll(packed[:n]); err == nil && form.Kind == p.kind {
				t.Errorf("%s: of %d bytes the first %d are read as %d bytes", name, len(packed), n, len(got))
			}
		}
		for i := 0; i < len(packed); i += 1 + len(packed)/60 {
			c := bytes.Clone(packed)
			c[i] ^= 0x55
			if got, form, err := readAll(c); err == nil && form.Kind == p.kind && !bytes.Equal(got, b) {
				t.Errorf("%s: with byte %d changed it is read as %d other bytes", name, i, len(got))
			}
		}
		if _, _, err := readAll(append(bytes.Clone(packed), "rest"...)); err == nil {
			t.Errorf("%s: nothing is said of what follows", name)
		}
	}
}

// TestDictionaries refuses streams that take too much memory to be read.
func TestDictionaries(t *testing.T) {
	b := contents(1000)
	for name, test := range map[string]struct {
		in   []byte
		kind Kind
	}{
		"xz":   {by(t, b, "xz", "--lzma2=dict=192MiB"), XZ},
		"lzma": {by(t, b, "xz", "--format=lzma", "--lzma1=dict=192MiB"), LZMA},
		// RFC 8878, 3.1.1.1: a header without sizes, and a window of 2^(10+18) bytes; then an empty last block.
		"zstd": {[]byte("\x28\xb5\x2f\xfd\x00\x90\x01\x00\x00"), Zstd},
	} {
		if _, _, err := readAll(test.in); err == nil ||
			!strings.Contains(err.Error(), "bytes; at most 134217728 are supported") &&
				err.Error() != "xz: LZMA2 dictionary size exceeds max" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOf has beginnings.
func TestOf(t *testing.T) {
	for head, want := range map[string]Kind{
		"": None, "x": None, "070701": None, "\x1f": None, "\x1f\x8b\x08": Gzip, "\xfd7zXZ\x00\x00": XZ,
		"\xfd7zXZ": None,
		"BZh9":     None, "BZh91AY&SY": Bzip2, "BZh1\x17rE8P\x90": Bzip2, "BZh01AY&SY": None, "BZh:1AY&SY": None,
		"BZh9 and more":    None,
		"\x28\xb5\x2f\xfd": Zstd, "\x50\x2a\x4d\x18": Zstd, "\x5f\x2a\x4d\x18": Zstd, "\x60\x2a\x4d\x18": None,
		"\x50\x2a\x4d": None,
		"\x5d\x00\x00\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff": LZMA,
		"\x5d\x00\x00\x80\x00\x01\x02\x03\x04\x05\x06\x00\x00": LZMA,
		"\x5d\x00\x00\x80\x00\x01\x02\x03\x04\x05\x06\x00\xff": None,
		"\x5d\x00\x00\x80\x00\x01\x02\x03\x04\x05\x06\x07\x07": None,
		"\x5d\x00\x01\x80\x00\xff\xff\xff\xff\xff\xff\xff\xff": None,
		"\x5d\x00\x00\x80\x00\xff\xff\xff\xff\xff\xff\xff":     None,
	} {
		if got := Of([]byte(head)); got != want {
			t.Errorf("%q is taken for %s; want %s", head, got, want)
		}
	}
}

// TestWithoutXZ has the library compress, where there is no program.
func TestWithoutXZ(t *testing.T) {
	b := contents(100_000)
	form := &Form{Kind: XZ, xz: xzForm{check: 4, dictionary: 1 << 20}}
	by := func(path string) []byte {
		t.Setenv("PATH", path)
		return write(t, b, form, 2)
	}
	path := os.Getenv("PATH")
	library, again, program := by(""), by(""), by(path)
	if !bytes.Equal(library, again) || bytes.Equal(library, program) {
		t.Errorf("twice the same: %t; as that of the program: %t", bytes.Equal(library, again),
			bytes.Equal(library, program))
	}
	for _, packed := range [][]byte{library, program} {
		if got, form, err := readAll(packed); err != nil || !bytes.Equal(got, b) || form.xz.check != 4 {
			t.Errorf("%d bytes of %d, %+v, %v", len(got), len(b), form, err)
		}
	}
}

// TestOtherXZ has programs of that name that do something else.
func TestOtherXZ(t *testing.T) {
	path := os.Getenv("PATH")
	for script, want := range map[string]string{
		"echo 'no memory' >&2; exit 1":       "/xz: exit status 1: no memory",
		"echo 'no' >&2; echo it >&2; exit 2": "/xz: exit status 2: no; it",
		"cat":                                errEncoder.Error(),
		"cat >/dev/null; echo x | xz":        errEncoder.Error(),
		"cat >/dev/null":                     errEncoder.Error(),
		"head -c 100000 | xz | head -c 99":   errEncoder.Error(),
	} {
		dir := t.TempDir()
		text := "#!/bin/sh\nPATH='" + path + "'\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(dir, "xz"), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		err := store(t, scratch(t), contents(100_000), &Form{Kind: XZ, xz: xzForm{check: 4}}, 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", script, err, want)
		}
	}
}

// TestNoXZ has programs of that name that cannot be run.
func TestNoXZ(t *testing.T) {
	for contents, want := range map[string]string{"": "exec format error", "#!/none\n": "no such file or directory"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "xz")
		if err := os.WriteFile(path, []byte(contents), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		want = "cannot run " + path + ": " + want
		if err := store(t, nil, nil, &Form{Kind: XZ, xz: xzForm{check: 4}}, 1); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", contents, err, want)
		}
	}
}

// TestStuck has programs called xz that do not read, or do not write, or start one that does not, for a second.
func TestStuck(t *testing.T) {
	defer func(p, h time.Duration) { patience, perHeld = p, h }(patience, perHeld)
	patience, perHeld = time.Second/2, 0
	b := contents(400_000)
	_, form, err := readAll(by(t, b, "xz"))
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("PATH")
	for name, script := range map[string]string{
		"reads nothing": "exec sleep 60", "starts what reads nothing": "sleep 60; exit 1",
		"reads a part":   "head -c 1000; exec sleep 60",
		"writes nothing": "cat >/dev/null; exec sleep 60", "writes a part": "xz -c $*; exec sleep 60",
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "xz"), []byte("#!/bin/sh\nPATH='"+path+"'\n"+script+"\n"),
				0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir)
			begin := time.Now()
			if err := store(t, scratch(t), b, form, 2); err == nil ||
				!strings.HasPrefix(err.Error(), dir+"/xz neither reads nor writes for ") {
				t.Errorf("%v", err)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("it takes %v", took)
			}
		})
	}
}

// TestPatience waits for an xz that makes progress, however slowly.
func TestPatience(t *testing.T) {
	defer func(p, h time.Duration) { patience, perHeld = p, h }(patience, perHeld)
	patience, perHeld = time.Second, 0
	b := contents(30_000)
	_, form, err := readAll(by(t, b, "xz"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\nPATH='" + os.Getenv("PATH") + "'\nxz -c $* >" + dir + "/out\nfor at in 0 1 2 3 4; do sleep 0.5; tail -c +$((1+200*at)) " + dir +
		"/out | head -c 200; done; tail -c +1001 " + dir + "/out\n"
	if err := os.WriteFile(filepath.Join(dir, "xz"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if err := store(t, scratch(t), b, form, 2); err != nil {
		t.Fatal(err)
	}
}
