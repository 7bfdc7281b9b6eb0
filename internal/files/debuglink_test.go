package files_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"

	"golang.org/x/sys/unix"
)

// buildSplit runs commands, which build programs with separate debug files in a new directory. It returns a function
// that returns the path of a file in this directory, and a function that runs further commands there.
func buildSplit(t *testing.T, commands string) (at func(name string) string, sh func(command string)) {
	t.Helper()
	for _, name := range []string{"gcc", "objcopy", "strip"} {
		peer.Look(t, name)
	}
	dir := t.TempDir()
	sh = func(command string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", command)
		cmd.Dir = dir
		must.Run(t, cmd)
	}
	testfile.Write(t, filepath.Join(dir, "prog.c"),
		"int twice(int n) { return n * 2; }\nint main(int argc, char **argv) { return twice(argc + 20) > 40 ? 0 : 1; "+
			"}\n")
	sh(commands)
	return func(name string) string { return filepath.Join(dir, name) }, sh
}

// The system's start files may contain .sframe.
const splitOff = "objcopy -R .sframe prog; objcopy --only-keep-debug prog prog.debug; strip prog; objcopy " +
	"--add-gnu-debuglink=prog.debug prog\n"

// checkPair expects a debug file to have the same headers as the program, and the program to contain the checksum of
// the debug file.
func checkPair(t *testing.T, prog, debug string) {
	t.Helper()
	p := must.Get(elf.Open(prog))(t)
	defer p.Close()
	d := must.Get(elf.Open(debug))(t)
	defer d.Close()
	if len(p.Progs) != len(d.Progs) {
		t.Errorf("%d segments; the program has %d", len(d.Progs), len(p.Progs))
	}
	for i := range min(len(p.Progs), len(d.Progs)) {
		if a, b := p.Progs[i], d.Progs[i]; a.Type != b.Type || a.Vaddr != b.Vaddr || a.Memsz != b.Memsz {
			t.Errorf("segment %d is %+v; want %+v", i, b.ProgHeader, a.ProgHeader)
		}
	}
	a, b := p.Section(".sframe"), d.Section(".sframe")
	if (a == nil) != (b == nil) || a != nil && (a.Addr != b.Addr || a.Size != b.Size || b.Type != elf.SHT_NOBITS) {
		t.Errorf(".sframe is %+v; the program's is %+v", b, a)
	}
	link := must.Get(p.Section(".gnu_debuglink").Data())(t)
	if want := crc32.ChecksumIEEE(testfile.Read(t, debug)); p.ByteOrder.Uint32(link[len(link)-4:]) != want {
		t.Errorf("the checksum of the debug file is %x; want %x", link[len(link)-4:], want)
	}
}

// TestDebugLink converts a program with a separate debug file, which must still match.
func TestDebugLink(t *testing.T) {
	at, _ := buildSplit(t, "gcc -g -O1 -o prog prog.c\n"+splitOff)
	prog, debug := at("prog"), at("prog.debug")
	before := testfile.Read(t, debug)
	then := time.Unix(1_000_000_000, 0)
	must.Do(t, os.Chtimes(debug, then, then))
	inPlace := func(opt files.Options) *files.Result {
		t.Helper()
		res := must.Get(files.Convert(t.Context(), prog, prog, opt))(t)
		checkPair(t, prog, debug)
		return res
	}
	opt := files.Options{DebugLinkUpdate: debug, KeepDates: true}
	if res := inPlace(opt); res.DebugFile != debug {
		t.Errorf("the debug file is %q; want %q", res.DebugFile, debug)
	}
	if info, err := os.Stat(debug); err != nil || !info.ModTime().Equal(then) {
		t.Errorf("%v, %v; want the old modification time", info, err)
	}
	right, converted := testfile.Read(t, debug), testfile.Read(t, prog)
	if bytes.Equal(right, before) {
		t.Error("the debug file is unchanged")
	}
	// A second run has nothing to do.
	opt.Work = files.Add(convert.Options{Force: true}, "")
	if res := inPlace(opt); res.DebugFile != "" || !bytes.Equal(testfile.Read(t, debug), right) ||
		!bytes.Equal(testfile.Read(t, prog), converted) {
		t.Errorf("second run: the files differ, or the debug file is %q", res.DebugFile)
	}
	// The program is unchanged, and the original debug file gets the program's headers.
	testfile.Write(t, debug, before)
	opt = files.Options{Work: files.Add(convert.Options{Update: true}, ""), DebugLinkUpdate: debug}
	if res := inPlace(opt); res.DebugFile != debug || res.Stays != convert.Current ||
		!bytes.Equal(testfile.Read(t, debug), right) {
		t.Errorf("it is unchanged because of %q, and the debug file is %q", res.Stays, res.DebugFile)
	}
	// Only the checksum is wrong, as after a power failure between the two writes.
	wrong := bytes.Clone(converted)
	link, sec := sectionOf(t, wrong, ".gnu_debuglink")
	wrong[sec.Offset+uint64(len(link))-1] ^= 1
	must.Do(t, os.WriteFile(prog, wrong, 0o777))
	if res := inPlace(opt); res.DebugFile != "" || res.Stays != "" || !bytes.Equal(testfile.Read(t, prog), converted) {
		t.Errorf("a checksum: it is unchanged because of %q, and the debug file is %q", res.Stays, res.DebugFile)
	}
	if res := inPlace(files.Options{Work: files.Remove(""), DebugLinkUpdate: debug}); res.DebugFile != debug {
		t.Errorf("removed: the debug file is %q", res.DebugFile)
	}
}

// TestDebugLinkErrors expects errors for debug files that do not belong to the program. Both are unchanged.
func TestDebugLinkErrors(t *testing.T) {
	at, sh := buildSplit(t, "gcc -g -O1 -o prog prog.c; cp prog full.debug\n"+splitOff+`
		gcc -g -O2 -o other prog.c; objcopy --only-keep-debug other other.debug
		gcc -g -c -o prog.o prog.c; objcopy --only-keep-debug prog.o o.debug; cp prog.o linked.o
		objcopy --add-gnu-debuglink=o.debug linked.o
		objcopy --remove-section=.note.ABI-tag prog.debug less.debug; cp prog.debug text; echo text >text
		ln prog hard.debug; ar rc lib.a prog.o
		objcopy --add-section .more=prog.c --set-section-flags .more=alloc,readonly \
			--change-section-address .more=0x900000 prog.debug more.debug
		cp prog.debug cut.debug; truncate -s 1500 cut.debug; ln -s prog link.debug`)
	before := tree(t, at("."))
	for _, tt := range []struct{ in, debug, want string }{
		{"prog", "other.debug", "debug file " + at("other.debug") + ": "},
		{"prog", "full.debug", "debug file " + at("full.debug") + ": it contains code, like a copy"},
		{"prog", "less.debug", "debug file " + at("less.debug") + ": it has no section .note.ABI-tag"},
		{"prog", "more.debug", "debug file " + at("more.debug") + ": section .more at 0x900000 is not in the program"},
		{"prog", "cut.debug", "debug file " + at("cut.debug") + ": "},
		{"prog", "link.debug", "debug file " + at("link.debug") + ": it is the program;"},
		{"prog", "hard.debug", "debug file " + at("hard.debug") + ": it is the program;"},
		{"prog", "text", "debug file " + at("text") + ": "},
		{"prog", "missing", "debug file " + at("missing") + ": no such file or directory"},
		{"prog.o", "o.debug", "it is a relocatable object"},
		{"linked.o", "auto", "it is a relocatable object"},
	} {
		opt := files.Options{DebugLinkUpdate: at(tt.debug)}
		if tt.debug == "auto" {
			opt.DebugLinkUpdate = tt.debug
		}
		_, err := files.Convert(t.Context(), at(tt.in), at(tt.in), opt)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %s: %v; want %q", tt.in, tt.debug, err, tt.want)
		}
		if after := tree(t, at(".")); !maps.Equal(after, before) {
			t.Fatalf("%s with %s: files have changed", tt.in, tt.debug)
		}
	}
	// If no debug file is searched for, or none is found, there is nothing to do.
	sh("mkdir alone; mv prog.o lib.a alone; cp prog alone")
	for _, name := range []string{"alone/prog.o", "alone/lib.a", "alone/prog"} {
		if res, err := files.Convert(t.Context(), at(name), at(name),
			files.Options{DebugLinkUpdate: "auto"}); err != nil || res.DebugFile != "" {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	// The debug file cannot be replaced: no files can be created in /proc.
	if _, err := files.Convert(t.Context(), at("prog"), at("out"),
		files.Options{DebugLinkUpdate: "/proc/self/exe"}); err == nil {
		t.Error("this program is accepted as a debug file")
	}
}

// TestOutputsRefused makes reading and writing fail at different steps: the error names the file, and nothing is left
// behind.
func TestOutputsRefused(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	copyFixture(t, in)
	want := tree(t, dir)
	if _, err := files.Convert(t.Context(), in, "/dev/full", files.Options{}); err == nil ||
		err.Error() != "cannot write to /dev/full: no space left on device" {
		t.Errorf("/dev/full: %v", err)
	}
	none := filepath.Join(dir, "none")
	t.Setenv("TMPDIR", none)
	const noFolder = ": no such file or directory; set TMPDIR to another directory"
	withStdin(t, newPipe(t, testfile.Read(t, in)), func() {
		if _, err := files.Convert(t.Context(), files.Stdin, filepath.Join(dir, "out"), files.Options{}); err == nil ||
			err.Error() != "cannot write to "+none+noFolder {
			t.Errorf("a pipe without a directory to copy it to: %v", err)
		}
	})
	library := filepath.Join(t.TempDir(), "lib.a")
	testfile.Write(t, library, elftest.Ar(elftest.ArMember("a.o/", elftest.NewObject().Bytes())))
	if _, err := files.Convert(t.Context(), library, filepath.Join(dir, "lib.a"), files.Options{}); err == nil ||
		!strings.HasSuffix(err.Error(), ": cannot write to "+none+noFolder) {
		t.Errorf("an archive without a directory for its members: %v", err)
	}
	if j := each(t.Context(), []string{none}, inPlace(files.Options{}))[0]; !errors.Is(j.Err, os.ErrNotExist) {
		t.Errorf("a missing file: %+v", j)
	}
	if got := tree(t, dir); !maps.Equal(got, want) {
		t.Errorf("there is %v; want %v", got, want)
	}
}

// TestEachKeptNames converts both names of a file that is not converted, and of a file that cannot be replaced.
func TestEachKeptNames(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	testfile.Write(t, at("text"), "This is not an ELF file.")
	copyFixture(t, at("prog"))
	for _, name := range []string{"text", "prog"} {
		must.Do(t, os.Link(at(name), at(name+"2")))
	}
	want := tree(t, dir)
	for _, j := range each(t.Context(), []string{at("text"), at("text2")}, inPlace(files.Options{
		Run: convert.Run{SkipUnsupported: true},
	})) {
		if j.Err != nil || j.Result == nil || j.Result.Stays != convert.NotELF {
			t.Errorf("%s: %+v, %v", j.In, j.Result, j.Err)
		}
	}
	// A different file takes the first name before the result does. The second name is unchanged as well.
	for _, j := range each(t.Context(), []string{at("prog"), at("prog2")}, inPlace(during(func() {
		testfile.Write(t, at("new"), "a new file")
		must.Do(t, os.Rename(at("new"), at("prog")))
	}))) {
		if j.Err == nil {
			t.Errorf("%s is replaced", j.In)
		}
	}
	got := tree(t, dir)
	for name := range want {
		if filepath.Base(name) != "prog" && got[name] != want[name] {
			t.Errorf("%s is %s; want %s", name, got[name], want[name])
		}
	}
}

// TestMountPoint converts files that cannot be replaced because they are mount points, as in containers. No file may
// change, except a debug file that was replaced before the program; the message must name that debug file.
func TestMountPoint(t *testing.T) {
	if os.Geteuid() != 0 {
		peer.Missing(t, "only root can mount a file")
	}
	at, sh := buildSplit(t, "gcc -g -O1 -o prog prog.c\n"+splitOff+"mkdir before; cp prog prog.debug before")
	for _, tt := range []struct{ mounted, err string }{
		{"prog.debug", "debug file " + at("prog.debug") + ": device or resource busy"},
		{"prog", "device or resource busy; its debug file " + at("prog.debug") +
			" is already updated; run the same command again"},
	} {
		if err := unix.Mount(at(tt.mounted), at(tt.mounted), "", unix.MS_BIND, ""); err != nil {
			peer.Missing(t, "a file cannot be mounted: "+err.Error())
		}
		unmount := func() {
			t.Helper()
			if err := unix.Unmount(at(tt.mounted), 0); err != nil {
				t.Error(err)
			}
		}
		_, err := files.Convert(t.Context(), at("prog"), at("prog"), files.Options{DebugLinkUpdate: at("prog.debug")})
		unmount()
		if err == nil || err.Error() != tt.err {
			t.Errorf("%s: %v; want %q", tt.mounted, err, tt.err)
		}
		expectFile(t, tt.mounted, at("prog"), testfile.Read(t, at("before/prog")))
		if tt.mounted == "prog.debug" {
			expectFile(t, tt.mounted, at("prog.debug"), testfile.Read(t, at("before/prog.debug")))
		}
	}
	if _, err := files.Convert(t.Context(), at("prog"), at("prog"),
		files.Options{DebugLinkUpdate: at("prog.debug")}); err != nil {
		t.Error(err)
	}
	checkPair(t, at("prog"), at("prog.debug"))
	sh("./prog a")
}
