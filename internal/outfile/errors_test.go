//go:build linux && !portable

package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// TestOutputErrors opens a socket, and a file whose name is too long. Other outputs that cannot be opened are in
// target.txtar.
func TestOutputErrors(t *testing.T) {
	dir := t.TempDir()
	socket, long := filepath.Join(dir, "s"), filepath.Join(dir, strings.Repeat("x", 300))
	fd := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0))(t)
	defer unix.Close(fd)
	must.Do(t, unix.Bind(fd, &unix.SockaddrUnix{Name: socket}))
	for out, want := range map[string]string{
		socket: " is a socket, not a regular file, a pipe or a character device", long: ": file name too long",
	} {
		if _, err := Open(out, 0o666); err == nil || err.Error() != "output "+out+want {
			t.Errorf("%v; want output %s%s", err, out, want)
		}
	}
}

// TestStdout checks which names mean standard output.
func TestStdout(t *testing.T) {
	for name, want := range map[string]bool{"-": true, "/dev/stdout": true, "/dev/fd/1": true, "/proc/self/fd/1": true,
		"/dev/fd/2": false, "./-": false} {
		if got := IsStdout(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	o, err := Open(Stdout, 0o666)
	if err != nil {
		t.Skip(err) // a terminal
	}
	if !o.Stream() {
		t.Error("standard output is not a stream")
	}
	o.Close()
	if _, err := os.Stdout.Stat(); err != nil {
		t.Errorf("it is closed: %v", err)
	}
}

// TestReplacesInput opens outputs that are the input, under the same or a different name, and outputs that are not.
func TestReplacesInput(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("in"), "old")
	put(t, at("other"), "old")
	must.Do(t, errors.Join(os.Link(at("in"), at("hard")), os.Symlink("in", at("soft"))))
	in := must.Get(os.Open(at("in")))(t)
	defer in.Close()
	for name, want := range map[string]bool{"in": true, "hard": true, "soft": true, "other": false, "new": false} {
		o := must.Get(Open(at(name), 0o666))(t)
		for range 2 { // the second call must return the same result
			if got, err := o.ReplacesInput(in); err != nil || got != want {
				t.Errorf("%s: %t, %v", name, got, err)
			}
		}
		if (o.Replaced() != nil) != (name != "new") {
			t.Errorf("%s replaces %v", name, o.Replaced())
		}
		o.Close()
	}
	in.Close()
	o := must.Get(Open(at("other"), 0o666))(t)
	defer o.Close()
	if _, err := o.ReplacesInput(in); err == nil {
		t.Error("no error for a closed input")
	}
}

// TestAttributes replaces files that have extended attributes. As with cp, which overwrites the file, all attributes
// except file capabilities must be preserved. With --in-place, file capabilities must be preserved as well.
func TestAttributes(t *testing.T) {
	if os.Getuid() != 0 {
		peer.Missing(t, "only root can give files to other users")
	}
	const user = "user.cfi2sframe"
	// linux/capability.h, vfs_cap_data: CAP_NET_BIND_SERVICE
	capability := append([]byte{1, 0, 0, 2}, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	for i, input := range []bool{false, true, true} {
		uid := []int{1234, 1234, 0}[i] // in the last case, only the group differs
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		put(t, path, "old")
		if err := unix.Setxattr(path, user, []byte("value"), 0); err != nil {
			peer.Missing(t, "extended attributes are missing: "+err.Error())
		}
		must.Do(t, errors.Join(os.Chown(path, uid, 4321), unix.Setxattr(path, capabilitiesName, capability, 0),
			unix.Chmod(path, 0o6751)))
		var o *File
		var err error
		if input {
			p, f, _, e := OpenInput(path)
			if e != nil {
				t.Fatal(e)
			}
			defer p.Close()
			defer f.Close()
			o, err = Replace(p)
		} else {
			o, err = Open(path, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		write(t, o, "new")
		must.Do(t, o.Commit())
		o.Close()
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || int(st.Uid) != uid || st.Gid != 4321 || st.Mode&0o7777 != 0o6751 {
			t.Errorf("input %t: %v, owner %d:%d, mode %o", input, err, st.Uid, st.Gid, st.Mode)
		}
		b := make([]byte, 64)
		if n, err := unix.Getxattr(path, user, b); err != nil || string(b[:n]) != "value" {
			t.Errorf("input %t: %s is %q, %v", input, user, b[:max(n, 0)], err)
		}
		if n, err := unix.Getxattr(path, capabilitiesName, b); (err == nil) != input || input &&
			string(b[:n]) != string(capability) {
			t.Errorf("input %t: capabilities %x, %v", input, b[:max(n, 0)], err)
		}
		expect(t, dir, map[string]string{"file": "new"})
	}
}

// TestWords checks how messages describe errors and kinds of files.
func TestWords(t *testing.T) {
	for err, want := range map[error]string{
		&fs.PathError{Op: "open", Path: "/x", Err: unix.ENOENT}: "no such file or directory",
		&fs.PathError{Op: "open", Path: "/x",
			Err: os.NewSyscallError("openat", unix.ENOENT)}: "no such file or directory",
		&os.LinkError{Op: "link", Old: "/x", New: "/y", Err: unix.EEXIST}: "file exists",
		os.NewSyscallError("openat", unix.EIO):                            "input/output error",
		errors.New("any other error"):                                     "any other error",
	} {
		if got := Plain(err).Error(); got != want {
			t.Errorf("%v becomes %q; want %q", err, got, want)
		}
	}
	for m, want := range map[fs.FileMode]string{
		fs.ModeDir: "directory", fs.ModeDevice: "device", fs.ModeDevice | fs.ModeCharDevice: "device",
		fs.ModeNamedPipe: "pipe",
		fs.ModeSocket:    "socket", fs.ModeIrregular: "special file",
	} {
		if got := Kind(m); got != want {
			t.Errorf("%v is a %s; want %s", m, got, want)
		}
	}
}

// TestClosed closes the output's file before Finish: nothing is replaced.
func TestClosed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put(t, path, "old")
	for _, out := range []string{path, filepath.Join(dir, "new"), "/dev/null"} {
		o := must.Get(Open(out, 0o600))(t)
		o.File.Close()
		if err := errors.Join(o.Finish(true), o.Commit()); err == nil {
			t.Errorf("%s: no error", out)
		}
		o.Close()
		expect(t, dir, map[string]string{"file": "old"})
	}
}

// TestNoRoom expects errors for directories in which no file can be created.
func TestNoRoom(t *testing.T) {
	if o, err := Open("/proc/cfi2sframe", 0o666); err == nil ||
		!strings.HasPrefix(err.Error(), "cannot write to /proc: ") {
		t.Errorf("a new file in /proc: %+v, %v", o, err)
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("TMPDIR", none)
	want := "cannot write to " + none + ": no such file or directory; set TMPDIR to another directory"
	if _, err := Scratch(); err == nil || err.Error() != want {
		t.Errorf("Scratch: %v; want %q", err, want)
	}
	if _, err := Open("/dev/null", 0o666); err == nil || err.Error() != want {
		t.Errorf("Open of a device: %v; want %q", err, want)
	}
}

// TestNoName opens an output through the descriptor of a removed file, which cannot be replaced, even if a different
// file has the name that /proc shows.
func TestNoName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "old")
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	must.Do(t, os.Remove(path))
	out := descriptorPath(f) // a link to the file's former name and " (deleted)": proc(5)
	want := "output " + out + " has no name, or was replaced while it was opened"
	if o, err := Open(out, 0o666); err == nil || err.Error() != want {
		t.Errorf("no name: %+v, %v", o, err)
	}
	put(t, path+" (deleted)", "a different file")
	if o, err := Open(out, 0o666); err == nil || err.Error() != want {
		t.Errorf("the name of a different file: %+v, %v; want %q", o, err, want)
	}
}

// TestClosedStdout distinguishes a closed standard stream from the null device.
func TestClosedStdout(t *testing.T) {
	for flags, want := range map[int]bool{os.O_RDWR: true, os.O_WRONLY: false} {
		f := must.Get(os.OpenFile(os.DevNull, flags, 0))(t)
		if got := closed(f); got != want {
			t.Errorf("opened with %d: %t", flags, got)
		}
		f.Close()
	}
}

// TestOfMachine distinguishes system errors from errors in the contents of a file.
func TestOfMachine(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: true, syscall.EMFILE: true, syscall.ENFILE: true,
		syscall.ENOMEM: true, syscall.EINTR: true, syscall.EROFS: true, syscall.EFBIG: true,
		&os.PathError{Err: syscall.EIO}: true, fmt.Errorf("reading it: %w", syscall.EIO): true,
		syscall.ENOENT: false, syscall.EACCES: false, &os.PathError{Err: syscall.ENOENT}: false,
		errors.New("not an ELF file"): false, nil: false,
	} {
		if got := OfMachine(err); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
}
