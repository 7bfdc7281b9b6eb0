// Package pack reads the files in packages and images one after the other: Debian packages, RPM packages, tar
// archives, OCI image layouts (a directory, or a tar of one) and the output of "docker save". The first bytes of a
// file say what it is, not its name.
//
// The files of an image are those that a container sees: layers replace and remove what is in the layers below. They
// are known only at the end. So the visitor gets all files, and afterwards the list of those that count.
//
// Sizes in a package are not trusted: memory is allocated for bytes that were read, and the budget bounds the
// unpacked size. A compressed tar with an image is unpacked to a file without a name.
//
// Not in here: packages in packages; ar archives, which are for the visitor (internal/archive); delta RPMs; the
// verification of signatures. Symbolic links and devices are no files. Libraries for RPM trust sizes in headers, and
// those for images need a hundred modules.
package pack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/compressed"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
)

// A Member is a regular file in a package while it is visited.
type Member struct {
	Index int    // in the order in which they come
	Name  string // that the package has for it; Files has the one that counts
	Size  int64
	Head  []byte // its first bytes, up to HeadSize

	Budget *elffile.Budget // of the package

	sparse   bool // it is stored without its holes
	stream   *stream
	contents io.Reader // after the first bytes
}

// Load copies the member to a file without a name. The visitor has to return its error, and to close the file.
func (m *Member) Load() (*os.File, error) {
	if m.sparse { // reading the stream does not spend for holes
		if err := m.Budget.Spend(elffile.CostUnpacked, uint64(m.Size)); err != nil {
			return nil, m.stream.error(m.Name, err)
		}
	}
	f, err := outfile.Scratch()
	if err != nil {
		return nil, m.stream.error(m.Name, err)
	}
	_, err = io.CopyN(compressed.Output{File: f}, io.MultiReader(bytes.NewReader(m.Head), m.contents), m.Size)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		f.Close()
		return nil, m.stream.error(m.Name, err)
	}
	return f, nil
}

// HeadSize is enough to recognize ELF files and archives.
const HeadSize = 64

// A File is a member that the unpacked package has.
type File struct {
	Name   string // without a leading "./" or "/"; the first of several
	Member int    // its index. It is there more than once if images share it
	Err    error  // this is no file, but an image of several that is missing
}

// An Error is an error with its place in a package.
type Error struct {
	Part   string // of the package, such as data.tar.xz; or "" for the file itself
	Off    int64  // in the part, unpacked, in bytes
	Packed bool   // the part is compressed: the file has no such offset
	Member string // that was read last, or ""
	Err    error
}

func (e *Error) Error() string {
	place := fmt.Sprintf("at offset %#x", e.Off)
	if e.Part != "" {
		place = e.Part + ": " + place
	}
	if e.Packed {
		place += " of the unpacked data"
	}
	if e.Member != "" {
		place += ", in or after " + e.Member
	}
	return fmt.Sprintf("%s: %v", place, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// maxName bounds the bytes of a name.
const maxName = 4096

// Costs of work, as in elffile.Budget.
const (
	costName = 40    // a byte of names and of what links lead to
	costNode = 1_000 // an entry that is put into a tree, for each image
	costStep = 100   // a directory on the way to one
	costText = 50    // a byte of what describes an image
)

// newBudget makes the budget of a package. It is a variable for tests.
var newBudget = elffile.NewBudget

// A reader reads a package.
type reader struct {
	ctx     context.Context
	visit   func(*Member) error
	members int
	budget  *elffile.Budget
}

// Each reads the package with the given name, a file or the directory of an image layout, and calls visit for every
// regular file in it. It returns the files that the unpacked package has. An error of visit ends it, and is returned
// unchanged.
func Each(ctx context.Context, name string, visit func(*Member) error) ([]File, error) {
	r := &reader{ctx: ctx, visit: visit}
	if IsDir(name) {
		dir := layoutDir(name)
		size, err := dir.size()
		if err != nil {
			return nil, err
		}
		r.budget = newBudget(size)
		return r.image(dir.open)
	}
	file, size, err := open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r.budget = newBudget(size)
	f := filecopy.Sized(file, size)
	kind, err := KindOf(f, size)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Deb:
		return r.deb(f, size)
	case RPM:
		return r.rpm(f, size)
	case Tar:
		return r.tarFile(f, size)
	}
	return nil, errors.New("neither a package (.deb, .rpm or a tar) nor an image")
}

// member shows a file to the visitor, and returns its index.
func (r *reader) member(m *Member, s *stream, contents io.Reader) (int, error) {
	if m.Name == "" {
		return 0, s.error("", errors.New("a file without a name"))
	}
	m.Index, m.Budget, m.stream, m.contents = r.members, r.budget, s, contents
	r.members++
	m.Head = make([]byte, min(m.Size, HeadSize))
	if _, err := io.ReadFull(contents, m.Head); err != nil {
		return 0, s.error(m.Name, err)
	}
	return m.Index, r.visit(m)
}

// count bounds the memory for members.
func (r *reader) count(name, link string) error {
	if len(name) > maxName || len(link) > maxName {
		return fmt.Errorf("a name of %d bytes; at most %d are accepted", max(len(name), len(link)), maxName)
	}
	return cmp.Or(r.budget.Spend(elffile.CostEntry, 1), r.budget.Spend(costName, uint64(len(name)+len(link))))
}

// early returns io.ErrUnexpectedEOF for an early end, and errors of the system without the name of the file.
func early(err error) error {
	var system *fs.PathError
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case errors.As(err, &system):
		return system.Err
	}
	return err
}

// Clean returns a member's name from the root, or "" for the root.
func Clean(name string) string { return path.Clean("/" + name)[1:] }
