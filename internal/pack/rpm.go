package pack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"cfi2sframe/internal/rpm"
)

// rpm reads an RPM package: headers, and the files in a cpio archive that is compressed.
func (r *reader) rpm(f io.ReaderAt, size int64) ([]File, error) {
	_, h, err := rpm.Headers(f, size)
	if err != nil {
		return nil, rpmError(err)
	}
	format, err := h.Text(rpm.TagPayloadFormat)
	want, wrong := h.Text(rpm.TagPayloadSHA256)
	by, unknown := h.Numbers(rpm.TagPayloadAlgo)
	if err = errors.Join(err, wrong, unknown); err != nil {
		return nil, rpmError(err)
	}
	if format != "" && format != "cpio" {
		return nil, &Error{Off: h.End(), Err: fmt.Errorf("a payload of format %.32q; cpio was expected", format)}
	}
	payload := io.Reader(io.NewSectionReader(f, h.End(), size-h.End()))
	var sum hash.Hash
	if want != "" && (len(by) == 0 || by[0] == rpm.SHA256) { // version 6 does not say by what
		sum = sha256.New()
		payload = &summed{payload, sum}
	}
	s, err := r.unpack("payload", payload)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out, err := r.cpio(s, h)
	if err != nil {
		return nil, err
	}
	if sum != nil {
		if _, err := io.Copy(io.Discard, payload); err != nil {
			return nil, s.error("", err)
		}
		if have := hex.EncodeToString(sum.Sum(nil)); have != want {
			return nil, s.error("", fmt.Errorf("the SHA-256 is %s; %.64s was expected", have, want))
		}
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
	var order [][3]uint64                  // of files with several names
	groups := make(map[[3]uint64][]string) // their names without contents so far
	have := make(map[[3]uint64]int)        // their members
	for {
		m, err := a.Next()
		if err != nil {
			return nil, s.error("", err)
		}
		if m.Last {
			break
		}
		name := clean(m.Name)
		if err := r.count(m.Name, ""); err != nil {
			return nil, s.error("", err)
		}
		e := entry{name: name, typ: isOther, member: -1}
		switch m.Mode & rpm.ModeType {
		case rpm.ModeFolder:
			e.typ = isDir
		case rpm.ModeLink:
			e.typ = isSymlink
		case rpm.ModeFile:
			e.typ = isFile
			if m.Links > 1 && m.Size == 0 {
				if i, ok := have[m.Inode]; ok {
					e.member = i
					break
				}
				if groups[m.Inode] == nil {
					order = append(order, m.Inode)
				}
				groups[m.Inode] = append(groups[m.Inode], name)
				continue
			}
			if e.member, err = r.member(name, m.Size, s, a); err != nil {
				return nil, err
			}
			if m.Links > 1 {
				have[m.Inode] = e.member
			}
		}
		entries = append(entries, e)
		if _, err := io.Copy(io.Discard, a); err != nil {
			return nil, s.error(name, err)
		}
	}
	if err := s.drain(s); err != nil {
		return nil, err
	}
	for _, inode := range order {
		i, ok := have[inode]
		if !ok { // it is empty
			var err error
			if i, err = r.member(groups[inode][0], 0, s, bytes.NewReader(nil)); err != nil {
				return nil, err
			}
		}
		for _, name := range groups[inode] {
			entries = append(entries, entry{name: name, member: i})
		}
	}
	return files(entries)
}
