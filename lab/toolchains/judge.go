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
	Tool     string // the hash of what judged it
	Seconds  float64
	ABI      string
	Failures []string // what is wrong; there has to be nothing
	Versions map[string]coverage
	Objects  map[string]coverage // of V3, of the objects themselves
	Ran      bool                // the converted programs were run
	Peer     *peerResult
	NoPeer   string // why the assembler made nothing
}

// coverage is what is covered in one version.
type coverage struct {
	Functions, FDEs              int
	FREs                         uint64
	Described, Covered           uint64
	Outermost, Without           uint64
	Rows                         int // that were read back
	Gaps                         map[string]uint64
	Size                         uint64
	DroppedDiscarded, Overlapped int
}

// A peerResult compares with the section that the assembler and the linker made.
type peerResult struct {
	Version    int
	Covered    uint64            // by the peer, rightly or not
	Equal      uint64            // both say the same
	Wrong      map[string]uint64 // the peer contradicts the call frame information, by function
	Missing    map[string]uint64 // the peer is right, and we say nothing or something else
	Ours       uint64            // we are right, and the peer says nothing
	Unreadable string            // why the peer's section cannot be compared
}

// judge converts what was built in all versions, and compares.
func (d *folders) judge(c *testCase, b *built, tool string) (*result, error) {
	dir, err := os.MkdirTemp("", "toolchains-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &result{Tool: tool, Seconds: b.Seconds, ABI: c.abi, Versions: make(map[string]coverage), Objects: make(map[string]coverage), NoPeer: b.PeerFailed}
	fail := func(format string, args ...any) { r.Failures = append(r.Failures, fmt.Sprintf(format, args...)) }
	if b.Program != "" {
		output, err := []byte(nil), error(nil)
		runs := c.kind != kindDead
		if runs {
			if output, err = d.run(c, b.Program); err != nil {
				return nil, fmt.Errorf("the program does not run before it is converted: %w", err)
			}
		}
		for _, v := range sframe.Versions() {
			name := fmt.Sprintf("V%d", v)
			out := filepath.Join(dir, name)
			cov, err := one(b.Program, out, v)
			if errors.Is(err, errVersion) {
				continue
			}
			if err != nil {
				fail("%s: %v", name, err)
				continue
			}
			r.Versions[name] = *cov
			if !runs {
				continue
			}
			if got, err := d.run(c, out); err != nil || !bytes.Equal(got, output) {
				fail("%s: the converted program prints %.200q, error %v; %.200q was expected", name, got, err, output)
			}
			r.Ran = true
		}
	}
	for _, o := range b.Objects {
		for _, v := range sframe.Versions() {
			cov, err := one(o, filepath.Join(dir, filepath.Base(o)), v)
			if errors.Is(err, errVersion) {
				continue
			}
			if err != nil {
				fail("%s, V%d: %v", filepath.Base(o), v, err)
				continue
			}
			r.Objects[fmt.Sprintf("%s V%d", filepath.Base(o), v)] = *cov
		}
	}
	if b.Peer != "" {
		if r.Peer, err = compare(b.Peer, b.PeerBase, filepath.Join(dir, "peer"), b.PeerVersion); err != nil {
			return nil, err
		}
		for name, n := range r.Peer.Missing {
			fail("%d bytes of %s, of which the peer is right, are missing or different", n, name)
		}
	}
	return r, nil
}

// run runs a program in the suite of its compiler, and those of other machines by the qemu of sid.
func (d *folders) run(c *testCase, program string) ([]byte, error) {
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
func one(in, out string, v sframe.Version) (*coverage, error) {
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
	cov := &coverage{
		Functions: c.Functions, FDEs: c.FDEs, FREs: c.FREs, Described: c.Described, Covered: c.Covered, Outermost: c.Outermost,
		Without: c.Uncovered.Bytes, Gaps: make(map[string]uint64), Size: c.Size,
		DroppedDiscarded: c.Dropped.Discarded, Overlapped: c.Dropped.Overlapped,
	}
	for _, r := range c.Reasons {
		cov.Gaps[r.Name] += r.Bytes
	}
	checked, err := files.Check(ctx, out, convert.Options{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("--check: %w", err)
	case len(checked.Mismatches) > 0 || checked.Covered != c.Covered || sframe.Version(checked.Format) != v:
		return nil, fmt.Errorf("--check: V%d, %d bytes covered of %d reported, mismatches %v", sframe.Version(checked.Format), checked.Covered, c.Covered, checked.Mismatches)
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
	cov.Rows = back.Rows
	return cov, nil
}

// compare holds the section that a toolchain made against ours of the same file, or of base, which is the same but for
// that section.
func compare(theirs, base, out string, v sframe.Version) (*peerResult, error) {
	res := &peerResult{Version: int(v), Wrong: make(map[string]uint64), Missing: make(map[string]uint64)}
	f, peer, err := linked.Load(theirs)
	if err != nil {
		return nil, err
	}
	if peer.Version != v {
		return nil, fmt.Errorf("the assembler wrote V%d; V%d was expected", peer.Version, v)
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		return nil, err
	}
	check, err := verify.Check(table, peer, f, verify.Options{Keep: 1 << 17})
	if err != nil {
		res.Unreadable = err.Error()
		return res, nil
	}
	if check.Total != len(check.Mismatches) {
		return nil, fmt.Errorf("the assembler's section contradicts the call frame information %d times, too often to list", check.Total)
	}
	if _, err := files.Convert(context.Background(), base, out, files.Options{Options: convert.Options{Version: v, Force: true}, NoSync: true}); err != nil {
		return nil, fmt.Errorf("the peer's file: %w", err)
	}
	_, mine, err := linked.Load(out)
	if err != nil {
		return nil, err
	}
	p, err := linked.Rows(peer)
	if err != nil {
		res.Unreadable = err.Error()
		return res, nil
	}
	o, err := linked.Rows(mine)
	if err != nil {
		return nil, err
	}
	next := 0
	linked.Walk(p, o, func(pc, end uint64, g, m *linked.Row) {
		n := end - pc
		res.Covered += n
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
			res.Equal += n
		case contradicts:
			res.Wrong[linked.Function(f, pc)] += n
		default:
			res.Missing[linked.Function(f, pc)] += n
		}
	})
	linked.Walk(o, p, func(pc, end uint64, _, g *linked.Row) {
		if g == nil {
			res.Ours += end - pc
		}
	})
	return res, nil
}

// first returns the first line of a text.
func first(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
