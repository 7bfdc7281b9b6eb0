package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
)

// A destination is an output file.
type destination struct {
	name string // in messages
	path string // or "" for an open file
	info fs.FileInfo
	err  error // the system error if info cannot be read
}

// distinct returns an error if one of the paths is the destination, which may be nil, or if a system error prevents the
// check.
func (d *destination) distinct(use string, paths ...string) error {
	if d != nil && d.err != nil {
		return fmt.Errorf("%s: %w", d.name, outfile.Plain(d.err))
	}
	for _, path := range paths {
		if path != "" && d.matches(path) {
			return fmt.Errorf("%s is also %s; use another file", d.name, use)
		}
	}
	return nil
}

// distinct returns an error if an output would overwrite a file that the conversion reads, or a different output.
func (s *conversion) distinct(stdout, stderr io.Writer) error {
	var output *destination
	if s.output != "" && !outfile.IsStdout(s.output) && !s.to.ByBuildID {
		output = destinationOf("-o", s.output)
	}
	to := s.destination(s.stream(stdout, stderr))
	inputs := inputPaths(s.files)
	if output != nil && slices.ContainsFunc(inputs, output.matches) {
		if s.verb == "detach" {
			return fmt.Errorf("%s is also an input; use another file", output.name)
		}
		return fmt.Errorf("%s is also an input; use --in-place, or another file", output.name)
	}
	err := to.distinct("an input", inputs...)
	if output != nil {
		err = cmp.Or(err, to.distinct("the output", s.output))
	}
	for _, d := range []*destination{to, output} {
		err = cmp.Or(err, s.debugDistinct(d), s.sframeDistinct(d))
	}
	if s.to.ByBuildID && to != nil && to.path != "" && isBelow(to.path, debugfile.Store(s.output)) {
		err = cmp.Or(err, fmt.Errorf("%s is among the outputs below %s; use another file", to.name, s.output))
	}
	return err
}

// distinctInputs returns an error if the report would overwrite an input.
func (c *call) distinctInputs(r *reporting, inputs []string) error {
	return r.destination(c.stdout, "standard output").distinct("an input", inputPaths(inputs)...)
}

// inputPaths returns the paths of input files.
func inputPaths(names []string) []string {
	inputs := slices.Clone(names)
	if i := slices.Index(inputs, files.Stdin); i >= 0 {
		inputs[i] = "/dev/stdin"
	}
	return inputs
}

// debugDistinct returns an error if a destination is also a debug file.
func (s *conversion) debugDistinct(d *destination) error {
	if s.debugFile != debugfile.Auto {
		return d.distinct("the debug file", s.debugFile)
	}
	if d.isFound(s.files, debugfile.IsFound) {
		return fmt.Errorf("%s is also the debug file; use another file", d.name)
	}
	return nil
}

// sframeDistinct returns an error if a destination is also the detached .sframe of an input.
func (s *conversion) sframeDistinct(d *destination) error {
	found := func(info fs.FileInfo, in string) bool { return debugfile.IsSFrame(info, s.sframe, in) }
	if s.sframe != "" && d.isFound(s.files, found) {
		return fmt.Errorf("%s is also the --sframe file; use another file", d.name)
	}
	return nil
}

// isFound reports whether match returns true for the destination and any of the inputs. If the destination does not
// exist, the result is false.
func (d *destination) isFound(inputs []string, match func(info fs.FileInfo, in string) bool) bool {
	return d != nil && d.info != nil && slices.ContainsFunc(inputs, func(in string) bool { return match(d.info, in) })
}

// isBelow reports whether a path, which need not exist, is below a directory.
func isBelow(path, dir string) bool {
	a, errA := outfile.RealPath(path)
	b, errB := outfile.RealPath(dir)
	return errA == nil && errB == nil && strings.HasPrefix(a, b+string(filepath.Separator))
}

// destination returns the file that the report is written to, or nil. Without --report-file, the result is the file
// that the stream is redirected to, if any.
func (r *reporting) destination(stream io.Writer, name string) *destination {
	if r.form == "none" {
		return nil
	}
	if r.file != "" && !outfile.IsStdout(r.file) {
		return destinationOf("--report-file", r.file)
	}
	f, ok := stream.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	return &destination{name: name + ", the destination of the report,", info: info}
}

// destinationOf returns the destination that a flag names.
func destinationOf(flag, path string) *destination {
	info, err := os.Stat(path)
	if !outfile.OfMachine(err) { // it may not exist
		err = nil
	}
	return &destination{name: flag + " " + path, path: path, info: info, err: err}
}

// matches reports whether a path names the destination, which may not exist yet. Devices never match.
func (d *destination) matches(path string) bool {
	if d == nil {
		return false
	}
	info, err := os.Stat(path)
	if err == nil || d.info != nil || d.path == "" {
		return err == nil && d.isFile(info)
	}
	a, errA := outfile.RealPath(d.path)
	b, errB := outfile.RealPath(path)
	return errA == nil && errB == nil && a == b
}

// isOld reports whether a file found in a directory is an earlier report that this run replaces. Other files are
// inputs.
func (d *destination) isOld(path string, info fs.FileInfo) bool {
	if !d.isFile(info) {
		return false
	}
	f, _, err := outfile.OpenRegular(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	head = head[:n]
	return (err == nil || n == 0 && err == io.EOF || err == io.ErrUnexpectedEOF) && !slices.Contains(head, 0) &&
		!bytes.HasPrefix(head, []byte("!<")) // an archive
}

// isFile reports whether info describes the destination.
func (d *destination) isFile(info fs.FileInfo) bool {
	return d != nil && d.info != nil && info.Mode()&fs.ModeDevice == 0 && os.SameFile(info, d.info)
}

// usageError returns err if it is a usage error. If it is a system error, it is printed, and the exit status is set.
func (c *call) usageError(err error) error {
	if !outfile.OfMachine(err) {
		return err
	}
	fmt.Fprintf(c.stderr, "cfi2sframe: %s\n", report.PrintableMessage(err.Error()))
	c.status = exitError
	return nil
}
