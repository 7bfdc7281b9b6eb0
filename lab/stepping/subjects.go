package stepping

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"cfi2sframe/lab/product"
	"cfi2sframe/lab/step"
)

// A subject is a program with arguments that keep it busy for as long as it takes.
type subject struct {
	name    string
	program string   // a name in the path, or a source file of testdata
	args    []string // {T} stands for testdata, {S} for the folder with samples, {R} for the repository
	env     []string
	libs    []string // that it links or opens, beside those that ld.so knows of
	weight  float64  // of its share of the steps
	quick   bool
	loader  bool // what ld.so does before the program begins is followed, too
}

// Each of these runs other code of libcrypto: without AVX2 and later, without SSSE3 and AES, as it is.
var (
	noAVX   = "OPENSSL_ia32cap=~0x1000000000000000:~0xffffffff"
	noSSSE3 = "OPENSSL_ia32cap=~0x1200020000000200:~0xffffffff"
)

const forever = "1000000"

var subjects = []subject{
	{name: "cc1", program: "cc1", args: []string{"-quiet", "-O2", "-g", "{S}/big.i", "-o", "/dev/null"}, weight: 12},
	{name: "python3", program: "/usr/bin/python3", args: []string{"{T}/script.py", forever}, env: []string{"PYTHONHOME=/usr"}, weight: 12},
	{name: "bash", program: "bash", args: []string{"{T}/script.sh", forever}, weight: 8, quick: true, loader: true},
	{name: "perl", program: "perl", args: []string{"{T}/script.pl", forever}, weight: 8, quick: true},
	{name: "sqlite3", program: "sqlite3", args: []string{":memory:", sql}, weight: 9},
	{name: "git", program: "git", args: []string{"--no-pager", "diff", "--no-index", "--stat", "-p", "--histogram", "{R}/cfi", "{R}/sframe"}, weight: 5},
	{name: "gdb", program: "gdb", args: []string{"-nx", "-batch", "-data-directory", "/usr/share/gdb", "-ex", "python print(sum(range(1000)))", "-ex", "print 6*7",
		"-ex", "info functions .", "-ex", "info scope main", "{S}/jumps"}, env: []string{"PYTHONHOME=/usr", "DEBUGINFOD_URLS="}, weight: 7},
	{name: "libcrypto", program: "crypto.c", args: []string{"3000", forever}, libs: []string{"-l:libcrypto.so.3"}, weight: 9},
	{name: "libcrypto-sse", program: "crypto.c", args: []string{"3000", forever}, env: []string{noAVX}, libs: []string{"-l:libcrypto.so.3"}, weight: 6},
	{name: "libcrypto-plain", program: "crypto.c", args: []string{"500", forever}, env: []string{noSSSE3}, libs: []string{"-l:libcrypto.so.3"}, weight: 6},
	{name: "openssl", program: "openssl", args: []string{"speed", "-seconds", "1", "-bytes", "1024", "sha256", "aes-128-cbc", "rsa2048", "ecdsap256"}, weight: 2},
	{name: "libgcrypt", program: "gcrypt.c", args: []string{"2000", forever}, libs: []string{"-l:libgcrypt.so.20"}, weight: 7},
	{name: "gpg", program: "gpg", args: []string{"--homedir", "{S}", "--batch", "--print-mds", "{S}/big.i"}, weight: 2},
	{name: "x264", program: "x264", args: []string{"--threads", "1", "--no-progress", "--quiet", "-o", "/dev/null", "--input-res", "128x96", "{S}/small.yuv"}, weight: 6},
	{name: "dav1d", program: "dav1d", args: []string{"--threads", "1", "-q", "-i", "{S}/small.ivf", "-o", "/dev/null", "--muxer", "null"}, weight: 4},
	{name: "ffmpeg", program: "ffmpeg", args: []string{"-hide_banner", "-loglevel", "error", "-threads", "1", "-i", "{S}/small.mkv", "-threads", "1", "-filter_threads", "1", "-filter_complex_threads", "1",
		"-vf", "scale=64:48,yadif", "-c:v", "mpeg4", "-c:a", "aac", "-f", "null", "-"}, weight: 10},
	{name: "exceptions", program: "throws.cc", args: []string{forever}, weight: 4, quick: true},
	// Without preemption by signals, whose handlers change where they return to.
	{name: "go", program: "gorun", args: []string{forever}, env: []string{"GODEBUG=asyncpreemptoff=1"}, weight: 5},
	{name: "rust", program: "rustrun.rs", args: []string{forever}, weight: 4},
	{name: "jumps", program: "jumps.c", args: []string{forever}, weight: 3, quick: true},
	{name: "openssl-dgst", program: "openssl", args: []string{"dgst", "-sha512", "{S}/big.i"}, weight: 1},
}

const sql = `create table t(a integer primary key, b text, c real); create index i on t(b);
with recursive n(x) as (select 1 union all select x+1 from n where x<100000)
insert into t select x, hex(x*7919%10007)||'text', x/7.0 from n;
select count(*), sum(c), max(b), group_concat(b) from (select * from t where b like '%3%' order by b, c limit 2000);
update t set c=c*2 where a%3=0; delete from t where a%7=0;
select b, count(*) from t group by substr(b,1,3) order by 2; select json_group_array(json_object('a',a,'b',b)) from t; vacuum;`

var errMissing = errors.New("not installed")

// A workshop converts programs, and runs them.
type workshop struct {
	dir, root, testdata, samples string
	stepper                      string

	mu        sync.Mutex
	converted map[string]error
	origin    map[string]string // of converted files
}

// build runs a command that makes something.
func build(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

func newWorkshop(dir string, films bool) (*workshop, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	w := &workshop{dir: dir, root: root, testdata: filepath.Join(root, "lab/stepping/testdata"), samples: filepath.Join(dir, "samples"),
		stepper: filepath.Join(dir, "cfi-step"), converted: make(map[string]error), origin: make(map[string]string)}
	for _, d := range []string{"lib", "bin", "samples"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(product.Build(dir), product.BuildStepper(dir)); err != nil {
		return nil, err
	}
	return w, w.sample(films)
}

// sample makes what programs work on.
func (w *workshop) sample(films bool) error {
	s := w.samples
	if err := build("gcc", "-E", "-include", "stdlib.h", "-include", "pthread.h", "-o", s+"/small.i", w.testdata+"/jumps.c"); err != nil {
		return err
	}
	// A file large enough for a compiler: functions of the kind that it takes time for.
	b, err := os.ReadFile(s + "/small.i")
	if err != nil {
		return err
	}
	var big bytes.Buffer
	big.Write(b)
	for i := range 400 {
		fmt.Fprintf(&big, `
struct s%[1]d { int a[%[2]d]; double d; struct s%[1]d *next; };
double f%[1]d(struct s%[1]d *p, int n) {
	double t = 0;
	for (int i = 0; i < n; i++) {
		switch (p->a[i %% %[2]d] & 7) {
		case 0: t += p->d * i; break;
		case 1: t -= p->a[(i * 3) %% %[2]d]; break;
		case 5: p = p->next ? p->next : p; break;
		default: for (int j = 0; j < %[2]d; j++) p->a[j] += i ^ j;
		}
		if (t > 1e9) t = f%[1]d(p, n / 2);
	}
	return t;
}
`, i, 4+i%13)
	}
	if err := os.WriteFile(s+"/big.i", big.Bytes(), 0o600); err != nil {
		return err
	}
	// YUV frames, and the same as films.
	yuv := make([]byte, 0, 60*128*96*3/2)
	for f := range 60 {
		for y := range 96 {
			for x := range 128 {
				yuv = append(yuv, byte(x*y/16+f*5+(x^y)&(f%32)))
			}
		}
		for i := range 128 * 96 / 2 {
			yuv = append(yuv, byte(128+(i+f*3)%64))
		}
	}
	if err := os.WriteFile(s+"/small.yuv", yuv, 0o600); err != nil {
		return err
	}
	if err := build("gcc", "-g", "-O1", "-pthread", "-o", s+"/jumps", w.testdata+"/jumps.c"); err != nil {
		return err
	}
	if _, err := exec.LookPath("ffmpeg"); err != nil || !films {
		return nil // those who need films are missing, too
	}
	raw := []string{"-y", "-loglevel", "error", "-f", "rawvideo", "-video_size", "128x96", "-pix_fmt", "yuv420p", "-i", s + "/small.yuv"}
	if err := build("ffmpeg", append(raw, "-c:v", "libaom-av1", "-cpu-used", "8", "-frames:v", "20", s+"/small.ivf")...); err != nil {
		return err
	}
	return build("ffmpeg", append(raw, "-f", "lavfi", "-i", "sine=duration=2", "-c:v", "libx264", "-c:a", "libmp3lame", s+"/small.mkv")...)
}

// make returns the program of a subject: one that is installed, or built.
func (w *workshop) make(s *subject) (string, error) {
	src := filepath.Join(w.testdata, s.program)
	out := filepath.Join(w.dir, s.name)
	switch filepath.Ext(s.program) {
	case ".c":
		return out, build("gcc", append([]string{"-O2", "-o", out, src, "-pthread"}, s.libs...)...)
	case ".cc":
		return out, build("g++", "-O2", "-o", out, src)
	case ".rs":
		if _, err := exec.LookPath("rustc"); err != nil {
			return "", errMissing
		}
		return out, build("rustc", "-O", "-o", out, src)
	}
	if s.program == "gorun" {
		return out, build("go", "build", "-ldflags=-compressdwarf=false", "-o", out, src+"/main.go")
	}
	if s.program == "cc1" {
		b, err := exec.Command("gcc", "-print-prog-name=cc1").Output()
		if err != nil {
			return "", errMissing
		}
		return strings.TrimSpace(string(b)), nil
	}
	p, err := exec.LookPath(s.program)
	if err != nil {
		return "", errMissing
	}
	if p, err = filepath.EvalSymlinks(p); err != nil {
		return "", err
	}
	if f, err := elf.Open(p); err == nil {
		return p, f.Close()
	}
	return "", errMissing
}

// convert converts a file into a folder, once.
func (w *workshop) convert(from, to string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err, ok := w.converted[to]; ok {
		return err
	}
	err := build(filepath.Join(w.dir, "cfi2sframe"), "-q", "--format", "3", "--skip-unsupported", "--force", from, "-o", to)
	if _, e := os.Stat(to); err == nil && e != nil { // there is nothing to convert
		err = build("cp", from, to)
	}
	w.converted[to], w.origin[to] = err, from
	return err
}

// closure converts a program, its libraries and ld.so, and returns how to start it.
func (w *workshop) closure(program, name string, extra []string) ([]string, error) {
	bin := filepath.Join(w.dir, "bin", name)
	if err := w.convert(program, bin); err != nil {
		return nil, err
	}
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	interp := f.Section(".interp")
	if interp == nil {
		return []string{bin}, nil
	}
	b, err := interp.Data()
	if err != nil {
		return nil, err
	}
	ldso := string(bytes.TrimRight(b, "\x00"))
	out, err := exec.Command(ldso, "--list", program).Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list %s: %w", ldso, program, err)
	}
	lib := filepath.Join(w.dir, "lib")
	for line := range strings.Lines(string(out)) { // name => path (address)
		f := strings.Fields(line)
		if len(f) < 3 || f[1] != "=>" || !strings.HasPrefix(f[2], "/") {
			continue
		}
		if err := w.convert(f[2], filepath.Join(lib, filepath.Base(f[0]))); err != nil {
			return nil, err
		}
	}
	// Opened when a thread ends, or something is thrown.
	extra = append(extra, "/lib/x86_64-linux-gnu/libgcc_s.so.1")
	for _, e := range extra {
		if strings.HasPrefix(e, "/") {
			if err := w.convert(e, filepath.Join(lib, filepath.Base(e))); err != nil {
				return nil, err
			}
		}
	}
	to := filepath.Join(lib, filepath.Base(ldso))
	if err := w.convert(ldso, to); err != nil {
		return nil, err
	}
	return []string{to, "--library-path", lib, bin}, nil
}

// amd64 follows a subject on this machine.
func (w *workshop) amd64(ctx context.Context, s subject, steps uint64, cpu int) (*result, error) {
	program, err := w.make(&s)
	if err != nil {
		return nil, err
	}
	start, err := w.closure(program, s.name, s.libs)
	if err != nil {
		return nil, err
	}
	out := filepath.Join(w.dir, s.name+".json")
	args := []string{"--steps", strconv.FormatUint(steps, 10), "--made", "2,3", "--report", "json", "--report-file", out, "--cpu", strconv.Itoa(cpu)}
	if !s.loader {
		args = append(args, "--from", start[len(start)-1])
	}
	args = append(args, start...)
	for _, a := range s.args {
		args = append(args, strings.NewReplacer("{T}", w.testdata, "{S}", w.samples, "{R}", w.root).Replace(a))
	}
	cmd := command(ctx, w.stepper, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Dir = w.samples
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err = cmd.Run()
	var status *exec.ExitError
	if err != nil && (!errors.As(err, &status) || status.ExitCode() != 1) {
		return nil, fmt.Errorf("%w\n%s", err, errs.Bytes())
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	r := &result{Subject: s.name, ABI: "amd64", Version: packageOf(program), Report: new(step.Report)}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if r.Exit != 0 {
		return r, fmt.Errorf("exit status %d\n%s", r.Exit, errs.Bytes())
	}
	w.original(r)
	switch s.name {
	case "go":
		r.Packages[s.name] = runtime.Version()
	case "rust":
		if out, err := exec.Command("rustc", "--version").Output(); err == nil {
			r.Packages[s.name] = strings.TrimSpace(string(out))
		}
	}
	return r, nil
}

// original gives files the names that they have on the system.
func (w *workshop) original(r *result) {
	name := func(p string) string {
		if rest, ok := strings.CutPrefix(p, w.dir+"/"); ok {
			return filepath.Base(rest)
		}
		return p
	}
	r.Packages = make(map[string]string)
	for i := range r.Files {
		path := r.Files[i].Path
		r.Files[i].Path = name(path)
		w.mu.Lock()
		if from, ok := w.origin[path]; ok {
			path = from
		}
		w.mu.Unlock()
		if p := packageOf(path); p != "" {
			r.Packages[r.Files[i].Path] = p
		}
	}
	for i := range r.Functions {
		r.Functions[i].File = name(r.Functions[i].File)
	}
	for _, l := range [][]step.Gap{r.Gaps, r.NoCFI} {
		for i := range l {
			l[i].File = name(l[i].File)
		}
	}
}

// packageOf returns the package that a file is of, and its version, or "".
func packageOf(file string) string {
	for _, f := range []string{file, strings.TrimPrefix(file, "/usr"), "/usr" + file} {
		if out, err := exec.Command("dpkg-query", "-S", f).Output(); err == nil {
			pkg, _, _ := strings.Cut(string(out), ": ")
			if v, err := exec.Command("dpkg-query", "-W", "-f", "${source:Package} ${Version}", pkg).Output(); err == nil {
				return string(v)
			}
		}
	}
	return ""
}
