package survey

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

const (
	maxValue  = 16 << 20 // bytes of JSON that are one element of a list, or a field that is none
	maxOrigin = 64       // bytes of the name of a language or compiler
	maxNumber = 1 << 40  // functions, ranges and files: no file system has more
)

// A partHead is what says how to read the rest of a survey.
type partHead struct {
	tool string
	Settings
	paths  []Part
	shards []Shards
}

// skipped returns what is not examined below all paths together.
func (h *partHead) skipped() Skipped {
	var real []string
	for i := range h.paths {
		p := &h.paths[i]
		real = append(real, cmp.Or(unraw(p.Real, p.RawReal), unraw(p.Name, p.RawName)))
	}
	var sum Skipped
	for i, outer := range covers(real) {
		if outer < 0 {
			sum.add(h.paths[i].Skipped)
		}
	}
	return sum
}

// A partBody is the rest.
type partBody struct {
	lines     []*line
	functions []BadFunction
}

// A decoder reads the JSON form of a survey.
type decoder struct {
	*json.Decoder
	strict bool  // it takes no fields that it does not know
	read   int64 // bytes
	head   partHead
	abis   []Part
	total  *Sums
	files  []entry
	worst  []BadFunction
	fields map[string]bool // that were met
}

// openPart opens a file that has a survey.
func openPart(name string) (*os.File, error) {
	f, _, err := outfile.OpenRegular(name)
	if err != nil {
		return nil, outfile.Plain(err)
	}
	return f, nil
}

// newDecoder returns a decoder for what r has.
func newDecoder(r io.Reader, strict bool) *decoder {
	d := &decoder{strict: strict, fields: make(map[string]bool)}
	d.Decoder = json.NewDecoder(&bounded{r: r, d: d})
	if strict {
		d.DisallowUnknownFields()
	}
	return d
}

// bounded reads no more at a time than one value may have.
type bounded struct {
	r io.Reader
	d *decoder
}

var errTooLong = fmt.Errorf("a value of more than %d bytes", maxValue)

func (b *bounded) Read(p []byte) (int, error) {
	if b.d.Decoder != nil && b.d.read-b.d.InputOffset() > maxValue {
		return 0, errTooLong
	}
	n, err := b.r.Read(p)
	b.d.read += int64(n)
	return n, err
}

// fail says what is wrong, and where.
func (d *decoder) fail(format string, args ...any) error {
	return fmt.Errorf("offset %d: %w", d.InputOffset(), fmt.Errorf(format, args...))
}

// explain says in the words of this program what is wrong with JSON that begins at an offset.
func (d *decoder) explain(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("offset %d: the file ends; the rest of a survey in JSON was expected", d.read)
	case errors.As(err, &kind):
		field := ""
		if kind.Field != "" {
			field = report.Printable(kind.Field) + ": "
		}
		return d.fail("%sa %s; %s was expected", field, kind.Value, kindOf(kind.Type))
	case errors.As(err, &syntax):
		return d.fail("no JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return d.fail("%s; a survey in JSON was expected", strings.TrimPrefix(err.Error(), "json: "))
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Struct:
		return "an object"
	}
	return "a whole number, not negative and of " + fmt.Sprint(t.Bits()) + " bits,"
}

// value reads a value.
func (d *decoder) value(v any) error {
	if err := d.Decode(v); err != nil {
		return d.explain(err)
	}
	return nil
}

// delim reads one of the characters that hold values together.
func (d *decoder) delim(want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return d.explain(err)
	}
	if t != want {
		return d.fail("%.40q; %q was expected", fmt.Sprint(t), want.String())
	}
	return nil
}

// values reads a list.
func values[T any](d *decoder, take func(*T) error) error {
	if err := d.delim('['); err != nil {
		return err
	}
	for d.More() {
		var v T
		if err := d.value(&v); err != nil {
			return err
		}
		if err := take(&v); err != nil {
			return err
		}
	}
	return d.delim(']')
}

// keep reads a list into a slice.
func keep[T any](d *decoder, to *[]T) error {
	return values(d, func(v *T) error {
		*to = append(*to, *v)
		return nil
	})
}

// first are the fields that a survey begins with, in this order. When the last of them is read, no other one is to come.
var first = []string{"schema", "tool", "objects", "packages", "shards", "paths"}

// readHead reads no more of a survey than it takes to know what it is of.
func (d *decoder) readHead() error {
	at := 0
	ordered := true
	return d.object(func(key string) (bool, error) {
		i := slices.Index(first[at:], key)
		if ordered = ordered && i >= 0; ordered {
			at += i
		}
		return ordered && key == first[len(first)-1], d.field(key, true)
	})
}

// object reads the fields of the survey, until one of them is the last.
func (d *decoder) object(field func(key string) (last bool, err error)) error {
	if err := d.delim('{'); err != nil {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return d.explain(err)
		}
		key, _ := t.(string)
		if d.fields[key] {
			return d.fail("%s is there twice", report.Printable(key))
		}
		d.fields[key] = true
		if last, err := field(key); err != nil || last {
			return err
		}
	}
	if err := d.delim('}'); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return d.fail("there is more after the survey; the end of the file was expected")
	}
	for _, key := range []string{"schema", "tool", "total"} {
		if !d.fields[key] {
			return d.fail("%s is missing in the survey", key)
		}
	}
	return nil
}

// field reads a field. What follows from others, and in the head what comes after it, is passed over.
func (d *decoder) field(key string, head bool) error {
	switch key {
	case "schema":
		var n uint64
		if err := d.value(&n); err != nil {
			return err
		}
		if n != Schema {
			return d.fail("schema %d; %d was expected", n, Schema)
		}
		return nil
	case "tool":
		return d.value(&d.head.tool)
	case "objects":
		return d.value(&d.head.Objects)
	case "packages":
		return d.value(&d.head.Packages)
	case "shards":
		return keep(d, &d.head.shards)
	case "paths":
		return keep(d, &d.head.paths)
	case "abis":
		return keep(d, &d.abis)
	case "languages", "compilers", "worst_files_by_bytes", "worst_files_by_share", "errors":
		return values(d, func(*json.RawMessage) error { return nil })
	case "files":
		if head {
			return values(d, func(*json.RawMessage) error { return nil })
		}
		return keep(d, &d.files)
	case "worst_functions":
		if head {
			return values(d, func(*json.RawMessage) error { return nil })
		}
		return keep(d, &d.worst)
	case "total":
		d.total = new(Sums)
		return d.value(d.total)
	case "errors_omitted":
		var n uint64
		return d.value(&n)
	}
	if !d.strict {
		var later json.RawMessage
		return d.value(&later)
	}
	return d.fail("%s is no field of a survey of schema %d", report.Printable(key), Schema)
}

// readAll reads a survey to its end. What it says of its files is right as far as it can be known.
func (d *decoder) readAll() (*partBody, error) {
	if err := d.object(func(key string) (bool, error) { return false, d.field(key, false) }); err != nil {
		return nil, err
	}
	b := &partBody{lines: make([]*line, 0, len(d.files))}
	sums := newSums()
	last := make(map[string]*line) // of each file on the disk
	for i := range d.files {
		l, err := d.files[i].line(len(d.head.paths))
		if err != nil {
			return nil, fmt.Errorf("files, element %d: %w", i+1, err)
		}
		if p := &d.head.paths[l.path]; !isBelow(l.disk, unraw(p.Name, p.RawName)) {
			return nil, fmt.Errorf("files, element %d: %s is not below the path that led to it, %s", i+1, report.Printable(l.disk), report.Printable(p.Name))
		}
		if before := last[l.disk]; before != nil {
			if b.lines[i-1] != before || before.file == before.disk || l.file == l.disk || before.path != l.path {
				return nil, fmt.Errorf("files, element %d: %s is there twice", i+1, report.Printable(l.disk))
			}
			l.disk, l.seq = before.disk, before.seq+1
		}
		last[l.disk] = l
		b.lines = append(b.lines, l)
		sums.add(l)
	}
	sums.Skipped = d.head.skipped()
	if !reflect.DeepEqual(sums.compact(), d.total.compact()) {
		return nil, errors.New("the total is not the sum of the files: damaged, or changed after it was made")
	}
	ranks := make(map[string]int)
	for i := range d.worst {
		f := &d.worst[i]
		f.File, f.RawFile = unraw(f.File, f.RawFile), nil
		f.disk = f.File
		if f.Disk > 0 && f.Disk < len(f.File) {
			f.disk = f.File[:f.Disk]
		}
		if last[f.disk] == nil {
			return nil, fmt.Errorf("worst_functions, element %d: %s is not among the files", i+1, report.Printable(f.disk))
		}
		if reasonOf(f.Reason) == 0 || f.Lost > f.Size {
			return nil, fmt.Errorf("worst_functions, element %d: %d of %d bytes are lost by reason %.40q, which is too much, or not known", i+1, f.Lost, f.Size, f.Reason)
		}
		f.disk, f.path, f.rank = last[f.disk].disk, last[f.disk].path, ranks[f.disk]
		ranks[f.disk]++
		b.functions = append(b.functions, *f)
	}
	d.files, d.worst = nil, nil
	return b, nil
}

// isBelow reports whether a path, or something below it, has the name of a file.
func isBelow(file, path string) bool {
	rest, ok := strings.CutPrefix(file, path)
	switch {
	case path == ".":
		return filepath.IsLocal(file)
	case !ok:
		return false
	}
	return rest == "" || strings.HasSuffix(path, "/") || rest[0] == '/'
}

// unraw returns a name from its two forms.
func unraw(name string, raw []byte) string {
	if raw != nil {
		return string(raw)
	}
	return name
}

// abis are those that there are, by name.
var abis = func() map[string]sframe.ABI {
	out := make(map[string]sframe.ABI)
	for _, v := range Formats {
		l, _ := v.Layout()
		for _, a := range l.ABIs {
			out[a.String()] = a
		}
	}
	return out
}()

// line returns what the entry is the JSON form of. There are so many paths.
func (e *entry) line(paths int) (*line, error) {
	l := &line{
		path: int32(e.Path), file: unraw(e.File, e.RawFile), message: e.Error, drap: e.DRAP, otherCFA: e.OtherCFA,
		functions: int(e.Functions), described: e.Described, withoutCFI: e.WithoutCFI,
	}
	l.disk = l.file
	switch {
	case l.file == "":
		return nil, errors.New("there is no name")
	case e.Path < 0 || e.Path >= paths:
		return nil, fmt.Errorf("path %d of %d", e.Path, paths)
	case e.Disk < 0 || e.Disk >= len(l.file):
		return nil, fmt.Errorf("%s: disk is %d; less than the length of the name was expected", report.Printable(l.file), e.Disk)
	case e.Disk > 0:
		l.disk = l.file[:e.Disk]
	}
	if e.ABI != "" {
		if l.abi = abis[e.ABI]; l.abi == 0 {
			return nil, fmt.Errorf("%s: ABI %.40q is not known", report.Printable(l.file), e.ABI)
		}
	}
	if e.Status != "" {
		i := slices.IndexFunc(refusals[firstRefusal:], func(r refusal) bool { return r.name == e.Status })
		if i < 0 {
			return nil, fmt.Errorf("%s: status %.40q is not known", report.Printable(l.file), e.Status)
		}
		l.status = firstRefusal + status(i)
	}
	for _, names := range [][]string{e.Languages, e.Compilers} {
		for i, n := range names {
			if n == "" || len(n) > maxOrigin || i > 0 && n <= names[i-1] {
				return nil, fmt.Errorf("%s: languages or compilers that are not sorted, each of 1 to %d bytes", report.Printable(l.file), maxOrigin)
			}
		}
	}
	l.origin = origin{e.Languages, e.Compilers}
	if err := e.figures(l); err != nil {
		return nil, fmt.Errorf("%s: %w", report.Printable(l.file), err)
	}
	return l, nil
}

// figures fills in what is counted in a file.
func (e *entry) figures(l *line) error {
	counts := []uint64{e.Functions}
	if l.status == statusCFI {
		l.formats = make([]Format, len(Formats))
	} else if len(e.Formats)+len(e.Gaps) > 0 {
		return fmt.Errorf("formats and gaps with status %s; none were expected", e.Status)
	}
	for i := range e.Formats {
		f := &e.Formats[i]
		j := slices.Index(Formats, f.Format)
		if j < 0 || l.formats[j].Format != 0 {
			return fmt.Errorf("format %d is not known, or there twice", f.Format)
		}
		to := Format{
			Format: f.Format, Functions: l.functions, Whole: int(f.Whole), Described: l.described,
			Covered: f.Covered, Outermost: f.Outermost, Topmost: f.Topmost,
		}
		counts = append(counts, f.Whole)
		if f.Functions != nil {
			counts = append(counts, *f.Functions)
			to.Functions = int(*f.Functions)
		}
		if f.Described != nil {
			to.Described = *f.Described
		}
		l.formats[j] = to
	}
	before := translate.Reason(0)
	for _, g := range e.Gaps {
		r := reasonOf(g.Reason)
		if r <= before {
			return fmt.Errorf("reason %.40q is not known, or out of order", g.Reason)
		}
		before = r
		counts = append(counts, g.Functions, g.Ranges)
		l.gaps = append(l.gaps, gapSum{r, translate.Sum{Functions: int(g.Functions), Ranges: int(g.Ranges), Bytes: g.Bytes}})
	}
	if n := slices.Max(counts); n > maxNumber {
		return fmt.Errorf("%d functions or ranges; at most %d were expected", n, maxNumber)
	}
	return nil
}

// reasonOf returns the reason of a name, or 0.
func reasonOf(name string) translate.Reason {
	for _, r := range translate.Reasons() {
		if r.Name() == name {
			return r
		}
	}
	return 0
}

// same reports whether two lines are about the same contents.
func (l *line) same(m *line) bool {
	a, b := l.entry(), m.entry()
	a.File, a.RawFile, a.Disk, a.Path = l.file[len(l.disk):], nil, 0, 0
	b.File, b.RawFile, b.Disk, b.Path = m.file[len(m.disk):], nil, 0, 0
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
