package pack

import (
	"errors"
	"io"

	"cfi2sframe/internal/compressed"
	"cfi2sframe/internal/rpm"
)

// A stream is a part of a package, decompressed.
type stream struct {
	*compressed.Reader
	r    *reader
	part string
}

// unpack opens a part of the package.
func (r *reader) unpack(part string, in io.Reader) (*stream, error) {
	z, err := compressed.Open(r.ctx, r.budget, in)
	s := &stream{z, r, part}
	if err != nil {
		return nil, s.error("", err)
	}
	return s, nil
}

// drain reads the rest of in, which reads the stream: checksums are at the end.
func (s *stream) drain(in io.Reader) error {
	_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{in}, make([]byte, 1<<16))
	if err != nil {
		return s.error("", err)
	}
	return nil
}

// error returns an error with its place. Member may be "".
func (s *stream) error(member string, err error) error {
	off := s.Off
	var in *rpm.Error
	if errors.As(err, &in) {
		if in.Payload < 0 {
			return rpmError(in)
		}
		off, err = in.Payload, in.Err
	}
	var known *Error
	if errors.As(err, &known) || s.r.ctx.Err() != nil {
		return err
	}
	return &Error{Part: s.part, Off: off, Packed: s.Form.Kind != compressed.None, Member: member, Err: early(err)}
}
