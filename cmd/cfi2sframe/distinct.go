package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
)

// A destination is a file that is written to.
type destination struct {
	name string // as messages have it
	path string // or "" for one that is open
	info fs.FileInfo
}

// distinct returns an error if the report would get into a file that is read, or into the output,
// by whatever name: one of them would be lost.
func (s *settings) distinct(stdout, stderr io.Writer) error {
	if debug := s.DebugLinkUpdate; debug != "" && debug != debugfile.Auto && s.output != "" {
		d := &destination{path: debug}
		d.info, _ = os.Stat(debug)
		if d.is(s.output) {
			return fmt.Errorf("--debug-link-update %s is also the output; another file was expected", debug)
		}
	}
	if s.report == "none" || s.check || s.dump || s.diff {
		return nil
	}
	d := s.reportDestination(stdout, stderr)
	if d == nil {
		return nil
	}
	if s.output != "" && !outfile.IsStdout(s.output) && d.is(s.output) {
		return fmt.Errorf("%s is also the output; another file was expected", d.name)
	}
	for _, in := range s.files {
		same := d.is(in)
		if in == files.Stdin && !s.sumsUp() {
			info, err := os.Stdin.Stat()
			same = err == nil && d.isFile(info)
		}
		if same {
			return fmt.Errorf("%s is also an input; another file was expected", d.name)
		}
	}
	for _, debug := range []string{s.DebugFile, s.DebugLinkUpdate} {
		found := func(in string) bool { return debugfile.IsFound(d.info, in) }
		if debug != "" && debug != debugfile.Auto && d.is(debug) || debug == debugfile.Auto && d.info != nil && slices.ContainsFunc(s.files, found) {
			return fmt.Errorf("%s is also the debug file; another file was expected", d.name)
		}
	}
	if s.against != "" && d.is(s.against) {
		return fmt.Errorf("%s is also the file of --against; another file was expected", d.name)
	}
	if s.like != "" && d.is(s.like) {
		return fmt.Errorf("%s is also the file of --for; another file was expected", d.name)
	}
	return nil
}

// reportDestination returns where the report goes to, if that can be a file.
func (s *settings) reportDestination(stdout, stderr io.Writer) *destination {
	if s.reportFile != "" && !outfile.IsStdout(s.reportFile) {
		d := &destination{name: "--report-file " + s.reportFile, path: s.reportFile}
		d.info, _ = os.Stat(s.reportFile) // there may be none
		return d
	}
	w, name := stderr, "standard error"
	if s.reportOnStdout() || s.sumsUp() {
		w, name = stdout, "standard output"
	}
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	return &destination{name: name + ", where the report goes,", info: info}
}

// is reports whether a path leads to the same file, which may not be there yet. A device is no
// file in that sense.
func (d *destination) is(path string) bool {
	info, err := os.Stat(path)
	if err == nil || d.info != nil || d.path == "" {
		return err == nil && d.isFile(info)
	}
	a, errA := outfile.EntryOf(d.path)
	b, errB := outfile.EntryOf(path)
	return errA == nil && errB == nil && a == b
}

// isFile reports whether the file that info describes is the same.
func (d *destination) isFile(info fs.FileInfo) bool {
	return d.info != nil && info.Mode()&fs.ModeDevice == 0 && os.SameFile(info, d.info)
}
