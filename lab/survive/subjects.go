package survive

import (
	"debug/elf"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/kit"
)

//go:embed testdata
var sources embed.FS

// sourceDir is the source directory in the debug information.
const sourceDir = "/build/subject"

// A subject is a file to convert and to change with tools.
type subject struct {
	arch, name string // arch is a GOARCH
	suite      string // where it is built
	script     string // builds the file in a directory with the sources
	file       string
	runs       []string // commands to run in the file's directory; $S is the script's directory, $QEMU runs programs
	quick      bool

	dir         string // where the script ran
	interpreter string // a different path for its interpreter, or ""
}

func (s *subject) String() string { return s.arch + " " + s.name }

func (s *subject) path() string { return filepath.Join(s.dir, s.file) }

// triples maps architectures to the target triples of sid's cross compilers.
var triples = map[string]string{"arm64": "aarch64-linux-gnu", "s390x": "s390x-linux-gnu"}

// triple returns the target triple of the subject, or "" for this machine.
func (s *subject) triple() string { return triples[s.arch] }

const (
	library    = "$CC $CFLAGS -DLIBRARY -shared -fPIC -o libsubject.so subject.c\n$CC -o load load.c\n"
	loadable   = "$QEMU $S/load ./libsubject.so"
	musl       = "REALGCC=gcc-16 musl-"
	systemLibs = "/usr/lib/x86_64-linux-gnu/"
)

// gcc returns a script that compiles the C program.
func gcc(flags string) string { return "gcc -B. $CFLAGS " + flags + " -o prog subject.c" }

func goBuild(flags string) string { return "go build -trimpath -o prog " + flags + "/main.go" }

// subjects returns all subjects, the slowest first.
func subjects() []*subject {
	all := []*subject{
		{name: "PIE", script: gcc("-pie -fPIE"), quick: true},
		{name: "ET_EXEC", script: gcc("-no-pie"), quick: true},
		{name: "static", script: gcc("-static -no-pie"), quick: true},
		{name: "static by lld", script: gcc("-static -no-pie -fuse-ld=lld")},
		{name: "static by mold", script: gcc("-static -no-pie -fuse-ld=mold")},
		{name: "static-PIE", script: gcc("-static-pie -fPIE")},
		// A program is linked against each library that a tool has changed.
		{name: "shared library", file: "libsubject.so", quick: true,
			script: "CC='gcc -Wl,-z,now'\n" + library + "gcc -O2 -fno-pie -c linked.c",
			runs:   []string{loadable, "gcc -no-pie -o linked $S/linked.o ./libsubject.so && ./linked"}},
		// libgcc_eh calls glibc.
		{name: "musl static", suite: "sid", script: musl + gcc("-DNO_UNWINDER -static -no-pie")},
		{name: "musl static-PIE", suite: "sid", script: musl + gcc("-DNO_UNWINDER -static-pie -fPIE")},
		{name: "libc.so.6", script: "cp " + systemLibs + "libc.so.6 .\ngcc -o used subject.c", file: "libc.so.6",
			runs: []string{"./libc.so.6", "env LD_LIBRARY_PATH=. $S/used"}},
		// The interpreter is a relative path: the kernel resolves it in the current directory.
		{name: "ld.so", file: "ld.so",
			script: "cp " + systemLibs + "ld-linux-x86-64.so.2 ld.so\ngcc -o used subject.c\n" +
				"gcc -Wl,-dynamic-linker=./ld.so -o loaded subject.c",
			runs: []string{"./ld.so --version", "./ld.so --list $S/used", "./ld.so $S/used", "$S/loaded"}},
		// .gnu.hash is larger than what a tool adds to .dynamic and .dynstr.
		{name: "ET_EXEC by gold with exports",
			script: "seq 500 | sed 's/.*/int exported&;/' >exports.c\n" +
				gcc("-no-pie -fuse-ld=gold -rdynamic exports.c")},
		{name: "PIE with its own note", script: gcc("-pie -fPIE note.s")},
		{name: "ET_EXEC with its own note", script: gcc("-no-pie note.s")},
		{name: "Go", script: "CGO_ENABLED=0 " + goBuild("go")},
		{name: "Go PIE", script: "CGO_ENABLED=0 " + goBuild("-buildmode=pie go")},
		{name: "Go and C", script: goBuild("cgo")},
		{name: "Rust", script: "rustc -g -O --remap-path-prefix $PWD=" + sourceDir + " -o prog subject.rs"},
		// There is no s390x case, because Go needs a C compiler to link a PIE there.
		{arch: "arm64", name: "Go PIE", script: "CGO_ENABLED=0 GOARCH=arm64 " + goBuild("-buildmode=pie go")},
	}
	for _, linker := range []string{"lld", "mold", "gold"} {
		all = append(all, &subject{name: "PIE by " + linker, script: gcc("-pie -fPIE -fuse-ld=" + linker)},
			&subject{name: "ET_EXEC by " + linker, script: gcc("-no-pie -fuse-ld=" + linker)})
	}
	for _, arch := range []string{"arm64", "s390x"} {
		triple := triples[arch]
		cross := func(name, flags string) *subject {
			script := triple + "-" + strings.Replace(gcc(flags), "gcc", "gcc-16", 1)
			return &subject{arch: arch, name: name, suite: "sid", script: script}
		}
		pie := cross("PIE", "-pie -fPIE")
		pie.quick = arch == "arm64"
		all = append(all, pie, cross("ET_EXEC", "-no-pie"),
			cross("static", "-static -no-pie"), cross("static-PIE", "-static-pie -fPIE"),
			&subject{arch: arch, name: "shared library", suite: "sid", script: "CC=" + triple + "-gcc-16\n" + library,
				file: "libsubject.so", runs: []string{loadable}},
			&subject{arch: arch, name: "Go", script: "CGO_ENABLED=0 GOARCH=" + arch + " " + goBuild("go")})
	}
	for _, s := range all {
		if s.arch == "" {
			s.arch = "amd64"
		}
		if s.file == "" {
			s.file, s.runs = "prog", []string{"$QEMU ./prog"}
		}
	}
	return all
}

// shell runs a script with the machine's environment, or inside a suite.
func shell(in, dir, script string) error {
	if in != "" {
		return suite.Script(in, dir, script)
	}
	return kit.Run(dir, "sh", "-ec", script)
}

// build builds the subject in a new directory.
func (s *subject) build() error {
	var err error
	if s.dir, err = suite.TempDir(s.suite); err != nil {
		return err
	}
	testdata, err := fs.Sub(sources, "testdata")
	if err == nil {
		err = os.CopyFS(s.dir, testdata)
	}
	if err != nil {
		return err
	}
	// This machine's mold (1.10) writes a .bss that patchelf moves even in the original.
	if mold, err := suite.Program("sid", "mold"); err == nil && s.suite == "" {
		script := "#!/bin/sh\nexec " + strings.Join(mold, " ") + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(s.dir, "ld.mold"), []byte(script), 0o777); err != nil {
			return err
		}
	}
	cflags := "CFLAGS=\"-g -O2 -ffile-prefix-map=$PWD=" + sourceDir + "\"\n"
	if err := shell(s.suite, s.dir, cflags+s.script); err != nil {
		return err
	}
	f, err := linked.Open(s.path())
	if err != nil {
		return err
	}
	h := f.Prog(elf.PT_INTERP)
	if h == nil {
		return nil
	}
	b, err := f.ReadAt("PT_INTERP", h.Off, h.Filesz)
	if err != nil {
		return err
	}
	root, err := s.root()
	if err != nil {
		return err
	}
	// This path is longer than that of any loader, so patchelf must move .interp.
	s.interpreter = filepath.Join(s.dir, "the-same-loader-by-another-name")
	return os.Symlink(filepath.Join(root, strings.TrimRight(string(b), "\x00")), s.interpreter)
}

// root returns the directory of the subject's C library.
func (s *subject) root() (string, error) {
	if s.triple() == "" {
		return "/", nil
	}
	sid, err := suite.Dir("sid")
	return filepath.Join(sid, "usr", s.triple()), err
}

// environment returns the environment for running the subject.
func (s *subject) environment() ([]string, error) {
	env := append(os.Environ(), "LC_ALL=C", "S="+s.dir, "QEMU=")
	if s.triple() == "" {
		return env, nil
	}
	machine, _, _ := strings.Cut(s.triple(), "-")
	qemu, err := suite.Program("sid", "qemu-"+machine)
	if err != nil {
		return nil, err
	}
	root, err := s.root()
	return append(env, "QEMU="+strings.Join(append(qemu, "-L", root), " ")), err
}
