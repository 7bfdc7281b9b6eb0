package repack

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/pack"
	"cfi2sframe/internal/rpm"
)

// signedBy are the tags of signatures.
var signedBy = map[uint32]string{
	rpm.SigDSA: "DSA", rpm.SigRSA: "RSA", rpm.SigOpenPGP: "OPENPGP", rpm.SigPGP: "PGP", rpm.SigGPG: "GPG",
	rpm.SigPGP5:           "PGP5",
	rpm.SigFileSignatures: "FILESIGNATURES", rpm.SigVeritySignatures: "VERITYSIGNATURES",
}

// digests are the sums of files, by their numbers in OpenPGP.
var digests = map[uint64]func() hash.Hash{
	1: md5.New, 2: sha1.New, 8: sha256.New, 9: sha512.New384, 10: sha512.New, 11: sha256.New224,
	12: func() hash.Hash { return sha3.New256() }, 14: func() hash.Hash { return sha3.New512() },
}

// An rpmPackage is the work on a package. Sizes and sums of files have a fixed size in the headers, whose layout does
// not change.
type rpmPackage struct {
	*packer
	*rpm.Package

	files   *rpm.Files
	names   []string         // of files, without / at the begin
	index   map[string]int   // of files by names
	digests [][]byte         // in the header
	sum     func() hash.Hash // of files
}

// rpm converts an RPM package. It returns what changes in it.
func (p *packer) rpm() (*changes, error) {
	m := &rpmPackage{packer: p}
	var err error
	if m.Package, err = rpm.Open(p.src, p.src.Size()); err != nil {
		return nil, err
	}
	for _, check := range []func() error{m.unsigned, m.intact, m.describe} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	begin := m.Main.End()
	old, err := p.unpack(begin, p.src.Size()-begin)
	if err != nil {
		return nil, rpm.Errorf(begin, "payload: %w", err)
	}
	payload := &changes{of: old.SectionReader}
	if err := m.convert(old, payload); err != nil {
		return nil, err
	}
	out := &changes{of: p.src}
	if !payload.changed() {
		return out, nil
	}
	if err := old.form.Writable(); err != nil || p.opt.DryRun {
		return out, err
	}
	plain := plainSums()
	r, size := payload.reader(p.ctx)
	now, err := p.packed(old, io.TeeReader(r, plain.writer()))
	if err != nil {
		return nil, err
	}
	if err := m.update(now, size, plain); err != nil {
		return nil, err
	}
	out.replace(m.Sig.Off, int64(len(m.Sig.Raw)), literal(m.Sig.Raw))
	out.replace(m.Main.Off, p.src.Size()-m.Main.Off, literal(m.Main.Raw), now)
	return out, nil
}

// unsigned returns an error if the package is signed.
func (m *rpmPackage) unsigned() error {
	for _, tag := range m.Sig.Tags() {
		if name, ok := signedBy[tag]; ok {
			return rpm.Errorf(m.Sig.Off, "signature %s (tag %d): %w", name, tag, ErrSigned)
		}
	}
	if m.Main.Has(rpm.TagFileSignatures) {
		return rpm.Errorf(m.Main.Off, "signatures of files (tag %d): %w", rpm.TagFileSignatures, ErrSigned)
	}
	return nil
}

// A sum is the sum that a tag of a header has.
type sum struct {
	hash.Hash
	tag uint32
}

type sums []sum

// payloadSums are those of the payload, compressed.
func payloadSums() sums {
	return sums{
		{sha256.New(), rpm.TagPayloadSHA256}, {sha512.New(), rpm.TagPayloadSHA512}, {sha3.New256(), rpm.TagPayloadSHA3},
	}
}

// plainSums are those of the payload before it is compressed.
func plainSums() sums {
	return sums{{sha256.New(), rpm.TagPlainSHA256}, {sha512.New(), rpm.TagPlainSHA512},
		{sha3.New256(), rpm.TagPlainSHA3}}
}

// headerSums are those of the main header.
func headerSums() sums {
	return sums{{sha1.New(), rpm.SigSHA1}, {sha256.New(), rpm.SigSHA256}, {sha3.New256(), rpm.SigSHA3}}
}

// writer returns a writer that adds to all sums.
func (s sums) writer() io.Writer {
	var all []io.Writer
	for _, sum := range s {
		all = append(all, sum)
	}
	return io.MultiWriter(all...)
}

// check compares the sums with those in a header.
func (s sums) check(h *rpm.Header) error {
	for _, sum := range s {
		have, err := h.Text(sum.tag)
		if err != nil {
			return err
		}
		if want := hexSum(sum); have != "" && !strings.EqualFold(have, want) {
			return damaged(h, sum.tag, have, want)
		}
	}
	return nil
}

// set puts the sums into a header, where it has others.
func (s sums) set(h *rpm.Header) error {
	for _, sum := range s {
		if err := h.SetText(sum.tag, hexSum(sum)); err != nil {
			return err
		}
	}
	return nil
}

// damaged is the error of a sum that is wrong.
func damaged(h *rpm.Header, tag uint32, have, want string) error {
	return rpm.Errorf(h.Off, "the package is damaged: its sum is %s, but tag %d has %.128q", want, tag, have)
}

// intact returns an error if a sum of the header or of the payload is wrong: new sums would hide that.
func (m *rpmPackage) intact() error {
	packed := payloadSums()
	payload := io.NewSectionReader(m.src, m.Main.End(), m.src.Size()-m.Main.End())
	header, both, err := m.sums(payload, packed.writer())
	if err != nil {
		return err
	}
	if err := cmp.Or(header.check(m.Sig), packed.check(m.Main)); err != nil {
		return err
	}
	have, err := m.md5()
	if err == nil && have != nil && !bytes.Equal(have, both) {
		err = damaged(m.Sig, rpm.SigMD5, fmt.Sprintf("%x", have), fmt.Sprintf("%x", both))
	}
	return err
}

// sums returns the sums of the main header, and the MD5 of it and of the payload, which is also written to w.
func (m *rpmPackage) sums(payload *io.SectionReader, w io.Writer) (header sums, both []byte, err error) {
	header, sum := headerSums(), md5.New()
	_, _ = io.MultiWriter(header.writer(), sum).Write(m.Main.Raw) // sums give no errors
	_, err = io.Copy(io.MultiWriter(sum, w), &contextReader{m.ctx, all(payload)})
	return header, sum.Sum(nil), err
}

// md5 returns where the sum of header and payload is, or nil.
func (m *rpmPackage) md5() ([]byte, error) {
	b, err := m.Sig.Bytes(rpm.SigMD5)
	if b != nil && len(b) != md5.Size {
		err = rpm.Errorf(m.Sig.Off, "tag %d has %d bytes, not %d", rpm.SigMD5, len(b), md5.Size)
	}
	return b, err
}

// describe reads the descriptions of files in the header.
func (m *rpmPackage) describe() error {
	h := m.Main
	var err error
	if m.files, err = h.Files(); err != nil {
		return err
	}
	if m.digests, err = h.Texts(rpm.TagFileDigests); err != nil {
		return err
	}
	if n := len(m.files.Names); n != len(m.digests) {
		return rpm.Errorf(h.Off, "tag %d has %d sums for %d files", rpm.TagFileDigests, len(m.digests), n)
	}
	m.index = make(map[string]int)
	for i, name := range m.files.Names {
		name = pack.Clean(name)
		m.names = append(m.names, name)
		m.index[name] = i
	}
	number, err := h.Number(rpm.TagDigestAlgo, 1)
	if err != nil {
		return err
	}
	if m.sum = digests[number]; m.sum == nil {
		return rpm.Errorf(h.Off, "tag %d: unsupported kind %d of sums", rpm.TagDigestAlgo, number)
	}
	return nil
}

// convert converts the files of the payload, and writes their sizes and sums into the header.
func (m *rpmPackage) convert(old *unpacked, out *changes) error {
	a := rpm.NewArchive(io.NewSectionReader(old, 0, old.Size()), m.Main, m.files)
	for {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		e, err := a.Next()
		if err != nil || e.Last {
			return err
		}
		if err := m.budget.Spend(elffile.CostEntry, 1); err != nil {
			return m.wrong(e.Off, "%w", err)
		}
		if err := m.member(e, old, out); err != nil {
			return err
		}
	}
}

// wrong returns an error at an offset of the payload.
func (m *rpmPackage) wrong(off int64, format string, args ...any) error {
	return &rpm.Error{Off: m.Main.End(), Payload: off, Err: fmt.Errorf(format, args...)}
}

// member converts a file of the payload.
func (m *rpmPackage) member(e *rpm.Member, old *unpacked, out *changes) error {
	i := e.File
	if i < 0 {
		var ok bool
		if i, ok = m.index[pack.Clean(e.Name)]; !ok {
			return m.wrong(e.Off, "the header of the package does not have the file %.100q", e.Name)
		}
	}
	if m.files.Modes[i]&rpm.ModeType != rpm.ModeFile {
		return nil
	}
	if e.Size == 0 {
		if m.files.Sizes[i] == 0 { // and not another name of a file with contents
			m.res.Others++
		}
		return nil
	}
	c := candidate{name: m.names[i], contents: io.NewSectionReader(old, e.Off+int64(len(e.Raw)), e.Size)}
	if slices.ContainsFunc(m.files.Linked(i), func(i int) bool { return m.files.Flags[i]&rpm.FlagConfig != 0 }) {
		c.stays = Conffile
	}
	head := make([]byte, min(e.Size, pack.HeadSize))
	if _, err := c.contents.ReadAt(head, 0); err != nil {
		return m.wrong(e.Off, "%w", err)
	}
	now, err := m.file(c, head)
	if now == nil || err != nil {
		return err
	}
	if err := m.describeAnew(i, c.contents, now); err != nil {
		return err
	}
	raw, err := e.Resized(now.Size())
	if err != nil {
		return m.wrong(e.Off, "%w", err)
	}
	out.replace(e.Off, int64(len(e.Raw))+e.Size+-e.Size&3, literal(raw), now, literal(make([]byte, -now.Size()&3)))
	return nil
}

// describeAnew writes the size and the sum of a file that changed into the header, for all its names.
func (m *rpmPackage) describeAnew(file int, old, now *io.SectionReader) error {
	sums, err := sumsOf(m.sum, old, now)
	if err != nil {
		return err
	}
	for _, i := range m.files.Linked(file) {
		if have := string(m.digests[i]); !strings.EqualFold(have, sums.old) {
			return rpm.Errorf(m.Main.Off, "tag %d has %s for %s, but the sum of the file is %s",
				rpm.TagFileDigests, have, m.names[i], sums.old)
		}
		copy(m.digests[i], sums.now)
		for _, tag := range []uint32{rpm.TagFileSizes, rpm.TagLongFileSizes} {
			if err := m.Main.SetNumber(tag, i, uint64(now.Size())); err != nil {
				return err
			}
		}
	}
	for _, tag := range []uint32{rpm.TagSize, rpm.TagLongSize} {
		all, err := m.Main.Number(tag, 0)
		if err == nil {
			err = m.Main.SetNumber(tag, 0, all+uint64(now.Size()-old.Size()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// update writes the sums and sizes of the payload into the main header, and then those of this header, and of both,
// into the other one. The payload has the given size before it is compressed.
func (m *rpmPackage) update(payload *io.SectionReader, size int64, plain sums) error {
	packed := payloadSums()
	if _, err := io.Copy(packed.writer(), &contextReader{m.ctx, all(payload)}); err != nil {
		return err
	}
	main, sig := m.Main, m.Sig
	n, total := uint64(size), uint64(int64(len(main.Raw))+payload.Size())
	err := errors.Join(packed.set(main), plain.set(main), main.SetNumber(rpm.TagPayloadSize, 0, uint64(payload.Size())),
		main.SetNumber(rpm.TagPayloadPlain, 0, n), main.SetNumber(rpm.TagPlainSize, 0, n))
	if err != nil {
		return err
	}
	header, both, err := m.sums(payload, io.Discard)
	if err != nil {
		return err
	}
	sum, err := m.md5()
	copy(sum, both) // if there is one
	return errors.Join(err, header.set(sig),
		sig.SetNumber(rpm.SigSize, 0, total), sig.SetNumber(rpm.SigLongSize, 0, total),
		sig.SetNumber(rpm.SigPlainSize, 0, n), sig.SetNumber(rpm.SigLongPlainSize, 0, n))
}
