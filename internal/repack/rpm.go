package repack

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/compressed"
	"cfi2sframe/internal/rpm"
)

// signedBy are the tags of signatures.
var signedBy = map[uint32]string{
	rpm.SigDSA: "DSA", rpm.SigRSA: "RSA", rpm.SigOpenPGP: "OPENPGP", rpm.SigPGP: "PGP", rpm.SigGPG: "GPG", rpm.SigPGP5: "PGP5",
	rpm.SigFileSignatures: "FILESIGNATURES", rpm.SigVeritySignatures: "VERITYSIGNATURES",
}

// digests are the sums of files, by their numbers in OpenPGP.
var digests = map[uint64]func() hash.Hash{
	1: md5.New, 2: sha1.New, 8: sha256.New, 9: sha512.New384, 10: sha512.New, 11: sha256.New224, 12: newSHA3, 14: newSHA3x512,
}

func newSHA3() hash.Hash     { return sha3.New256() }
func newSHA3x512() hash.Hash { return sha3.New512() }

// An rpmPackage is the work on a package. Sizes and sums of files have a fixed size in the headers, whose layout does not change.
type rpmPackage struct {
	*packer
	sig, main *rpm.Header
	payload   int64 // where it begins
	kind      compressed.Kind

	files   *rpm.Files
	names   []string         // of files, without / at the begin
	index   map[string]int   // of files by names
	digests [][]byte         // in the header
	sum     func() hash.Hash // of files
}

// rpm converts a package of RPM. It returns the parts of the result, or nil if nothing changes.
func (p *packer) rpm() ([]part, error) {
	m := &rpmPackage{packer: p}
	if err := m.headers(); err != nil {
		return nil, err
	}
	if err := m.intact(); err != nil {
		return nil, err
	}
	if err := m.describe(); err != nil {
		return nil, err
	}
	if p.opt.DryRun {
		return []part{}, m.convert(io.Discard)
	}
	if changes, err := p.changes(m.convert); !changes {
		return nil, err
	}
	r, err := m.open()
	if err != nil {
		return nil, err
	}
	r.Close()
	plain := newSums()
	payload, err := p.store(r.Form, func(w io.Writer) error { return m.convert(io.MultiWriter(w, plain)) })
	if err != nil {
		return nil, err
	}
	packed := newSums()
	if err := payload.copyTo(p.ctx, packed); err != nil {
		return nil, err
	}
	if err := m.sums(payload, packed, plain); err != nil {
		return nil, err
	}
	begin := make([]byte, rpm.LeadSize)
	if _, err := p.src.ReadAt(begin, 0); err != nil {
		return nil, err
	}
	padding := make([]byte, m.main.Off-m.sig.End())
	return []part{literal(begin), literal(m.sig.Raw), literal(padding), literal(m.main.Raw), *payload}, nil
}

// headers reads the lead and the headers.
func (m *rpmPackage) headers() error {
	lead := make([]byte, rpm.LeadSize)
	if n, err := m.src.ReadAt(lead, 0); n < len(lead) {
		if err == io.EOF {
			return rpm.Errorf(0, "it ends early; a lead of %d bytes was expected", rpm.LeadSize)
		}
		return rpm.Errorf(0, "%w", err)
	}
	if major, kind := lead[4], binary.BigEndian.Uint16(lead[6:]); major < 3 || kind > 1 {
		return rpm.Errorf(4, "format %d and type %d; 3 or later, and 0 or 1, were expected", major, kind)
	}
	var err error
	if m.sig, m.main, err = rpm.Headers(m.src, m.size); err != nil {
		return err
	}
	m.payload = m.main.End()
	for _, h := range []*rpm.Header{m.sig, m.main} {
		seen := make(map[uint32]bool)
		for _, tag := range h.Tags() {
			if seen[tag] { // programs differ in which one they take
				return rpm.Errorf(h.Off, "tag %d twice; one was expected", tag)
			}
			seen[tag] = true
			if name, ok := signedBy[tag]; ok && h == m.sig {
				return rpm.Errorf(h.Off, "signature %s (tag %d): %w", name, tag, ErrSigned)
			}
		}
	}
	if m.main.Has(rpm.TagFileSignatures) {
		return rpm.Errorf(m.main.Off, "signatures of files (tag %d): %w", rpm.TagFileSignatures, ErrSigned)
	}
	format, err := m.main.Text(rpm.TagPayloadFormat)
	if err != nil {
		return err
	}
	if format != "" && format != "cpio" {
		return rpm.Errorf(m.main.Off, "tag %d, %.32q; cpio was expected", rpm.TagPayloadFormat, format)
	}
	compressor, err := m.main.Text(rpm.TagCompressor)
	if err != nil {
		return err
	}
	m.kind = cmp.Or(compressed.Kind(compressor), compressed.Gzip)
	head := make([]byte, compressed.HeadSize)
	n, err := m.src.ReadAt(head, m.payload)
	if err != nil && err != io.EOF {
		return err
	}
	if compressed.Of(head[:n]) == compressed.None { // whatever the tag says
		m.kind = compressed.None
	}
	return nil
}

// intact returns an error if a sum of the header or of the payload is wrong: new sums would hide that.
func (m *rpmPackage) intact() error {
	algo, err := m.main.Numbers(rpm.TagPayloadAlgo)
	if err != nil {
		return err
	}
	if len(algo) > 0 && algo[0] != rpm.SHA256 {
		return rpm.Errorf(m.main.Off, "tag %d, sums of kind %d; SHA-256 was expected", rpm.TagPayloadAlgo, algo[0])
	}
	one, two, three, both, packed := sha1.New(), sha256.New(), sha3.New256(), md5.New(), newSums()
	_, _ = io.MultiWriter(one, two, three, both).Write(m.main.Raw) // sums have no errors
	payload := part{from: m.src, off: m.payload, size: m.size - m.payload}
	if err := payload.copyTo(m.ctx, io.MultiWriter(packed, both)); err != nil {
		return err
	}
	for _, sum := range []struct {
		in  *rpm.Header
		tag uint32
		of  hash.Hash
	}{
		{m.sig, rpm.SigSHA1, one}, {m.sig, rpm.SigSHA256, two}, {m.sig, rpm.SigSHA3, three},
		{m.main, rpm.TagPayloadSHA256, packed.sha256}, {m.main, rpm.TagPayloadSHA512, packed.sha512}, {m.main, rpm.TagPayloadSHA3, packed.sha3},
	} {
		have, err := sum.in.Texts(sum.tag)
		if err != nil {
			return err
		}
		if want := hexSum(sum.of); len(have) > 0 && !strings.EqualFold(string(have[0]), want) {
			return rpm.Errorf(sum.in.Off, "sum %.128q (tag %d); %s was expected, as the package is: it is damaged", have[0], sum.tag, want)
		}
	}
	have, err := m.md5()
	if err != nil {
		return err
	}
	if want := both.Sum(nil); have != nil && !bytes.Equal(have, want) {
		return rpm.Errorf(m.sig.Off, "sum %x (tag %d); %x was expected, as the package is: it is damaged", have, rpm.SigMD5, want)
	}
	return nil
}

// md5 returns where the sum of header and payload is, or nil.
func (m *rpmPackage) md5() ([]byte, error) {
	b, err := m.sig.Bytes(rpm.SigMD5)
	if b != nil && len(b) != md5.Size {
		err = rpm.Errorf(m.sig.Off, "tag %d of %d bytes; a sum of %d was expected", rpm.SigMD5, len(b), md5.Size)
	}
	return b, err
}

// describe reads the descriptions of files in the header.
func (m *rpmPackage) describe() error {
	h := m.main
	var err error
	if m.files, err = h.Files(); err != nil {
		return err
	}
	if m.digests, err = h.Texts(rpm.TagFileDigests); err != nil {
		return err
	}
	if len(m.digests) != len(m.files.Names) {
		return rpm.Errorf(h.Off, "tag %d has %d sums; one for each of %d files was expected", rpm.TagFileDigests, len(m.digests), len(m.files.Names))
	}
	m.index = make(map[string]int)
	for i, name := range m.files.Names {
		name = clean(name)
		m.names = append(m.names, name)
		m.index[name] = i
	}
	algo, err := h.Numbers(rpm.TagDigestAlgo)
	if err != nil {
		return err
	}
	number := uint64(1)
	if len(algo) > 0 {
		number = algo[0]
	}
	if m.sum = digests[number]; m.sum == nil {
		return rpm.Errorf(h.Off, "tag %d, sums of kind %d; a known one (MD5, SHA-1, SHA-2 or SHA-3) was expected", rpm.TagDigestAlgo, number)
	}
	return nil
}

// open returns the payload, decompressed.
func (m *rpmPackage) open() (*compressed.Reader, error) {
	r, err := m.unpack(m.payload, m.size-m.payload, m.kind)
	if err != nil {
		return nil, rpm.Errorf(m.payload, "payload: %w", err)
	}
	return r, nil
}

// wrong returns an error at an offset of the payload.
func (m *rpmPackage) wrong(off int64, format string, args ...any) error {
	return &rpm.Error{Off: m.payload, Payload: off, Err: fmt.Errorf(format, args...)}
}

// convert writes the payload with the files converted, and writes their sizes and sums into the header.
func (m *rpmPackage) convert(w io.Writer) error {
	in, err := m.open()
	if err != nil {
		return err
	}
	defer in.Close()
	a := rpm.NewArchive(in, m.main, m.files)
	for {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		e, err := a.Next()
		if err != nil {
			return err
		}
		if e.Last {
			if _, err := w.Write(e.Raw); err != nil {
				return err
			}
			at := in.Off
			if err := copyTail(w, in); err != nil {
				return m.wrong(at, "%w", err)
			}
			return nil
		}
		if err := m.budget.Spend(elffile.CostEntry, 1); err != nil {
			return m.wrong(e.Off, "%w", err)
		}
		if err := m.member(w, a, e); err != nil {
			return err
		}
	}
}

// member writes a file of the payload, converted.
func (m *rpmPackage) member(w io.Writer, a *rpm.Archive, e *rpm.Member) error {
	file, head := e.File, e.Raw
	if file < 0 {
		var ok bool
		if file, ok = m.index[clean(e.Name)]; !ok {
			return m.wrong(e.Off, "a file %.100q that the header of the package does not have", e.Name)
		}
	}
	changed := &change{}
	var err error
	if m.files.Modes[file]&rpm.ModeType == rpm.ModeFile {
		switch {
		case e.Size > 0:
			changed, err = m.replace(file, e.Size, a)
		case m.files.Sizes[file] == 0: // and not another name of one with contents
			m.res.Others++
		}
		if err != nil {
			return err
		}
	}
	defer changed.close()
	first := changed.old
	if changed.now != nil {
		first = changed.now
		head, err = e.Resized(first.Reader(), first.Size())
	}
	if err != nil {
		return m.wrong(e.Off, "%w", err)
	}
	if _, err := io.Copy(w, io.MultiReader(bytes.NewReader(head), first.Reader(), a)); err != nil {
		return err
	}
	padding, err := a.Padding()
	if changed.now != nil {
		padding = make([]byte, -changed.now.Size()&3)
	}
	if err == nil {
		_, err = w.Write(padding)
	}
	return err
}

// replace returns the change of a file, whose header it updates.
func (m *rpmPackage) replace(file int, size int64, r io.Reader) (*change, error) {
	c := candidate{name: m.names[file], size: size}
	if slices.ContainsFunc(m.files.Linked(file), func(i int) bool { return m.files.Flags[i]&rpm.FlagConfig != 0 }) {
		c.stays = Conffile
	}
	changed, err := m.edit(c, r)
	if err != nil || changed.now == nil {
		return changed, err
	}
	if err := m.update(file, changed); err != nil {
		changed.close()
		return nil, err
	}
	return changed, nil
}

// hexSum returns a sum in hexadecimal digits.
func hexSum(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)) }

// update writes the size and the sum of a file that changed into the header, for all its names.
func (m *rpmPackage) update(file int, changed *change) error {
	old, err := sumOf(m.sum, changed.old)
	if err != nil {
		return err
	}
	sum, err := sumOf(m.sum, changed.now)
	if err != nil {
		return err
	}
	before, after := changed.old.Size(), changed.now.Size()
	if have := string(m.digests[file]); !strings.EqualFold(have, old) {
		return rpm.Errorf(m.main.Off, "tag %d has %s for %s; %s was expected, as the file is", rpm.TagFileDigests, have, m.names[file], old)
	}
	names := m.files.Linked(file)
	for _, i := range names {
		if i != file && (m.files.Sizes[i] != m.files.Sizes[file] || !strings.EqualFold(string(m.digests[i]), old)) {
			return rpm.Errorf(m.main.Off, "%s is another name of %s, and has another size or sum", m.names[i], m.names[file])
		}
	}
	for _, i := range names {
		for _, tag := range []uint32{rpm.TagFileSizes, rpm.TagLongFileSizes} {
			if err := m.main.SetNumber(tag, i, uint64(after)); err != nil {
				return err
			}
		}
		copy(m.digests[i], sum)
	}
	for _, tag := range []uint32{rpm.TagSize, rpm.TagLongSize} {
		all, err := m.main.Numbers(tag)
		if err == nil && len(all) > 0 {
			err = m.main.SetNumber(tag, 0, all[0]+uint64(after-before))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// payloadSums are the sums of a payload.
type payloadSums struct {
	sha256, sha512, sha3 hash.Hash
	size                 int64 // bytes
}

func newSums() *payloadSums {
	return &payloadSums{sha256: sha256.New(), sha512: sha512.New(), sha3: sha3.New256()}
}

func (s *payloadSums) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	return io.MultiWriter(s.sha256, s.sha512, s.sha3).Write(p)
}

// sums writes the sums and sizes of the payload into the main header, and then those of this header, and of both, into the other one.
func (m *rpmPackage) sums(payload *part, packed, plain *payloadSums) error {
	h, size := m.main, plain.size
	err := errors.Join(
		h.SetText(rpm.TagPayloadSHA256, hexSum(packed.sha256)), h.SetText(rpm.TagPlainSHA256, hexSum(plain.sha256)),
		h.SetText(rpm.TagPayloadSHA512, hexSum(packed.sha512)), h.SetText(rpm.TagPlainSHA512, hexSum(plain.sha512)),
		h.SetText(rpm.TagPayloadSHA3, hexSum(packed.sha3)), h.SetText(rpm.TagPlainSHA3, hexSum(plain.sha3)),
		h.SetNumber(rpm.TagPayloadSize, 0, uint64(payload.size)), h.SetNumber(rpm.TagPayloadPlain, 0, uint64(size)), h.SetNumber(rpm.TagPlainSize, 0, uint64(size)),
	)
	if err != nil {
		return err
	}
	one, two, three := sha1.New(), sha256.New(), sha3.New256()
	both := md5.New()
	_, _ = io.MultiWriter(one, two, three, both).Write(h.Raw) // sums have no errors
	if err := payload.copyTo(m.ctx, both); err != nil {
		return err
	}
	s, total := m.sig, uint64(int64(len(h.Raw))+payload.size)
	err = errors.Join(
		s.SetText(rpm.SigSHA1, hexSum(one)), s.SetText(rpm.SigSHA256, hexSum(two)), s.SetText(rpm.SigSHA3, hexSum(three)),
		s.SetNumber(rpm.SigSize, 0, total), s.SetNumber(rpm.SigLongSize, 0, total), s.SetNumber(rpm.SigPlainSize, 0, uint64(size)), s.SetNumber(rpm.SigLongPlainSize, 0, uint64(size)),
	)
	if err != nil {
		return err
	}
	sum, err := m.md5()
	copy(sum, both.Sum(nil)) // if there is one
	return err
}
