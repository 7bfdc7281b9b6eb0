package pack

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"cfi2sframe/internal/rpm"
)

// rpm reads an RPM package: headers, and the files in a cpio archive that is compressed.
func (r *reader) rpm(f io.ReaderAt, size int64) ([]File, error) {
	p, err := rpm.Open(f, size)
	if err != nil {
		return nil, rpmError(err)
	}
	h := p.Main
	want, err := h.Text(rpm.TagPayloadSHA256)
	by, unknown := h.Number(rpm.TagPayloadAlgo, rpm.SHA256) // version 6 does not say by what
	if err = cmp.Or(err, unknown); err != nil {
		return nil, rpmError(err)
	}
	sum := sha256.New()
	payload := io.TeeReader(io.NewSectionReader(f, h.End(), size-h.End()), sum)
	s, err := r.unpack("payload", payload)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out, err := r.cpio(s, h)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, payload); err != nil {
		return nil, s.error("", err)
	}
	if have := hex.EncodeToString(sum.Sum(nil)); want != "" && by == rpm.SHA256 && have != want {
		return nil, s.error("", fmt.Errorf("the package is damaged: its SHA-256 is %s, not %.64s", have, want))
	}
	return out, nil
}

// rpmError returns an error of a header as one of this package.
func rpmError(err error) error {
	var in *rpm.Error
	if errors.As(err, &in) {
		return &Error{Off: in.Off, Err: early(in.Err)}
	}
	return err
}

// cpio reads the payload of a package that has this header.
func (r *reader) cpio(s *stream, h *rpm.Header) ([]File, error) {
	a := rpm.NewArchive(s, h, nil)
	var entries []entry
	members := make(map[[3]uint64]int) // of files, by what several names have in common
	empty := make(map[int][3]uint64)   // names without contents of files that have several names, by index in entries
	for {
		m, err := a.Next()
		if err != nil {
			return nil, s.error("", err)
		}
		if m.Last {
			break
		}
		if err := r.count(m.Name, ""); err != nil {
			return nil, s.error("", err)
		}
		e := entry{name: Clean(m.Name), typ: isOther}
		switch m.Mode & rpm.ModeType {
		case rpm.ModeDir:
			e.typ = isDir
		case rpm.ModeLink:
			e.typ = isSymlink
		case rpm.ModeFile:
			e.typ = isFile
			if m.Links > 1 && m.Size == 0 {
				empty[len(entries)] = m.Inode
				break
			}
			if e.member, err = r.member(&Member{Name: e.name, Size: m.Size}, s, a); err != nil {
				return nil, err
			}
			members[m.Inode] = e.member
		}
		entries = append(entries, e)
		if _, err := io.Copy(io.Discard, a); err != nil {
			return nil, s.error(e.name, err)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(empty)) {
		member, ok := members[empty[i]]
		if !ok { // the file is empty
			var err error
			if member, err = r.member(&Member{Name: entries[i].name}, s, bytes.NewReader(nil)); err != nil {
				return nil, err
			}
			members[empty[i]] = member
		}
		entries[i].member = member
	}
	if err := s.drain(s); err != nil {
		return nil, err
	}
	return files(entries)
}
