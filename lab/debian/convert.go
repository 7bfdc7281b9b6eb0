package debian

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/lab/kit"
)

// versions are those that files are converted to.
var versions = []int{2, 3}

// A result is what became of a file.
type result struct {
	Outcomes map[int]*outcome // by version
	Losses   []loss           `json:",omitempty"`
	Own      *checked         `json:",omitempty"` // the .sframe that came with the file
}

// An outcome is the report about a file in one version.
type outcome struct {
	File      string `json:"file,omitempty"`
	Kept      string `json:"kept,omitempty"` // why the file is unchanged; short names of the report
	Error     string `json:"error,omitempty"`
	Check     string `json:"check,omitempty"` // what is wrong with the result
	Described uint64 `json:"described"`
	Covered   uint64 `json:"covered"`
	FDEs      uint64 `json:"fdes"`
	FREs      uint64 `json:"fres"`
	SFrame    uint64 `json:"sframe_size"`
	EhFrame   uint64 `json:"eh_frame_size"`
	EhHdr     uint64 `json:"eh_frame_hdr_size"`
	Verified  bool   `json:"verified"`
	Omitted   int    `json:"gaps_omitted,omitempty"`
	Reasons   []struct {
		Reason string `json:"reason"`
		Loss   bool   `json:"loss"`
	} `json:"gaps_by_reason,omitempty"`
	Gaps []struct {
		Begin  uint64 `json:"begin"`
		End    uint64 `json:"end"`
		Reason string `json:"reason"`
		Rule   string `json:"rule"`
		FDE    string `json:"fde"`
	} `json:"gaps,omitempty"`
}

// checked is the report of --check.
type checked struct {
	File       string `json:"file"`
	Format     int    `json:"format"`
	Described  uint64 `json:"described"`
	Covered    uint64 `json:"covered"`
	Mismatches []any  `json:"mismatches"`
}

// A loss is code of a file that a stack trace loses, by one reason and one kind of rule.
type loss struct {
	Reason    string
	Rule      string `json:",omitempty"` // without numbers
	Functions int    // FDEs
	V2, V3    uint64 // bytes

	last string // FDE that was counted last
}

// number is one in a rule, except numbers of registers.
var number = regexp.MustCompile(`0x[0-9a-f]+|([+-])(0x[0-9a-f]+|\d+)`)

// kind is a rule without its numbers.
func kind(rule string) string { return number.ReplaceAllString(rule, "${1}N") }

// convertAll converts the files of a survey.
func convertAll(tool, tree, results string, jobs int) error {
	s, err := load(results)
	if err != nil {
		return err
	}
	batches := slices.Collect(slices.Chunk(s.files, 100))
	err = kit.Each(jobs, batches, func(_ int, files []*file) error { return convert(tool, filepath.Dir(tree), files) })
	if err != nil {
		return err
	}
	byName := make(map[string]*result)
	for _, f := range s.files {
		byName[f.name] = f.result
	}
	fmt.Printf("%s: %d files\n", s.name, len(s.files))
	return writeJSON(results+".results.json", byName)
}

// convert converts files below dir to all versions, and checks the results.
func convert(tool, dir string, files []*file) error {
	temp, err := os.MkdirTemp(dir, "work-") // where hard links are possible
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	var names []string
	for i, f := range files {
		f.result = &result{Outcomes: make(map[int]*outcome)}
		names = append(names, filepath.Join(temp, strconv.Itoa(i)))
	}
	at := func(name string) *file {
		i, _ := strconv.Atoi(filepath.Base(name))
		return files[i]
	}
	link := func() error {
		for i, f := range files {
			if err := os.RemoveAll(names[i]); err != nil {
				return err
			}
			if err := os.Link(filepath.Join(dir, f.name), names[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := link(); err != nil {
		return err
	}
	_, err = run(tool, append([]string{"--check", "--report", "json"}, names...), func(c *checked) { at(c.File).result.Own = c })
	if err != nil {
		return err
	}
	for _, version := range versions {
		if err := link(); err != nil {
			return err
		}
		// --in-place makes a new file, and so the package's is unchanged.
		args := []string{
			"--in-place", "--format", strconv.Itoa(version), "--force", "--no-sync", "--skip-unsupported", "--jobs", "1",
			"--report", "json",
		}
		complaints, err := run(tool, append(args, names...), func(o *outcome) {
			at(o.File).result.Outcomes[version] = o
		})
		if err != nil {
			return err
		}
		var made []string
		for i, f := range files {
			o := f.result.Outcomes[version]
			if o == nil {
				o = &outcome{Error: complaints[names[i]]}
				f.result.Outcomes[version] = o
				if o.Error == "" {
					return fmt.Errorf("%s: no report about version %d", f.name, version)
				}
			}
			if o.Omitted > 0 {
				return fmt.Errorf("%s: %d gaps are not in the report", f.name, o.Omitted)
			}
			if f.converted(version) {
				made = append(made, names[i])
				o.Check = "no report of --check"
			}
			f.result.addLosses(o, version)
		}
		if len(made) == 0 {
			continue
		}
		complaints, err = run(tool, append([]string{"--check", "--report", "json"}, made...), func(c *checked) {
			o := at(c.File).result.Outcomes[version]
			o.Check = compare(o, c)
		})
		if err != nil {
			return err
		}
		for name, text := range complaints {
			at(name).result.Outcomes[version].Check = text
		}
	}
	return nil
}

// compare says what is wrong with a result.
func compare(o *outcome, c *checked) string {
	switch {
	case !o.Verified:
		return "not verified"
	case len(c.Mismatches) > 0:
		return fmt.Sprintf("%d mismatches", len(c.Mismatches))
	case c.Covered != o.Covered || c.Described != o.Described:
		return fmt.Sprintf("--check: %d of %d bytes; the report had %d of %d", c.Covered, c.Described, o.Covered, o.Described)
	}
	return ""
}

// addLosses sums up the gaps of a report, and removes what the tables do not need.
func (r *result) addLosses(o *outcome, version int) {
	lossy := make(map[string]bool)
	for _, reason := range o.Reasons {
		lossy[reason.Reason] = reason.Loss
	}
	for _, g := range o.Gaps {
		if !lossy[g.Reason] {
			continue
		}
		rule := kind(g.Rule)
		i := slices.IndexFunc(r.Losses, func(l loss) bool { return l.Reason == g.Reason && l.Rule == rule })
		if i < 0 {
			i = len(r.Losses)
			r.Losses = append(r.Losses, loss{Reason: g.Reason, Rule: rule})
		}
		l := &r.Losses[i]
		if version == 3 {
			l.V3 += g.End - g.Begin
			continue
		}
		l.V2 += g.End - g.Begin // gaps of V2 include those of V3, and are in the order of addresses
		if l.last != g.FDE {
			l.Functions++
			l.last = g.FDE
		}
	}
	o.File, o.Reasons, o.Gaps = "", nil, nil
}

// run runs cfi2sframe, calls found for each report, and returns the messages on stderr by file. Status 1 means that a
// file is refused or wrong.
func run[T any](tool string, args []string, found func(*T)) (map[string]string, error) {
	var out, stderr bytes.Buffer
	cmd := exec.Command(tool, args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !(ok && exit.ExitCode() == 1) {
		return nil, fmt.Errorf("%s: %w: %s", tool, err, stderr.Bytes())
	}
	for d := json.NewDecoder(&out); ; {
		r := new(T)
		if err := d.Decode(r); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the report: %w", err)
		}
		found(r)
	}
	complaints := make(map[string]string)
	for line := range strings.Lines(stderr.String()) {
		text := strings.TrimPrefix(strings.TrimSpace(line), "cfi2sframe: ")
		if name, what, ok := strings.Cut(text, ": "); ok && filepath.IsAbs(name) {
			complaints[name] = what
		}
	}
	return complaints, nil
}
