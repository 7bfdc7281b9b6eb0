//go:build linux && !portable

package outfile

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What replaces a file is a new file. It gets the attributes of the old one: owner, group, mode,
// ACL and the other extended attributes. If one cannot be given to it, it does not replace the
// old file: another owner, or an ACL less, can open a file to others.
//
// An output that is not the input is treated as cp treats it, which writes into the file that is
// there: that takes off file capabilities and, unless root does it, the set-user-ID and
// set-group-ID bits.

const (
	aclName          = "system.posix_acl_access"
	capabilitiesName = "security.capability"
)

// signatures are attributes that sign or sum up the contents, and would be wrong. The kernel
// makes them anew where it wants any.
var signatures = []string{"security.ima", "security.evm"}

// likeOld gives the file the attributes of the one that it replaces.
func (o *File) likeOld() error {
	want, err := stat(o.place.old)
	if err != nil {
		return err
	}
	have, err := stat(o.File)
	if err != nil {
		return err
	}
	o.changed = want.Ctim
	if err := o.giveTo(&have, &want); err != nil {
		return err
	}
	if err := o.copyExtended(); err != nil {
		return err
	}
	// Last: the owner's change clears the set-user-ID bit, and without the permission to write
	// there are no more attributes.
	mode := want.Mode & 0o7777
	if !o.input && !mayKeepSetID() {
		mode = withoutSetID(mode)
	}
	if err := retry(func() error { return unix.Fchmod(int(o.Fd()), mode) }); err != nil {
		return o.notGiven("mode", fmt.Sprintf(" (%04o)", mode), err)
	}
	// The kernel takes the set-group-ID bit off a file of a group that the user is not in,
	// and says nothing.
	if have, err = stat(o.File); err != nil {
		return err
	}
	if have.Mode&0o7777 != mode || have.Uid != want.Uid || have.Gid != want.Gid {
		return o.notGiven("mode", fmt.Sprintf(" (%04o)", mode), unix.EPERM)
	}
	return nil
}

// date gives the file the dates that it is to have.
func (o *File) date() error {
	if o.dates == nil {
		return nil
	}
	st, ok := o.dates.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	dates := []unix.Timespec{unix.Timespec(st.Atim), unix.Timespec(st.Mtim)}
	err := retry(func() error { return unix.UtimesNanoAt(int(o.Fd()), "", dates, unix.AT_EMPTY_PATH) })
	if err == unix.EINVAL || err == unix.ENOENT { // before Linux 5.8
		err = unix.UtimesNano(procPath(o.File), dates)
	}
	if err != nil {
		return fmt.Errorf("its dates cannot be given to the result: %w", err)
	}
	return nil
}

// giveTo gives the file, which is as have says, the owner and the group that want says.
func (o *File) giveTo(have, want *unix.Stat_t) error {
	what, value, uid := "owner", fmt.Sprintf(" (user %d)", want.Uid), int(want.Uid)
	switch {
	case want.Uid != have.Uid:
	case want.Gid != have.Gid: // who owns a file may give it to any group of his
		what, value, uid = "group", fmt.Sprintf(" (%d)", want.Gid), -1
	default:
		return nil
	}
	if err := retry(func() error { return unix.Fchown(int(o.Fd()), uid, int(want.Gid)) }); err != nil {
		return o.notGiven(what, value, err)
	}
	return nil
}

// likeStill is likeOld once more if the old file's attributes were changed since.
func (o *File) likeStill() error {
	st, err := stat(o.place.old)
	if err != nil {
		return err
	}
	if st.Ctim == o.changed {
		return nil
	}
	return o.likeOld()
}

// notGiven says which attribute the result cannot have.
func (o *File) notGiven(what, value string, err error) error {
	if o.input {
		return fmt.Errorf("its %s%s cannot be given to the result: %w", what, value, err)
	}
	return fmt.Errorf("the %s of the output%s cannot be given to the result: %w", what, value, err)
}

// withoutSetID returns the mode that a file has after somebody without root's rights wrote to
// it (inode(7)).
func withoutSetID(mode uint32) uint32 {
	mode &^= unix.S_ISUID
	if mode&unix.S_IXGRP != 0 {
		mode &^= unix.S_ISGID
	}
	return mode
}

// mayKeepSetID reports whether files keep their set-user-ID bits when this process writes to
// them.
func mayKeepSetID() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_FSETID) != 0
}

// copyExtended gives the file the extended attributes of the old one, of which the ACL is one,
// and takes away an ACL that it got from its folder.
func (o *File) copyExtended() error {
	from, to := extendedOf(o.place.old), extendedOf(o.File)
	names, err := from.list()
	if err != nil {
		return fmt.Errorf("the extended attributes of %s cannot be read: %w", o.place.path, err)
	}
	if !slices.Contains(names, aclName) {
		if err := to.remove(aclName); err != nil {
			return fmt.Errorf("the ACL that the result has from its folder cannot be removed: %w", err)
		}
	}
	for _, name := range names {
		if slices.Contains(signatures, name) || name == capabilitiesName && !o.input {
			continue
		}
		value, err := from.get(name)
		if err == unix.ENODATA { // it is gone meanwhile
			continue
		}
		if err == nil {
			// What it has already it need not be given, which may not be permitted.
			if have, e := to.get(name); e == nil && bytes.Equal(have, value) {
				continue
			}
			err = to.set(name, value)
		}
		if err != nil {
			return o.notGiven("extended attribute "+name, "", err)
		}
	}
	return nil
}

// extended are the extended attributes of a file that is open, in whatever way.
type extended struct {
	fd   int
	path string // of one that is not open for reading, or ""
}

func extendedOf(f *os.File) extended {
	e := extended{fd: int(f.Fd())}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err == nil && flags&unix.O_PATH != 0 {
		e.path = procPath(f)
	}
	return e
}

// list returns the names.
func (e extended) list() ([]string, error) {
	b, err := sized(func(b []byte) (int, error) {
		if e.path != "" {
			return unix.Listxattr(e.path, b)
		}
		return unix.Flistxattr(e.fd, b)
	})
	if err == unix.EOPNOTSUPP { // the file system has none
		return nil, nil
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 }), err
}

// get returns the value of one.
func (e extended) get(name string) ([]byte, error) {
	return sized(func(b []byte) (int, error) {
		if e.path != "" {
			return unix.Getxattr(e.path, name, b)
		}
		return unix.Fgetxattr(e.fd, name, b)
	})
}

// sized calls a function that fills in a buffer, or tells the size that it has to have.
func sized(f func([]byte) (int, error)) ([]byte, error) {
	for {
		var n int
		size := func(b []byte) func() error {
			return func() (err error) {
				n, err = f(b)
				return err
			}
		}
		if err := retry(size(nil)); err != nil || n == 0 {
			return nil, err
		}
		b := make([]byte, n)
		if err := retry(size(b)); err != unix.ERANGE { // it has grown meanwhile
			return b[:max(n, 0)], err
		}
	}
}

func (e extended) set(name string, value []byte) error {
	return retry(func() error { return unix.Fsetxattr(e.fd, name, value, 0) })
}

// remove removes one, if it is there.
func (e extended) remove(name string) error {
	_, err := e.get(name)
	if err == nil {
		err = retry(func() error { return unix.Fremovexattr(e.fd, name) })
	}
	if err == unix.ENODATA || err == unix.EOPNOTSUPP {
		return nil
	}
	return err
}
