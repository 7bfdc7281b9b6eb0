package survey

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// ComparisonSchema is the version of the JSON form of a Comparison, which against.schema.json describes. It changes as Schema does.
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
	Same     int         `json:"same"` // files of which as much is lost as before
	Better   FileChanges `json:"better"`
	Worse    FileChanges `json:"worse"`
	Appeared FileChanges `json:"appeared"`
	Gone     FileChanges `json:"gone"`
}

// A Side is one of the surveys.
type Side struct {
	Tool       string `json:"tool"`
	Only       string `json:"only,omitzero"` // in words, which shards it is of, if not all
	Files      int    `json:"files"`
	WithCFI    int    `json:"with_cfi"`
	Functions  int    `json:"functions"`
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
	Functions int    `json:"functions"`
	Whole     int    `json:"functions_covered"`
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
	Files     int    `json:"files"`
	Functions int    `json:"functions"`
	Ranges    int    `json:"ranges"`
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
	Files     int    `json:"files"`
	WithCFI   int    `json:"with_cfi"`
	Described uint64 `json:"described"`
	Lost      uint64 `json:"lost"`
}

// FileChanges are files to which the same has happened.
type FileChanges struct {
	Files int          `json:"files"`
	Bytes uint64       `json:"bytes"`           // of all of them
	Worst []FileChange `json:"worst,omitempty"` // by bytes, the first ones
}

// A FileChange is a file that is another one than before, or that was not there, or is no longer.
type FileChange struct {
	File  string `json:"file"`
	Was   string `json:"was,omitzero"`    // its name before, if that was another
	Bytes uint64 `json:"bytes"`           // more or less that is lost; of files that appeared or are gone, what is lost of them
	From  string `json:"from,omitzero"`   // its status before, if that was another: then all that CFI describes counts
	To    string `json:"to,omitzero"`     // its status now, if that is another
	Why   string `json:"reason,omitzero"` // of most of that
}

// A compared is a survey as far as it is compared. Of one that another version of the program has made it is taken as it is.
type compared struct {
	Settings
	Side
	total Sums
	abis  []Part
	files []entry
	loss  map[string]bool // by reason
}

// Against compares the survey with an earlier one, of which a file has the JSON form. That may be of another version of the
// program, if its schema is the same.
func (s *Survey) Against(name string) (*Comparison, error) {
	fail := func(err error) (*Comparison, error) {
		return nil, fmt.Errorf("%s: %w", report.Printable(name), outfile.Plain(err))
	}
	f, err := openPart(name)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	d := newDecoder(f, false)
	old, err := d.compared()
	if err != nil {
		return fail(err)
	}
	if old.Settings != s.Settings {
		return fail(fmt.Errorf("made %s; the same was expected as of what is compared with it, which is made %s", old.Settings, s.Settings))
	}
	return compare(old, s.compared()), nil
}

// compared returns what is compared.
func (s *Survey) compared() *compared {
	c := &compared{Settings: s.Settings, total: s.Total, abis: s.ABIs}
	c.Tool, c.Only = s.Tool, s.Only()
	for _, l := range s.lines {
		c.files = append(c.files, l.entry())
	}
	c.sum()
	return c
}

// compared reads a survey to its end.
func (d *decoder) compared() (*compared, error) {
	if err := d.object(func(key string) (bool, error) { return false, d.field(key, false) }); err != nil {
		return nil, err
	}
	for i := range d.head.shards {
		if g := &d.head.shards[i]; slices.ContainsFunc(g.Paths, func(j int) bool { return j < 0 || j >= len(d.head.paths) }) || len(g.Have) == 0 {
			return nil, fmt.Errorf("shards, element %d: there is no such path, or no shard", i+1)
		}
	}
	c := &compared{Settings: d.head.Settings, total: *d.total, abis: d.abis, files: d.files}
	s := Survey{Shards: d.head.shards}
	for i := range d.head.paths {
		s.roots = append(s.roots, root{name: unraw(d.head.paths[i].Name, d.head.paths[i].RawName)})
	}
	c.Tool, c.Only = d.head.tool, s.Only()
	if len(c.files) != c.total.Files {
		return nil, fmt.Errorf("%d files, and a total of %d: damaged, or changed after it was made", len(c.files), c.total.Files)
	}
	for i := range c.files {
		e := &c.files[i]
		if e.File = unraw(e.File, e.RawFile); e.File == "" {
			return nil, fmt.Errorf("files, element %d: there is no name", i+1)
		}
	}
	if !c.total.sane() || slices.ContainsFunc(c.abis, func(p Part) bool { return !p.sane() }) {
		return nil, errors.New("a number of files or functions is negative, or larger than any can be")
	}
	c.sum()
	return c, nil
}

// sane reports whether all that is counted can be.
func (s *Sums) sane() bool {
	n := []int{s.Files, s.WithCFI, s.DRAP, s.OtherCFA, s.Functions}
	for _, f := range s.Formats {
		n = append(n, f.Functions, f.Whole)
	}
	for _, g := range s.Gaps {
		n = append(n, g.Files, g.Functions, g.Ranges)
	}
	return slices.Min(n) >= 0 && slices.Max(n) <= maxNumber
}

// sum fills in what follows from the rest.
func (c *compared) sum() {
	c.loss = make(map[string]bool)
	for _, g := range c.total.Gaps {
		c.loss[g.Reason] = g.Loss
	}
	t := &c.total
	c.Files, c.WithCFI, c.Functions, c.Described, c.WithoutCFI = t.Files, t.WithCFI, t.Functions, t.Described, t.WithoutCFI
	c.Lost = lostOf(t.Gaps)
}

// lostOf returns how much a stack trace loses by gaps.
func lostOf(gaps []Gap) uint64 {
	var n uint64
	for _, g := range gaps {
		if g.Loss {
			n += g.Bytes
		}
	}
	return n
}

// lost returns how much of a file is lost, and the reason of most of it.
func (c *compared) lost(e *entry) (uint64, string) {
	var sum, most uint64
	reason := ""
	for _, g := range e.Gaps {
		if c.loss[g.Reason] {
			sum += g.Bytes
			if g.Bytes > most {
				most, reason = g.Bytes, g.Reason
			}
		}
	}
	return sum, reason
}

// identity is what a file is told from others by. Packages are the same ones in all versions, wherever they are:
// name_VERSION_arch.deb and name-VERSION-RELEASE.arch.rpm.
func identity(file string) string {
	pkg, member, ok := strings.Cut(file, "!")
	if !ok {
		return file
	}
	base := path.Base(pkg)
	if stem, ok := strings.CutSuffix(base, ".deb"); ok {
		if p := strings.Split(stem, "_"); len(p) == 3 {
			return strings.Join([]string{"deb", p[0], p[2], member}, "\x00")
		}
	}
	if stem, ok := strings.CutSuffix(base, ".rpm"); ok {
		dot := strings.LastIndexByte(stem, '.')
		if p := strings.Split(stem[:max(dot, 0)], "-"); len(p) > 2 {
			return strings.Join([]string{"rpm", strings.Join(p[:len(p)-2], "-"), stem[dot+1:], member}, "\x00")
		}
	}
	return file
}

// compare compares two surveys.
func compare(old, now *compared) *Comparison {
	c := &Comparison{Schema: ComparisonSchema, Old: old.Side, New: now.Side}
	c.totals(old, now)
	better, worse, appeared, gone := newChanges(), newChanges(), newChanges(), newChanges()
	was, is := make([]*entry, 0, len(old.files)), make([]*entry, 0, len(now.files))
	for i := range old.files {
		was = append(was, &old.files[i])
	}
	for i := range now.files {
		is = append(is, &now.files[i])
	}
	// Those that have the same name belong together, and of the rest those of one identity, in the order of their names.
	for _, key := range []func(e *entry) string{func(e *entry) string { return e.File }, func(e *entry) string { return identity(e.File) }} {
		var pairs [][2]*entry
		pairs, was, is = pair(was, is, key)
		for _, p := range pairs {
			f, by := change(old, now, p[0], p[1])
			switch {
			case by < 0:
				better.add(f)
			case by > 0:
				worse.add(f)
			default:
				c.Same++
			}
		}
	}
	for _, e := range is {
		n, reason := now.lost(e)
		appeared.add(FileChange{File: valid(e.File), Bytes: n, To: e.Status, Why: reason})
	}
	for _, e := range was {
		n, reason := old.lost(e)
		gone.add(FileChange{File: valid(e.File), Bytes: n, From: e.Status, Why: reason})
	}
	c.Better, c.Worse, c.Appeared, c.Gone = better.all(), worse.all(), appeared.all(), gone.all()
	return c
}

// pair finds the files that have the same key in both lists, and returns the others as well.
func pair(was, is []*entry, key func(e *entry) string) (pairs [][2]*entry, left, right []*entry) {
	before := make(map[string][]*entry, len(was))
	for _, e := range was {
		before[key(e)] = append(before[key(e)], e)
	}
	for _, e := range is {
		k := key(e)
		if list := before[k]; len(list) > 0 {
			pairs = append(pairs, [2]*entry{list[0], e})
			before[k] = list[1:]
		} else {
			right = append(right, e)
		}
	}
	for _, e := range was {
		if list := before[key(e)]; len(list) > 0 && list[0] == e {
			left = append(left, e)
			before[key(e)] = list[1:]
		}
	}
	return pairs, left, right
}

// change says what has become of a file, and in which direction: less than 0 is for the better.
func change(old, now *compared, was, is *entry) (FileChange, int) {
	before, _ := old.lost(was)
	after, _ := now.lost(is)
	f := FileChange{File: valid(is.File), Bytes: max(before, after) - min(before, after)}
	if was.File != is.File {
		f.Was = valid(was.File)
	}
	by := cmp.Compare(after, before)
	switch {
	case by < 0:
		f.Why = mostly(old, was, now, is)
	case by > 0:
		f.Why = mostly(now, is, old, was)
	}
	if was.Status != is.Status {
		f.From, f.To = cmp.Or(was.Status, refusals[statusCFI].name), cmp.Or(is.Status, refusals[statusCFI].name)
		switch {
		case is.Status == "":
			f.Bytes, f.Why, by = is.Described, "", -1
		case was.Status == "":
			f.Bytes, f.Why, by = was.Described, "", 1
		}
	}
	return f, by
}

// mostly returns the reason by which the first file loses most that the second does not.
func mostly(more *compared, a *entry, less *compared, b *entry) string {
	var most uint64
	reason := ""
	for _, g := range a.Gaps {
		n := g.Bytes
		for _, h := range b.Gaps {
			if h.Reason == g.Reason && less.loss[h.Reason] {
				n -= min(n, h.Bytes)
			}
		}
		if more.loss[g.Reason] && n > most {
			most, reason = n, g.Reason
		}
	}
	return reason
}

// changes are files to which the same has happened.
type changes struct {
	FileChanges
	list worst[FileChange]
}

func newChanges() *changes {
	return &changes{list: worst[FileChange]{max: defaultWorst, cmp: func(a, b *FileChange) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.File, b.File), cmp.Compare(a.Was, b.Was))
	}}}
}

func (c *changes) add(f FileChange) {
	c.Files++
	c.Bytes += f.Bytes
	c.list.add(f)
}

func (c *changes) all() FileChanges {
	c.Worst = c.list.kept
	return c.FileChanges
}

// totals compares the sums.
func (c *Comparison) totals(old, now *compared) {
	formats := make(map[sframe.Version]*FormatChange)
	gaps := make(map[string]*GapChange)
	abis := make(map[string]*ABIChange)
	var reasons []string // those of now, and then others, so that both are in their orders
	for i, s := range []*compared{old, now} {
		for _, f := range s.total.Formats {
			to := entryOf(formats, f.Format)
			to.Format = f.Format
			*pick(i, &to.Old, &to.New) = Coverage{f.Functions, f.Whole, f.Described, f.Covered + f.Outermost}
		}
		for _, g := range s.total.Gaps {
			if g.Ranges == 0 {
				continue
			}
			to := entryOf(gaps, g.Reason)
			to.Reason, to.Text, to.Loss = g.Reason, g.Text, g.Loss
			*pick(i, &to.Old, &to.New) = Amount{g.Files, g.Functions, g.Ranges, g.Bytes}
		}
		for _, p := range s.abis {
			to := entryOf(abis, p.Name)
			to.ABI = p.Name
			*pick(i, &to.Old, &to.New) = ABIAmount{p.Files, p.WithCFI, p.Described, lostOf(p.Gaps)}
		}
	}
	for _, s := range []*compared{now, old} {
		for _, g := range s.total.Gaps {
			if gaps[g.Reason] != nil && !slices.Contains(reasons, g.Reason) {
				reasons = append(reasons, g.Reason)
			}
		}
	}
	for _, r := range reasons {
		c.Gaps = append(c.Gaps, *gaps[r])
	}
	for _, f := range sorted(formats) {
		c.Formats = append(c.Formats, *f)
	}
	for _, a := range sorted(abis) {
		c.ABIs = append(c.ABIs, *a)
	}
}

// pick returns the first or the second.
func pick[T any](i int, first, second *T) *T {
	if i == 0 {
		return first
	}
	return second
}

// entryOf returns what a map has for a key, and makes it if there is nothing.
func entryOf[K comparable, V any](m map[K]*V, key K) *V {
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// sorted returns what a map has, by key.
func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	var out []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
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
