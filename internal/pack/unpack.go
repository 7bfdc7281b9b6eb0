package pack

import (
	"errors"
	"io"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/compressed"
	"cfi2sframe/internal/rpm"
)

// A stream is a part of a package, unpacked, as it is read from the beginning to the end.
type stream struct {
	r      *reader
	part   string
	in     io.Reader
	off    int64 // of what comes next
	packed bool
	close  func()
}

// unpack returns what a part of the package unpacks to.
func (r *reader) unpack(part string, in io.Reader) (*stream, error) {
	s := &stream{r: r, part: part, close: func() {}}
	out, form, err := compressed.Open(in)
	s.packed = form.Kind != compressed.None
	if err != nil {
		return nil, s.error("", err)
	}
	s.in, s.close = out, func() { out.Close() }
	return s, nil
}

func (s *stream) Read(b []byte) (int, error) {
	if err := s.r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.in.Read(b)
	s.off += int64(n)
	if spent := s.r.budget.Spend(elffile.CostUnpacked, uint64(n)); spent != nil {
		return 0, spent // without what was read, as a full buffer would hide the error
	}
	return n, err
}

// drain reads what is left, for checksums at the end.
func (s *stream) drain() error {
	_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{s}, make([]byte, 1<<16))
	if err != nil {
		return s.error("", err)
	}
	return nil
}

// error says where an error was found. Member may be "".
func (s *stream) error(member string, err error) error {
	off := s.off
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
	return &Error{Part: s.part, Off: off, Packed: s.packed, Member: member, Err: early(err)}
}
