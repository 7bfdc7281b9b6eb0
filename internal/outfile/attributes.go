package outfile

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"cfi2sframe/internal/inode"
)

// A file that replaces an old file gets the attributes of the old file: owner, group, mode and, on Linux, ACL and
// extended attributes. If an attribute cannot be set, the replacement fails: a different owner or a missing ACL could
// grant access to others.
//
// If the old file is not the input, the attributes that cp would clear when it overwrites the file are lost: file
// capabilities and, unless the user is root, the set-user-ID and set-group-ID bits.

const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// copyAttributes copies the attributes of the old file to the new one.
func (o *File) copyAttributes() error {
	want, err := o.place.old.Stat()
	if err == nil {
		err = o.changeOwner(want)
	}
	if err == nil {
		err = o.copyExtended()
	}
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		return nil // read-only files cannot be replaced, and Windows has no other modes
	}
	// The mode is set last: changing the owner clears the set-user-ID bit, and setting extended attributes needs write
	// permission.
	mode := want.Mode() & modeBits
	if !o.input && os.Geteuid() != 0 {
		mode &^= fs.ModeSetuid
		if mode&0o010 != 0 {
			mode &^= fs.ModeSetgid
		}
	}
	err = o.Chmod(mode)
	// The kernel silently removes the set-group-ID bit if the user is not in the group.
	if have, failed := o.Stat(); err == nil && (failed != nil || have.Mode()&modeBits != mode) {
		err = cmp.Or(failed, error(syscall.EPERM))
	}
	if err != nil {
		return o.attributeError("mode", fmt.Sprintf(" (%v)", mode), err)
	}
	return nil
}

// changeOwner sets the owner and group of the new file, unless they are already as wanted.
func (o *File) changeOwner(want fs.FileInfo) error {
	have, err := o.Stat()
	if err != nil {
		return err
	}
	uid, gid, ok := inode.Owner(want)
	haveUID, haveGID, _ := inode.Owner(have)
	if !ok || uid == haveUID && gid == haveGID {
		return nil
	}
	what, value := "owner", fmt.Sprintf(" (user %d)", uid)
	if uid == haveUID { // the owner of a file may change only its group
		what, value, uid = "group", fmt.Sprintf(" (%d)", gid), -1
	}
	if err := o.Chown(uid, gid); err != nil {
		return o.attributeError(what, value, err)
	}
	return nil
}

// attributeError is the error for an attribute that cannot be set.
func (o *File) attributeError(what, value string, err error) error {
	if o.input {
		return fmt.Errorf("cannot copy its %s%s to the result: %w", what, value, Plain(err))
	}
	return fmt.Errorf("cannot keep the %s of the output%s: %w", what, value, Plain(err))
}
