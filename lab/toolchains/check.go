package toolchains

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/readback"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// A result is what became of a case. Sizes are in bytes of code.
type result struct {
	*testCase
	failures    []string
	conversions map[string]*conversion // by version, for objects after their names
	peer        *peerResult
	noPeer      string // why the assembler made nothing
}

// A conversion is one in one version.
type conversion struct {
	described, covered uint64
	rows               int // that were read back
	gaps               map[string]uint64
}

// A peerResult compares with the section that the assembler and the linker made.
type peerResult struct {
	version    sframe.Version
	covered    uint64            // by the peer, right or wrong
	equal      uint64            // both say the same
	wrong      map[string]uint64 // the peer contradicts the CFI, by function
	missing    map[string]uint64 // the peer is right, and ours says nothing or something else
	ours       uint64            // ours is right, and the peer says nothing
	unreadable string            // why the peer's section cannot be compared
}

// check converts a built case to all versions, runs the results, and compares.
func (d *directories) check(c *testCase, b *built) (*result, error) {
	dir, err := os.MkdirTemp("", "toolchains-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &result{testCase: c, conversions: make(map[string]*conversion), noPeer: b.peerFailed}
	fail := func(format string, args ...any) { r.failures = append(r.failures, fmt.Sprintf(format, args...)) }
	add := func(in, name string, v sframe.Version) (path string) {
		path = filepath.Join(dir, name)
		conv, err := one(in, path, v)
		if errors.Is(err, errVersion) {
			return ""
		}
		if err != nil {
			fail("%s: %v", name, err)
			return ""
		}
		r.conversions[name] = conv
		return path
	}
	var output []byte
	if b.program != "" && c.kind != kindDead {
		if output, err = d.run(c, b.program); err != nil {
			return nil, fmt.Errorf("the program does not run before it is converted: %w", err)
		}
	}
	for _, v := range sframe.Versions() {
		for _, o := range b.objects {
			add(o, fmt.Sprintf("%s V%d", filepath.Base(o), v), v)
		}
		if b.program == "" {
			continue
		}
		name := fmt.Sprintf("V%d", v)
		made := add(b.program, name, v)
		if made == "" || c.kind == kindDead {
			continue
		}
		if got, err := d.run(c, made); err != nil || !bytes.Equal(got, output) {
			fail("%s: the converted program prints %.200q, error %v; the original %.200q", name, got, err, output)
		}
	}
	if b.peer != "" {
		if r.peer, err = compare(b.peer, b.peerBase, filepath.Join(dir, "peer"), b.peerVersion); err != nil {
			return nil, err
		}
		for name, n := range r.peer.missing {
			fail("%d bytes of %s, where the peer is right, are missing or different", n, name)
		}
	}
	return r, nil
}

// run runs a program in the suite of its compiler, and those of other machines by the qemu of sid.
func (d *directories) run(c *testCase, program string) ([]byte, error) {
	suite, command := c.cc.suite, "./prog"
	if c.abi != "amd64" {
		suite, command = "sid", "qemu-"+c.abi+" -L /usr/"+triples[c.abi]+" ./prog"
	}
	dir, err := os.MkdirTemp(filepath.Join(d.root(suite), "tmp"), "toolchains-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "prog"), data, 0o777); err != nil {
		return nil, err
	}
	if c.program == "lua" {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(d.sources, "scripts"))); err != nil {
			return nil, err
		}
	}
	return d.script(suite, dir, command+" "+c.arguments())
}

// errVersion says that a version does not know the machine, or has no objects.
var errVersion = errors.New("the version has nothing for this file")

// open reads a file's headers.
func open(path string) (*elffile.File, []byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	return f, b, err
}

// one converts a file in one version and looks at the result from all sides.
func one(in, out string, v sframe.Version) (*conversion, error) {
	before, _, err := open(in)
	if err != nil {
		return nil, err
	}
	a, abi, err := arch.Find(elf.Machine(before.Machine), before.Order)
	if err != nil {
		return nil, err
	}
	codec, err := sframe.NewCodec(v, abi)
	if err != nil || before.IsObject() && !codec.Layout().Objects {
		return nil, errVersion
	}
	ctx := context.Background()
	// What an assembler has made of code without call frame information nobody else can.
	opt := files.Options{Options: convert.Options{Version: v, Force: true}, NoSync: true}
	res, err := files.Convert(ctx, in, out, opt)
	if err != nil {
		return nil, err
	}
	if len(res.Coverage) != 1 {
		return nil, fmt.Errorf("kept as it is: %v", res.Stays)
	}
	c := res.Coverage[0]
	if !c.Verified || c.Malformed.Count > 0 {
		return nil, fmt.Errorf("verified %t, %d malformed records: %v", c.Verified, c.Malformed.Count, c.Malformed)
	}
	after, made, err := open(out)
	if err != nil {
		return nil, err
	}
	cov := &conversion{described: c.Described, covered: c.Covered, gaps: make(map[string]uint64)}
	for _, r := range c.Reasons {
		cov.gaps[r.Name] += r.Bytes
	}
	checked, err := files.Check(ctx, out, convert.Options{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("--check: %w", err)
	case len(checked.Mismatches) > 0 || checked.Covered != c.Covered || sframe.Version(checked.Format) != v:
		return nil, fmt.Errorf("--check: V%d, %d bytes covered of %d reported, mismatches %v",
			checked.Format, checked.Covered, c.Covered, checked.Mismatches)
	}
	if err := image.Compare(before, after); err != nil {
		return nil, fmt.Errorf("the rest of the file: %w", err)
	}
	again := out + ".again"
	if _, err := files.Convert(ctx, out, again, opt); err != nil {
		return nil, fmt.Errorf("a second time: %w", err)
	}
	if b, err := os.ReadFile(again); err != nil || !bytes.Equal(b, made) {
		return nil, fmt.Errorf("a second time the result is another one (%v)", err)
	}
	if err := convert.Dump(io.Discard, bytes.NewReader(made), int64(len(made))); err != nil {
		return nil, fmt.Errorf("--dump: %w", err)
	}
	if before.IsObject() {
		return cov, nil // its start addresses are relocations
	}
	table, err := cfi.Load(after, cfi.Auto, nil)
	if err != nil {
		return nil, err
	}
	_, s, err := linked.Load(out)
	if err != nil {
		return nil, err
	}
	back, err := readback.Table(table, s)
	if err != nil {
		return nil, fmt.Errorf("read back on %s: %w", a.Name, err)
	}
	cov.rows = back.Rows
	return cov, nil
}

// compare holds the section that a toolchain made against ours of the same file, or of base, which is the same but for
// that section.
func compare(theirs, base, out string, v sframe.Version) (*peerResult, error) {
	res := &peerResult{version: v, wrong: make(map[string]uint64), missing: make(map[string]uint64)}
	f, peer, err := linked.Load(theirs)
	if err != nil {
		return nil, err
	}
	if peer.Version != v {
		return nil, fmt.Errorf("the assembler wrote V%d instead of V%d", peer.Version, v)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		return nil, err
	}
	check, err := verify.Check(table, peer, f, verify.Options{Keep: 1 << 17})
	if err != nil {
		res.unreadable = err.Error()
		return res, nil
	}
	if check.Total != len(check.Mismatches) {
		return nil, fmt.Errorf("the assembler's section contradicts the CFI %d times, too often to list", check.Total)
	}
	opt := files.Options{Options: convert.Options{Version: v, Force: true}, NoSync: true}
	if _, err := files.Convert(context.Background(), base, out, opt); err != nil {
		return nil, fmt.Errorf("the peer's file: %w", err)
	}
	_, mine, err := linked.Load(out)
	if err != nil {
		return nil, err
	}
	p, err := linked.Rows(peer)
	if err != nil {
		res.unreadable = err.Error()
		return res, nil
	}
	o, err := linked.Rows(mine)
	if err != nil {
		return nil, err
	}
	next := 0
	linked.Walk(p, o, func(pc, end uint64, g, m *linked.Row) {
		n := end - pc
		res.covered += n
		for next < len(check.Mismatches) && check.Mismatches[next].End <= pc {
			next++
		}
		contradicts := false
		for _, x := range check.Mismatches[next:] {
			if x.Begin >= end && x.Begin > pc {
				break
			}
			contradicts = contradicts || x.Begin < end && x.End > pc
		}
		switch {
		case m != nil && mine.ABI.SameRow(g.FRE.Row, m.FRE.Row):
			res.equal += n
		case contradicts:
			res.wrong[linked.Function(f, pc)] += n
		default:
			res.missing[linked.Function(f, pc)] += n
		}
	})
	linked.Walk(o, p, func(pc, end uint64, _, g *linked.Row) {
		if g == nil {
			res.ours += end - pc
		}
	})
	return res, nil
}

// first returns the first line of a text.
func first(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
