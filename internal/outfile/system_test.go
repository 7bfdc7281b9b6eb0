//go:build linux && !portable

package outfile

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// TestMain sets the umask, so that the modes of files do not depend on the user's umask.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	os.Exit(m.Run())
}

// stranger is an unprivileged user whose only group is root's.
const stranger = 1234

// asStranger calls a function with the stranger's file access rights (setfsuid(2)), on this thread only.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		peer.Missing(t, "only root can act as a different user")
	}
	runtime.LockOSThread()
	must.Do(t, unix.Setfsuid(stranger))
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Error(err)
		}
		if file, err := os.CreateTemp(t.TempDir(), ""); err != nil { // check that the access rights are restored
			t.Error(err)
		} else {
			file.Close()
		}
		runtime.UnlockOSThread()
	}()
	f()
}

// folderOf creates a directory owned by a user, with a file "old".
func folderOf(t *testing.T, uid int, mode uint32) string {
	t.Helper()
	if uid != os.Geteuid() && os.Geteuid() != 0 {
		peer.Missing(t, "only root can give files to other users")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	old := filepath.Join(dir, "old")
	err := errors.Join(unix.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755), unix.Chmod(filepath.Dir(dir), 0o755),
		os.Mkdir(dir, 0o700), os.WriteFile(old, []byte("old"), 0o644))
	if uid != os.Geteuid() {
		err = errors.Join(err, os.Chown(dir, uid, 0), os.Chown(old, uid, 0))
	}
	if err = errors.Join(err, unix.Chmod(dir, mode)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// replaceIn prepares to replace the file "old" as the input, or as an existing output.
func replaceIn(t *testing.T, dir string, input bool) *File {
	t.Helper()
	path := filepath.Join(dir, "old")
	if !input {
		o := must.Get(Open(path, 0o666))(t)
		t.Cleanup(o.Close)
		return o
	}
	p, _, _, err := OpenInput(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	o := must.Get(Replace(p))(t)
	t.Cleanup(o.Close)
	return o
}

// TestDates gives results the timestamps of a different file.
func TestDates(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "from")
	put(t, from, "from")
	accessed, changed := time.Unix(1_000_000_000, 123_456_789), time.Unix(1_100_000_000, 987_654_321)
	must.Do(t, os.Chtimes(from, accessed, changed))
	file, info := must.Two(OpenRegular(from))(t)
	defer file.Close()
	eachWay(t, func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "old"), "old")
		for _, name := range []string{"old", "new"} {
			path := filepath.Join(dir, name)
			o := must.Get(Open(path, 0o666))(t)
			defer o.Close()
			o.KeepDates(info)
			write(t, o, name)
			must.Do(t, o.Commit())
			var st unix.Stat_t
			must.Do(t, unix.Stat(path, &st))
			if a, m := time.Unix(st.Atim.Unix()), time.Unix(st.Mtim.Unix()); !a.Equal(accessed) || !m.Equal(changed) {
				t.Errorf("%s has dates %v and %v; want %v and %v", name, a, m, accessed, changed)
			}
		}
	})

	o := must.Get(Open(filepath.Join(dir, "closed"), 0o666))(t)
	defer o.Close()
	o.KeepDates(info)
	o.File.Close()
	if err := o.Finish(false); !errors.Is(err, unix.ENOENT) ||
		!strings.HasPrefix(err.Error(), "cannot copy its timestamps to the result: ") {
		t.Errorf("a closed file: %v", err)
	}
}

// TestOpenRegular opens a regular file, and other files without blocking.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put(t, at("file"), "contents")
	must.Do(t, errors.Join(os.Symlink("file", at("link")), unix.Mkfifo(at("pipe"), 0o600)))
	for _, name := range []string{"file", "link"} {
		f, info := must.Two(OpenRegular(at(name)))(t)
		b := make([]byte, 8)
		if _, err := f.ReadAt(b, 0); err != nil || string(b) != "contents" || info.Size() != 8 {
			t.Errorf("%s: %q, %v, size %d", name, b, err, info.Size())
		}
		f.Close()
	}
	for name, want := range map[string]string{
		"pipe": "it is a pipe, not a regular file",
		".":    "it is a directory, not a regular file",
		"none": "open " + at("none") + ": no such file or directory",
	} {
		if f, _, err := OpenRegular(at(name)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v; want %q", name, f, err, want)
		}
	}
	if _, _, err := OpenRegular(at("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not match fs.ErrNotExist", err)
	}
}

// TestNoDevice opens a device file whose device does not exist.
func TestNoDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(4095, 1))); err != nil {
		peer.Missing(t, "a device file cannot be created: "+err.Error())
	}
	if _, err := Open(path, 0o666); err == nil || !errors.Is(err, unix.ENXIO) ||
		err.Error() != "output "+path+": no such device or address" {
		t.Errorf("%v", err)
	}
}

// TestPipeGone removes a pipe before the result is written to it.
func TestPipeGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, unix.Mkfifo(path, 0o600))
	o := must.Get(Open(path, 0o666))(t)
	defer o.Close()
	write(t, o, "contents")
	must.Do(t, os.Remove(path))
	if err, want := o.Commit(), "output "+path+": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("%v; want %q", err, want)
	}
}

// TestNoNameFree expects tryNames to give up if all names are taken.
func TestNoNameFree(t *testing.T) {
	tried := make(map[string]bool)
	_, err := tryNames("dir", func(path string) error {
		tried[path] = true
		return unix.EEXIST
	})
	if err != unix.EEXIST || len(tried) != 100 {
		t.Errorf("%v after %d names; want %v after 100", err, len(tried), unix.EEXIST)
	}
	if _, err := tryNames("dir", func(string) error { return unix.ENOSPC }); err != unix.ENOSPC {
		t.Errorf("%v; want the error", err)
	}
}

// TestStranger replaces files as a user whose access depends on their modes.
func TestStranger(t *testing.T) {
	for _, input := range []bool{false, true} {
		const want = 0o4755
		dir := folderOf(t, stranger, 0o700)
		path := filepath.Join(dir, "old")
		must.Do(t, unix.Chmod(path, 0o4755))
		asStranger(t, func() {
			o := replaceIn(t, dir, input)
			write(t, o, "new")
			if err := o.Commit(); err != nil {
				t.Error(err)
			}
		})
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Mode&0o7777 != want || st.Uid != stranger {
			t.Errorf("%v, mode %o, user %d; want %o and %d", err, st.Mode&0o7777, st.Uid, want, stranger)
		}
		expect(t, dir, map[string]string{"old": "new"})
	}

	// An unreadable directory, with a readable or an unreadable file.
	for _, mode := range []uint32{0o600, 0o200} {
		dir := folderOf(t, stranger, 0o300)
		must.Do(t, unix.Chmod(filepath.Join(dir, "old"), mode))
		asStranger(t, func() {
			o := replaceIn(t, dir, false)
			write(t, o, "new")
			if err := o.Commit(); err != nil {
				t.Error(err)
			}
			if err := SyncDirectory(o.Replaced().Dir()); err != nil {
				t.Errorf("mode %o: %v", mode, err)
			}
			o.place.real += "/none/file"
			const lost = "a power failure may restore old files, because the directory cannot be synced: " +
				"not a directory"
			if err := SyncDirectory(o.Replaced().Dir()); err == nil || err.Error() != lost {
				t.Errorf("%v; want %q", err, lost)
			}
		})
		expect(t, dir, map[string]string{"old": "new"})
	}
}

// TestStrangerRefused expects errors for files that a user may not replace, because the result could not get the same
// owner and mode.
func TestStrangerRefused(t *testing.T) {
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("%v; want %q", err, want)
		}
	}
	// A directory that a different user owns.
	dir := folderOf(t, 0, 0o755)
	path := filepath.Join(dir, "old")
	asStranger(t, func() {
		for _, out := range []string{path, filepath.Join(dir, "new")} {
			_, err := Open(out, 0o666)
			refused(err, "cannot write to "+dir+": permission denied")
		}
		p, _, _, err := OpenInput(path)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		_, err = Replace(p)
		refused(err, "cannot write to "+dir+": permission denied")
	})
	expect(t, dir, map[string]string{"old": "old"})

	// The owner changes before Commit, or was different from the start.
	dir = folderOf(t, stranger, 0o700)
	path = filepath.Join(dir, "old")
	var late *File
	asStranger(t, func() {
		late = replaceIn(t, dir, true)
		write(t, late, "new")
	})
	must.Do(t, os.Chown(path, 7, 0))
	const owner = "cannot copy its owner (user 7) to the result: operation not permitted"
	asStranger(t, func() {
		refused(late.Commit(), owner)
		refused(replaceIn(t, dir, true).Finish(true), owner)
		refused(replaceIn(t, dir, false).Finish(true),
			"cannot keep the owner of the output (user 7): operation not permitted")
	})
	expect(t, dir, map[string]string{"old": "old"})

	// The group cannot be set, or the set-group-ID bit would be lost because new files get the directory's group.
	must.Do(t, os.Chown(path, stranger, 4321))
	asStranger(t, func() {
		refused(replaceIn(t, dir, true).Finish(true),
			"cannot copy its group (4321) to the result: operation not permitted")
	})
	must.Do(t, errors.Join(os.Chown(dir, stranger, 4321), unix.Chmod(dir, 0o2700), unix.Chmod(path, 0o2755)))
	asStranger(t, func() {
		refused(replaceIn(t, dir, true).Finish(true),
			"cannot copy its mode (grwxr-xr-x) to the result: operation not permitted")
	})
	expect(t, dir, map[string]string{"old": "old"})

	// File capabilities.
	capability := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // as in TestAttributes
	dir = folderOf(t, stranger, 0o700)
	if err := unix.Setxattr(filepath.Join(dir, "old"), capabilitiesName, capability, 0); err != nil {
		peer.Missing(t, "file capabilities are missing: "+err.Error())
	}
	defer dropCapability(t, unix.CAP_SETFCAP)()
	asStranger(t, func() {
		refused(replaceIn(t, dir, true).Finish(true),
			"cannot copy its extended attribute security.capability to the result: operation not permitted")
	})
	expect(t, dir, map[string]string{"old": "old"})
}

// dropCapability removes a capability from this thread, and returns a function that restores it.
func dropCapability(t *testing.T, capability int) func() {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	must.Do(t, unix.Capget(&header, &data[0]))
	had := data
	data[capability/32].Effective &^= 1 << (capability % 32)
	must.Do(t, unix.Capset(&header, &data[0]))
	return func() {
		if err := unix.Capset(&header, &had[0]); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	}
}

// TestNoMode changes the owner of a file, after which its mode can no longer be set.
func TestNoMode(t *testing.T) {
	dir := folderOf(t, stranger, 0o755)
	o := replaceIn(t, dir, true)
	defer dropCapability(t, unix.CAP_FOWNER)()
	const want = "cannot copy its mode (-rw-r--r--) to the result: operation not permitted"
	if err := o.Finish(true); err == nil || err.Error() != want {
		t.Errorf("%v; want %q", err, want)
	}
	expect(t, dir, map[string]string{"old": "old"})
}

// TestFolderLocked makes the directory of an output read-only before Commit.
func TestFolderLocked(t *testing.T) {
	eachWay(t, func(t *testing.T) {
		dir := folderOf(t, stranger, 0o700)
		put(t, filepath.Join(dir, "other"), "other")
		asStranger(t, func() {
			o := replaceIn(t, dir, true)
			write(t, o, "new")
			must.Do(t, unix.Chmod(dir, 0o500))
			temp := o.temp
			err := o.Commit()
			if !errors.Is(err, unix.EACCES) {
				t.Errorf("%v; want %v", err, unix.EACCES)
			}
			if forceNamed && (err == nil || !strings.HasSuffix(err.Error(), "; cannot remove the temporary file "+
				filepath.Base(temp)+": permission denied")) {
				t.Errorf("%v does not say that %s is left behind", err, temp)
			}
			if err := o.place.relink(filepath.Join(dir, "other"), o.place.info); !errors.Is(err, unix.EACCES) {
				t.Errorf("a link: %v; want %v", err, unix.EACCES)
			}
			must.Do(t, unix.Chmod(dir, 0o700))
			if temp != "" {
				if err := os.Remove(temp); err != nil {
					t.Error(err)
				}
			}
		})
		expect(t, dir, map[string]string{"old": "old", "other": "other"})
	})
}

// TestSameACL replaces a file that has the default ACL of its directory, and a file without an ACL.
func TestSameACL(t *testing.T) {
	// acl(5), and linux/posix_acl_xattr.h: version 2; tag, permissions and ID of owner, user 12, group, mask and
	// others.
	acl := []byte{2, 0, 0, 0}
	for _, e := range [][3]uint32{{1, 6, ^uint32(0)}, {2, 6, 12}, {4, 4, ^uint32(0)}, {0x10, 0, ^uint32(0)},
		{0x20, 0, ^uint32(0)}} {
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[0]))
		acl = binary.LittleEndian.AppendUint16(acl, uint16(e[1]))
		acl = binary.LittleEndian.AppendUint32(acl, e[2])
	}
	for _, has := range []bool{true, false} {
		dir := t.TempDir()
		path := filepath.Join(dir, "old")
		put(t, path, "old")
		if err := unix.Setxattr(dir, "system.posix_acl_default", acl, 0); err != nil {
			peer.Missing(t, "ACLs are not supported: "+err.Error())
		}
		if has {
			must.Do(t, unix.Setxattr(path, aclName, acl, 0))
		}
		o := replaceIn(t, dir, true)
		write(t, o, "new")
		must.Do(t, o.Commit())
		b := make([]byte, 100)
		n, err := unix.Getxattr(path, aclName, b)
		if has && (err != nil || string(b[:n]) != string(acl)) || !has && err != unix.ENODATA {
			t.Errorf("the old file has an ACL: %t; the new one has %x, error %v", has, b[:max(n, 0)], err)
		}
	}
}

// TestNoProc replaces and creates files without /proc, where an unnamed file could never get a name.
func TestNoProc(t *testing.T) {
	if os.Geteuid() != 0 {
		peer.Missing(t, "only root can hide /proc")
	}
	dir := t.TempDir()
	put(t, filepath.Join(dir, "old"), "old")
	hidden := make(chan error, 1)
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this function
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("none", "/proc", "tmpfs", 0, "")
		}
		if hidden <- err; err != nil {
			return
		}
		for _, name := range []string{"old", "new"} {
			o, err := Open(filepath.Join(dir, name), 0o666)
			if err != nil {
				t.Error(err)
				return
			}
			defer o.Close()
			if o.temp == "" {
				t.Errorf("%s: the result has no temporary name", name)
			}
			if _, err := o.WriteString("contents"); err != nil {
				t.Error(err)
			}
			if err := errors.Join(o.Finish(true), o.Commit()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}()
	<-done
	if err := <-hidden; err != nil {
		peer.Missing(t, "/proc cannot be hidden: "+err.Error())
	}
	expect(t, dir, map[string]string{"old": "contents", "new": "contents"})
}
