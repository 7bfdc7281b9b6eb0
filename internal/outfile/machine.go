package outfile

import (
	"errors"
	"slices"
	"syscall"
)

// missing and denied are the errors of the system for a path without a file, and for a file that the user must not read.
var (
	missing = []syscall.Errno{
		syscall.ENOENT, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG,
	}
	denied = []syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.ENXIO}
)

// IsMissing reports whether an error means that there is no such file.
func IsMissing(err error) bool { return isOneOf(err, missing) }

// OfMachine reports whether an error is one of the machine, such as a full or broken disk, or too little memory. The
// file may be sound and the next run succeed, so that it never counts as unsupported, damaged or missing.
func OfMachine(err error) bool {
	var no syscall.Errno
	return errors.As(err, &no) && !isOneOf(err, missing) && !isOneOf(err, denied)
}

func isOneOf(err error, list []syscall.Errno) bool {
	return slices.ContainsFunc(list, func(no syscall.Errno) bool { return errors.Is(err, no) })
}
