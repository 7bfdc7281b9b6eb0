package pack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/compressed"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/rpm"
)

// A Kind is one of the formats.
type Kind uint8

const (
	None Kind = iota
	Deb
	RPM
	Tar // or an image in one; compressed or not
)

// Is reports whether the name is that of a package, or of the directory of an image layout.
func Is(name string) (bool, error) {
	if IsDir(name) {
		return true, nil
	}
	f, size, err := open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	k, err := KindOf(f, size)
	return k != None, err
}

// layoutFile marks the directory of an image layout.
const layoutFile = "oci-layout"

// IsDir reports whether the name is that of a directory with an image layout.
func IsDir(name string) bool {
	info, err := os.Stat(filepath.Join(name, layoutFile))
	return err == nil && info.Mode().IsRegular()
}

// open opens a regular file, and returns its size.
func open(name string) (*os.File, int64, error) {
	f, info, err := outfile.OpenRegular(name)
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// debFirst is the first member of a Debian package, by deb(5). The header of the archive is what archive reads.
const debFirst = "debian-binary"

// IsDeb reports whether an archive is a Debian package.
func IsDeb(r io.ReaderAt) (bool, error) {
	const at, size = 8, 16 // the first name
	b := make([]byte, size)
	if n, err := r.ReadAt(b, at); n < size {
		if err == io.EOF {
			err = nil
		}
		return false, err
	}
	return strings.TrimRight(string(b), " /") == debFirst, nil
}

// KindOf returns the kind of a file. A file that cannot be decompressed far enough is None.
func KindOf(r io.ReaderAt, size int64) (Kind, error) {
	r = filecopy.Sized(r, size)
	block := make([]byte, blockSize)
	n, err := r.ReadAt(block, 0)
	if err != nil && err != io.EOF {
		return None, err
	}
	head := block[:n]
	if is, _ := archive.Is(bytes.NewReader(head)); is { // memory gives no errors
		if deb, _ := IsDeb(bytes.NewReader(head)); deb {
			return Deb, nil
		}
		return None, nil
	}
	if bytes.HasPrefix(head, []byte(rpm.Magic)) {
		return RPM, nil
	}
	if compressed.Of(head) != compressed.None {
		in, err := compressed.Open(context.Background(), nil, io.NewSectionReader(r, 0, 1<<62))
		if err != nil {
			return None, nil
		}
		defer in.Close()
		n, _ = io.ReadFull(in, block)
		head = block[:n]
	}
	if isTar(head) {
		return Tar, nil
	}
	return None, nil
}

const blockSize = 512 // of tar

// isTar reports whether a block is the header of an entry of a tar, or of more headers of one.
func isTar(b []byte) bool {
	if len(b) < blockSize {
		return false
	}
	_, err := tar.NewReader(bytes.NewReader(b)).Next()
	return err == nil || errors.Is(err, tar.ErrInsecurePath) || errors.Is(err, io.ErrUnexpectedEOF)
}
