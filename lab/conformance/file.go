package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// abiNames are the ABIs of vectors.
var abiNames = map[sframe.ABI]string{
	sframe.AMD64Little: "amd64", sframe.AArch64Little: "aarch64", sframe.AArch64Big: "aarch64_be",
	sframe.S390XBig: "s390x",
}

// FromFile converts a file to a format, and returns a vector of the result. Its answers are the rows that package
// sframe finds, after kit has compared them with the CFI. Readers take PC-mask functions in different ways, and some
// formats of V2 cannot reach code that is 2 GiB away: there are no answers for these.
func FromFile(path, format string, opt convert.Options) (*vector.Vector, error) {
	opt.Force = true
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if _, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &out, opt); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := elffile.New(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		return nil, err
	}
	s := f.Section(sframe.SectionName)
	if s == nil {
		return nil, fmt.Errorf("%s: no %s", path, sframe.SectionName)
	}
	data, err := f.ReadSection(s)
	if err != nil {
		return nil, err
	}
	section, err := sframe.Decode(data, s.Addr)
	if err != nil {
		return nil, err
	}
	table, err := cfi.Load(f, opt.Source, nil)
	if err != nil {
		return nil, err
	}
	if _, err := kit.CompareRows(table, section, kit.Stubs(f)); err != nil {
		return nil, err
	}
	abi := abiNames[section.ABI]
	v := &vector.Vector{
		Name: format + "-" + abi + "/" + filepath.Base(path), Feature: "programs", Format: format, ABI: abi,
		About: "a converted file", Source: path, Address: vector.Hex(s.Addr), Section: data,
	}
	v.Expect = expected(section, v)
	return v, nil
}

// expected returns the answers of package sframe about a section, as far as FromFile has some.
func expected(section *sframe.Section, v *vector.Vector) vector.Expects {
	q := vector.Question{Address: v.Address, Section: v.Section}
	for _, pc := range kit.Borders(section, 1) {
		q.PCs = append(q.PCs, vector.Hex(pc))
	}
	var masks []sframe.FDE
	for _, d := range section.FDEs() {
		if d.PCMask {
			masks = append(masks, d)
		}
	}
	var out vector.Expects
	for i, row := range Own(&q).Answers {
		if i == len(q.PCs)-1 {
			break
		}
		from, to := uint64(q.PCs[i]), uint64(q.PCs[i+1])
		distance := int64(from) - int64(v.Address)
		far := section.Version < sframe.V3 && distance != int64(int32(distance))
		masked := slices.ContainsFunc(masks, func(d sframe.FDE) bool { return d.Start <= to && from <= d.End() })
		if !far && !masked {
			out.Add(from, to, row.Normal())
		}
	}
	return out
}
