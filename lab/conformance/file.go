package conformance

import (
	"path/filepath"
	"slices"

	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// abiNames are the names of ABIs in vectors.
var abiNames = map[sframe.ABI]string{
	sframe.AMD64Little: "amd64", sframe.AArch64Little: "aarch64", sframe.AArch64Big: "aarch64_be",
	sframe.S390XBig: "s390x",
}

// FromFile returns a vector for a converted file. Its answers are the rows that package sframe finds; kit.CompareRows
// compares them with the CFI. PC-mask functions have no answers, because readers interpret them in different ways.
// Before V3, code more than 2 GiB from the section has no answers either.
func FromFile(path, format string) (*vector.Vector, error) {
	f, section, err := linked.Load(path)
	if err != nil {
		return nil, err
	}
	s := f.Section(sframe.SectionName)
	data, err := f.ReadSection(s)
	if err != nil {
		return nil, err
	}
	abi := abiNames[section.ABI]
	v := &vector.Vector{
		Name: format + "-" + abi + "/" + filepath.Base(path), Feature: "programs", Format: format, ABI: abi,
		About: "a converted file", Source: path, Address: vector.Hex(s.Addr), Section: data,
	}
	v.Expect = expectations(section, v)
	return v, nil
}

// expectations returns package sframe's answers for a section, except for the code that FromFile excludes.
func expectations(section *sframe.Section, v *vector.Vector) vector.Expects {
	q := vector.Question{Address: v.Address, Section: v.Section}
	for _, pc := range kit.Boundaries(section, 1) {
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
