package outfile

import (
	"errors"
	"slices"
	"syscall"
)

// missing and denied are the system's errors for files that do not exist, and for files that the user may not read.
var (
	missing = []syscall.Errno{
		syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
	}
	denied = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENXIO}
)

// OfMachine reports whether an error comes from the system, such as a full disk, an I/O error, or lack of memory. The
// file may be valid, so it must not count as unsupported, damaged or missing.
func OfMachine(err error) bool {
	var no syscall.Errno
	return errors.As(err, &no) && !isOneOf(err, missing) && !isOneOf(err, denied)
}

// IsShortage reports whether an error means that space or descriptors are used up, possibly by other files of the run.
func IsShortage(err error) bool {
	return isOneOf(err, []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE})
}

func isOneOf(err error, list []syscall.Errno) bool {
	return slices.ContainsFunc(list, func(no syscall.Errno) bool { return errors.Is(err, no) })
}
