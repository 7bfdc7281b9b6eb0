package survey

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"cfi2sframe/convert"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// ComparisonSchema is the version of the JSON form of a Comparison, which against.schema.json describes. It changes
// as Schema does.
const ComparisonSchema = 1

// A Comparison says what is gained and lost from one survey to a later one. Sizes are in bytes of code.
type Comparison struct {
	Schema  int            `json:"schema"`
	Old     Side           `json:"old"`
	New     Side           `json:"new"`
	Formats []FormatChange `json:"formats,omitempty"`
	Gaps    []GapChange    `json:"gaps,omitempty"` // in format 2, by reason
	ABIs    []ABIChange    `json:"abis,omitempty"`

	// Files of packages are the same ones in another version of the package.
	Same     uint64      `json:"same"` // files of which as much is lost as before
	Better   FileChanges `json:"better"`
	Worse    FileChanges `json:"worse"`
	Appeared FileChanges `json:"appeared"`
	Gone     FileChanges `json:"gone"`
}

// A Side is one of the surveys.
type Side struct {
	Tool       string `json:"tool"`
	Only       string `json:"only,omitzero"` // in words, which shards it is of, if not all
	Files      uint64 `json:"files"`
	WithCFI    uint64 `json:"with_cfi"`
	Functions  uint64 `json:"functions"`
	Described  uint64 `json:"described"`
	Lost       uint64 `json:"lost"` // in gaps of format 2 by which a stack trace loses something
	WithoutCFI uint64 `json:"without_cfi"`
}

// A FormatChange is about one version of SFrame.
type FormatChange struct {
	Format sframe.Version `json:"format"`
	Old    Coverage       `json:"old"`
	New    Coverage       `json:"new"`
}

// Coverage is what a stack trace loses nothing of.
type Coverage struct {
	Functions uint64 `json:"functions"`
	Whole     uint64 `json:"functions_covered"`
	Described uint64 `json:"described"`
	Covered   uint64 `json:"covered"` // with code without a caller
}

// A GapChange is about one reason.
type GapChange struct {
	Reason string `json:"reason"`
	Text   string `json:"text"`
	Loss   bool   `json:"loss"`
	Old    Amount `json:"old"`
	New    Amount `json:"new"`
}

// An Amount are gaps.
type Amount struct {
	Files     uint64 `json:"files"`
	Functions uint64 `json:"functions"`
	Ranges    uint64 `json:"ranges"`
	Bytes     uint64 `json:"bytes"`
}

// An ABIChange is about the files of one ABI.
type ABIChange struct {
	ABI string    `json:"abi"`
	Old ABIAmount `json:"old"`
	New ABIAmount `json:"new"`
}

// An ABIAmount are the files of an ABI.
type ABIAmount struct {
	Files     uint64 `json:"files"`
	WithCFI   uint64 `json:"with_cfi"`
	Described uint64 `json:"described"`
	Lost      uint64 `json:"lost"`
}

// FileChanges are files to which the same has happened.
type FileChanges struct {
	Files uint64       `json:"files"`
	Bytes uint64       `json:"bytes"`           // of all of them
	Worst []FileChange `json:"worst,omitempty"` // by bytes, the first ones
}

// A FileChange is a file that is another one than before, or that was not there, or is no longer.
type FileChange struct {
	File  string         `json:"file"`
	Was   string         `json:"was,omitzero"`    // its name before, if that was another
	Bytes uint64         `json:"bytes"`           // change of the bytes lost; for new and removed files, the bytes lost
	From  convert.Reason `json:"from,omitzero"`   // its convert.Reason before, if that was another: then all that CFI describes counts
	To    convert.Reason `json:"to,omitzero"`     // its convert.Reason now, if that is another
	Why   string         `json:"reason,omitzero"` // of most of that
}

// Against compares the survey with an earlier one in a JSON file. That can be of another version of cfi2sframe, if its
// schema is the same.
func (s *Survey) Against(name string) (*Comparison, error) {
	old, err := read(name, false)
	switch {
	case err != nil:
	case old.Settings != s.Settings:
		err = fmt.Errorf("made %s, but what is compared with it is made %s", old.Settings, s.Settings)
	case uint64(len(old.Files)) != old.Total.Files:
		err = fmt.Errorf("damaged: %d files, and a total of %d", len(old.Files), old.Total.Files)
	case slices.ContainsFunc(old.Files, func(r *Record) bool { return r.File == "" }):
		err = errors.New("damaged: a file without a name")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", report.Printable(name), outfile.Plain(err))
	}
	return compare(old, s), nil
}

// side sums up a survey.
func (s *Survey) side() Side {
	t := &s.Total
	return Side{s.Tool, s.Only(), t.Files, t.WithCFI, t.Functions, t.Described, t.lost(), t.WithoutCFI}
}

// losses returns which reasons lose something. Those of another version can be unknown here.
func (s *Survey) losses() map[string]bool {
	out := make(map[string]bool)
	for _, g := range s.Total.Gaps {
		out[g.Reason] = g.Loss
	}
	return out
}

// identity is equal for a file of a package and the same file in other versions of the package, wherever they are.
// Packages are name_VERSION_arch.deb and name-VERSION-RELEASE.arch.rpm.
func identity(r *Record) string {
	pkg, member, ok := strings.Cut(r.File, "!")
	if !ok {
		return r.File
	}
	base := path.Base(pkg)
	if name, ok := strings.CutSuffix(base, ".deb"); ok {
		if p := strings.Split(name, "_"); len(p) == 3 {
			return strings.Join([]string{"deb", p[0], p[2], member}, "\x00")
		}
	}
	if name, ok := strings.CutSuffix(base, ".rpm"); ok {
		dot := strings.LastIndexByte(name, '.')
		if p := strings.Split(name[:max(dot, 0)], "-"); len(p) > 2 {
			return strings.Join([]string{"rpm", strings.Join(p[:len(p)-2], "-"), name[dot+1:], member}, "\x00")
		}
	}
	return r.File
}

// compare compares two surveys.
func compare(old, now *Survey) *Comparison {
	c := &Comparison{Schema: ComparisonSchema, Old: old.side(), New: now.side()}
	c.totals(old, now)
	oldLosses, losses := old.losses(), now.losses()
	better, worse, appeared, gone := newChanges(), newChanges(), newChanges(), newChanges()
	was, is := old.Files, now.Files
	// Files of the same name belong together, and of the others those of the same identity, in the order of their
	// names.
	for _, key := range []func(r *Record) string{func(r *Record) string { return r.File }, identity} {
		var pairs [][2]*Record
		pairs, was, is = pair(was, is, key)
		for _, p := range pairs {
			switch f, by := change(p[0], p[1], oldLosses, losses); {
			case by < 0:
				better.add(f)
			case by > 0:
				worse.add(f)
			default:
				c.Same++
			}
		}
	}
	for _, r := range is {
		n, reason := lost(r.Gaps, losses)
		appeared.add(FileChange{File: valid(r.File), Bytes: n, To: r.Status, Why: reason})
	}
	for _, r := range was {
		n, reason := lost(r.Gaps, oldLosses)
		gone.add(FileChange{File: valid(r.File), Bytes: n, From: r.Status, Why: reason})
	}
	c.Better, c.Worse, c.Appeared, c.Gone = better.all(), worse.all(), appeared.all(), gone.all()
	return c
}

// pair finds the files that have the same key in both lists, and returns the others as well.
func pair(was, is []*Record, key func(r *Record) string) (pairs [][2]*Record, left, right []*Record) {
	before := make(map[string][]*Record, len(was))
	for _, r := range was {
		before[key(r)] = append(before[key(r)], r)
	}
	for _, r := range is {
		k := key(r)
		if list := before[k]; len(list) > 0 {
			pairs = append(pairs, [2]*Record{list[0], r})
			before[k] = list[1:]
		} else {
			right = append(right, r)
		}
	}
	for _, r := range was {
		if list := before[key(r)]; len(list) > 0 && list[0] == r {
			left = append(left, r)
			before[key(r)] = list[1:]
		}
	}
	return pairs, left, right
}

// change says what has become of a file, and in which direction: less than 0 is better.
func change(was, is *Record, oldLosses, losses map[string]bool) (FileChange, int) {
	before, _ := lost(was.Gaps, oldLosses)
	after, _ := lost(is.Gaps, losses)
	f := FileChange{File: valid(is.File), Bytes: max(before, after) - min(before, after)}
	if was.File != is.File {
		f.Was = valid(was.File)
	}
	by := cmp.Compare(after, before)
	switch {
	case by < 0:
		_, f.Why = lost(without(was.Gaps, is.Gaps, losses), oldLosses)
	case by > 0:
		_, f.Why = lost(without(is.Gaps, was.Gaps, oldLosses), losses)
	}
	if was.Status != is.Status {
		f.From, f.To = cmp.Or(was.Status, withCFI), cmp.Or(is.Status, withCFI)
		switch {
		case is.Status == "":
			f.Bytes, f.Why, by = is.Described, "", -1
		case was.Status == "":
			f.Bytes, f.Why, by = was.Described, "", 1
		}
	}
	return f, by
}

// without returns gaps less those of others that lose something.
func without(gaps, others []Gap, losses map[string]bool) []Gap {
	out := slices.Clone(gaps)
	for i := range out {
		g := &out[i]
		for _, h := range others {
			if h.Reason == g.Reason && losses[h.Reason] {
				g.Bytes -= min(g.Bytes, h.Bytes)
			}
		}
	}
	return out
}

// changes are files to which the same has happened.
type changes struct {
	FileChanges
	worst[FileChange]
}

func newChanges() *changes {
	return &changes{worst: worst[FileChange]{cmp: func(a, b *FileChange) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.File, b.File), cmp.Compare(a.Was, b.Was))
	}}}
}

func (c *changes) add(f FileChange) {
	c.Files++
	c.Bytes += f.Bytes
	c.worst.add(f)
}

func (c *changes) all() FileChanges {
	c.Worst = c.list
	return c.FileChanges
}

// totals compares the sums.
func (c *Comparison) totals(old, now *Survey) {
	a, b := &old.Total, &now.Total
	versions := slices.Clone(Formats)
	for _, f := range a.Formats {
		versions = append(versions, f.Format)
	}
	slices.Sort(versions)
	for _, v := range slices.Compact(versions) {
		c.Formats = append(c.Formats, FormatChange{v, coverageOf(a.format(v)), coverageOf(b.format(v))})
	}
	reason := func(g Gap) string { return g.Reason }
	for _, r := range keys(b.Gaps, a.Gaps, reason) {
		was, is := find(a.Gaps, r, reason), find(b.Gaps, r, reason)
		g := cmp.Or(is, was)
		c.Gaps = append(c.Gaps, GapChange{r, g.Text, g.Loss, amount(was), amount(is)})
	}
	name := func(p Part) string { return p.Name }
	for _, abi := range keys(old.ABIs, now.ABIs, name) {
		was, is := find(old.ABIs, abi, name), find(now.ABIs, abi, name)
		c.ABIs = append(c.ABIs, ABIChange{abi, abiAmount(was), abiAmount(is)})
	}
	slices.SortFunc(c.ABIs, func(a, b ABIChange) int { return cmp.Compare(a.ABI, b.ABI) })
}

func coverageOf(f Format) Coverage {
	return Coverage{f.Functions, f.Whole, f.Described, f.Covered + f.Outermost}
}

func amount(g Gap) Amount { return Amount{g.Files, g.Functions, g.Ranges, g.Bytes} }

func abiAmount(p Part) ABIAmount { return ABIAmount{p.Files, p.WithCFI, p.Described, p.lost()} }

// keys returns the keys of both lists, each once: first those of a.
func keys[T any](a, b []T, key func(T) string) []string {
	var out []string
	for _, v := range slices.Concat(a, b) {
		if !slices.Contains(out, key(v)) {
			out = append(out, key(v))
		}
	}
	return out
}

// find returns the element with a key, or the zero value.
func find[T any](list []T, k string, key func(T) string) T {
	var zero T
	for _, v := range list {
		if key(v) == k {
			return v
		}
	}
	return zero
}

// ComparisonForms are the names of the forms that a Comparison has.
var ComparisonForms = []string{"text", "json"}

// Write writes the comparison in the form of the given name.
func (c *Comparison) Write(w io.Writer, form string) error {
	switch form {
	case "text":
		return c.Text(w)
	case "json":
		return c.JSON(w)
	}
	return fmt.Errorf("form %q is not known; one of %s was expected", form, strings.Join(ComparisonForms, ", "))
}
