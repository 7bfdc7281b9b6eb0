package debian

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// formats are the versions of SFrame that files are converted to.
var formats = []int{2, 3}

// A converted package.
type converted struct {
	Folder  string   `json:"folder"`
	Files   []result `json:"files"`
	Objects int      `json:"objects"` // relocatable ones, which are left alone
}

// A result is what became of a file.
type result struct {
	File      string           `json:"file"` // below the package's folder
	Size      int64            `json:"size"`
	Outcomes  map[int]*outcome `json:"outcomes"` // by version of SFrame
	Functions []lossy          `json:"functions,omitempty"`
	Own       *own             `json:"own,omitempty"` // the .sframe that the file has already
}

// own is what --check says of an .sframe that came with the file.
type own struct {
	Version   int    `json:"version"`
	Covered   uint64 `json:"covered"`
	Described uint64 `json:"described"`
	Mismatch  int    `json:"mismatches,omitempty"`
	First     string `json:"first,omitempty"` // mismatch, or why it cannot be read
}

// An outcome is what cfi2sframe says of a file in one version.
type outcome struct {
	Kept  string `json:"kept,omitempty"`  // why it stayed as it was; the names are those of the JSON report
	Why   string `json:"why,omitempty"`   // the same in words
	Error string `json:"error,omitempty"` // why it was refused
	Check string `json:"check,omitempty"` // what --check found wrong with the result

	Described uint64            `json:"described"`
	Covered   uint64            `json:"covered"`
	Outermost uint64            `json:"outermost,omitempty"`
	Functions int               `json:"functions"`
	FDEs      int               `json:"fdes"`
	FREs      int               `json:"fres"`
	SFrame    uint64            `json:"sframe_size"`
	EhFrame   uint64            `json:"eh_frame_size"`
	EhHdr     uint64            `json:"eh_frame_hdr_size"`
	Malformed []string          `json:"malformed,omitempty"`
	Broken    int               `json:"malformed_count,omitempty"`
	Omitted   int               `json:"gaps_omitted,omitempty"`
	Lost      map[string]uint64 `json:"lost,omitempty"` // bytes by reason, where a stack trace loses something
	Mismatch  int               `json:"mismatches,omitempty"`
}

// done reports whether there is a new file.
func (o *outcome) done() bool { return o.Kept == "" && o.Error == "" }

// A lossy function is one of which something is lost, by one reason and one kind of rule. Those without a name are taken together.
type lossy struct {
	Name   string `json:"name,omitempty"`
	Reason string `json:"reason"`
	Rule   string `json:"rule,omitempty"` // without numbers
	Number int    `json:"number"`         // of functions
	V2     uint64 `json:"v2,omitempty"`   // bytes lost
	V3     uint64 `json:"v3,omitempty"`

	last string // function that was counted last
}

// number is one in a rule, but for those of registers.
var number = regexp.MustCompile(`[+-]?0x[0-9a-f]+|[+-]\d+`)

// shape is a rule without its numbers: what is the same in all functions that do the same.
func shape(rule string) string {
	return number.ReplaceAllStringFunc(rule, func(n string) string {
		if n[0] == '+' || n[0] == '-' {
			return n[:1] + "N"
		}
		return "N"
	})
}

// said is the part of the JSON report that is of interest.
type said struct {
	File      string `json:"file"`
	Kept      string `json:"kept"`
	Why       string `json:"why"`
	Described uint64 `json:"described"`
	Covered   uint64 `json:"covered"`
	Outermost uint64 `json:"outermost"`
	Functions int    `json:"functions"`
	FDEs      int    `json:"fdes"`
	FREs      int    `json:"fres"`
	SFrame    uint64 `json:"sframe_size"`
	EhFrame   uint64 `json:"eh_frame_size"`
	EhHdr     uint64 `json:"eh_frame_hdr_size"`
	Omitted   int    `json:"gaps_omitted"`
	Malformed struct {
		Count  int      `json:"count"`
		Errors []string `json:"errors"`
	} `json:"malformed"`
	Reasons []struct {
		Reason string `json:"reason"`
		Bytes  uint64 `json:"bytes"`
		Loss   bool   `json:"loss"`
	} `json:"gaps_by_reason"`
	Gaps []struct {
		Function string `json:"function"`
		Begin    uint64 `json:"begin"`
		End      uint64 `json:"end"`
		Reason   string `json:"reason"`
		Rule     string `json:"rule"`
		FDE      string `json:"fde"`
	} `json:"gaps"`
	Verified bool `json:"verified"`
}

// convertAll converts the files of all packages in a tree, but those that the results have.
func convertAll(s *settings, tree string, out io.Writer) error {
	have, err := readResults(s.results)
	if err != nil {
		return err
	}
	folders, err := os.ReadDir(tree)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.results, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	var mu sync.Mutex
	var errs []error
	files := 0
	work := make(chan string)
	var wg sync.WaitGroup
	for range s.jobs {
		wg.Go(func() {
			for folder := range work {
				c, err := s.convert(tree, folder)
				var line []byte
				if err == nil {
					line, err = json.Marshal(c)
				}
				mu.Lock()
				if err == nil {
					_, err = file.Write(append(line, '\n'))
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", folder, err))
				} else {
					files += len(c.Files)
				}
				mu.Unlock()
			}
		})
	}
	n := 0
	for _, f := range folders {
		if have[f.Name()] == nil {
			work <- f.Name()
			n++
		}
	}
	close(work)
	wg.Wait()
	fmt.Fprintf(out, "%s: %d packages converted, %d files; %d packages were there already\n", tree, n, files, len(have))
	return errors.Join(errs...)
}

// readResults returns the packages that a file of results has. A last line that is not whole does not count, and is removed.
func readResults(name string) (map[string]*converted, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if end := bytes.LastIndexByte(b, '\n') + 1; end < len(b) {
		b = b[:end]
		if err := os.Truncate(name, int64(end)); err != nil {
			return nil, err
		}
	}
	all := make(map[string]*converted)
	for line := range bytes.Lines(b) {
		c := new(converted)
		if err := json.Unmarshal(line, c); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[c.Folder] = c
	}
	return all, nil
}

// batch is how many files cfi2sframe is run for at a time.
const batch = 200

// convert converts the files of a package.
func (s *settings) convert(tree, folder string) (*converted, error) {
	c := &converted{Folder: folder, Files: []result{}}
	root := filepath.Join(tree, folder)
	var seen []fs.FileInfo // with several names
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		object, err := isObject(name)
		if err != nil {
			return err
		}
		if object {
			c.Objects++
			return nil
		}
		if slices.ContainsFunc(seen, func(i fs.FileInfo) bool { return os.SameFile(i, info) }) {
			return nil
		}
		seen = append(seen, info)
		rel, _ := filepath.Rel(root, name) // name begins with root
		c.Files = append(c.Files, result{File: rel, Size: info.Size(), Outcomes: make(map[int]*outcome)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(tree), "work-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for i := range c.Files {
		if err := s.own(filepath.Join(root, c.Files[i].File), &c.Files[i]); err != nil {
			return nil, err
		}
	}
	for part := range slices.Chunk(c.Files, batch) {
		for _, format := range formats {
			if err := s.format(root, dir, part, format); err != nil {
				return nil, fmt.Errorf("format %d: %w", format, err)
			}
		}
	}
	return c, nil
}

func isObject(name string) (bool, error) {
	r, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer r.Close()
	b := make([]byte, elf.EI_NIDENT+2)
	if n, err := r.ReadAt(b, 0); n < len(b) {
		if err == io.EOF {
			err = nil // cfi2sframe has its own to say
		}
		return false, err
	}
	if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
		return b[elf.EI_NIDENT] == 0 && elf.Type(b[elf.EI_NIDENT+1]) == elf.ET_REL, nil
	}
	return elf.Type(b[elf.EI_NIDENT]) == elf.ET_REL && b[elf.EI_NIDENT+1] == 0, nil
}

// format converts files to a version, in dir, and has the results read again.
func (s *settings) format(root, dir string, files []result, format int) error {
	var names []string
	for i := range files {
		// --in-place makes a new file: the package's stays as it is.
		name := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Link(filepath.Join(root, files[i].File), name); err != nil {
			return err
		}
		names = append(names, name)
	}
	defer func() {
		for _, name := range names {
			os.Remove(name)
		}
	}()
	at := func(name string) *result {
		i, err := strconv.Atoi(filepath.Base(name))
		if err != nil || i < 0 || i >= len(files) {
			return nil
		}
		return &files[i]
	}
	out, complaints, err := s.run(append([]string{
		"--in-place", "--format", strconv.Itoa(format), "--force", "--no-sync", "--skip-unsupported", "--jobs", "1", "--report", "json",
	}, names...))
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var r said
		if err := decoder.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("the report: %w", err)
		}
		to := at(r.File)
		if to == nil {
			return fmt.Errorf("the report is about %q", r.File)
		}
		to.Outcomes[format] = to.outcome(&r, format)
	}
	for name, text := range complaints {
		if to := at(name); to != nil && to.Outcomes[format] == nil {
			to.Outcomes[format] = &outcome{Error: text}
		}
	}
	names = slices.Clip(names)
	var results []string
	for i, name := range names {
		switch o := files[i].Outcomes[format]; {
		case o == nil:
			return fmt.Errorf("%s: cfi2sframe says nothing of it", files[i].File)
		case o.done():
			results = append(results, name)
		}
	}
	return s.check(results, func(name string) *outcome {
		if r := at(name); r != nil {
			return r.Outcomes[format]
		}
		return nil
	})
}

// outcome takes from a report what is kept of it.
func (r *result) outcome(from *said, format int) *outcome {
	o := &outcome{
		Kept: from.Kept, Why: from.Why, Described: from.Described, Covered: from.Covered, Outermost: from.Outermost, Functions: from.Functions,
		FDEs: from.FDEs, FREs: from.FREs, SFrame: from.SFrame, EhFrame: from.EhFrame, EhHdr: from.EhHdr,
		Malformed: from.Malformed.Errors, Broken: from.Malformed.Count, Omitted: from.Omitted, Lost: make(map[string]uint64),
	}
	for _, g := range from.Reasons {
		if g.Loss {
			o.Lost[g.Reason] = g.Bytes
		}
	}
	if o.done() && !from.Verified {
		o.Check = "not verified"
	}
	for _, g := range from.Gaps {
		if o.Lost[g.Reason] == 0 {
			continue
		}
		rule := shape(g.Rule)
		i := slices.IndexFunc(r.Functions, func(l lossy) bool { return l.Name == g.Function && l.Reason == g.Reason && l.Rule == rule })
		if i < 0 {
			i = len(r.Functions)
			r.Functions = append(r.Functions, lossy{Name: g.Function, Reason: g.Reason, Rule: rule})
		}
		// Gaps are in the order of addresses, and what V3 leaves out V2 does, too.
		if l := &r.Functions[i]; format == 2 && l.last != g.FDE {
			l.Number++
			l.last = g.FDE
		}
		if format == 2 {
			r.Functions[i].V2 += g.End - g.Begin
		} else {
			r.Functions[i].V3 += g.End - g.Begin
		}
	}
	return o
}

// run runs cfi2sframe, and returns what it prints, and what it complains about, by file. Status 1 is of a
// file that is refused or wrong.
func (s *settings) run(args []string) ([]byte, map[string]string, error) {
	var out, complaints bytes.Buffer
	cmd := exec.Command(s.tool, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w: %s", s.tool, err, complaints.Bytes())
	}
	by := make(map[string]string)
	lines := bufio.NewScanner(&complaints)
	for lines.Scan() {
		text := strings.TrimPrefix(lines.Text(), "cfi2sframe: ")
		if name, what, ok := strings.Cut(text, ": "); ok {
			by[name] = what
		}
	}
	return out.Bytes(), by, lines.Err()
}
