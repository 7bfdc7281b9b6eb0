package main

import (
	"cmp"
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
	name string // in messages
	path string // or "" for an open file
	info fs.FileInfo
}

// distinct returns an error if one of the paths is the destination, which may be nil.
func (d *destination) distinct(use string, paths ...string) error {
	for _, path := range paths {
		if path != "" && d.is(path) {
			return fmt.Errorf("%s is also %s; use another file", d.name, use)
		}
	}
	return nil
}

// distinct returns an error if the report, or the debug file, is also another file of the conversion. One of them would
// be lost.
func (s *conversion) distinct(stdout, stderr io.Writer) error {
	if debug := s.DebugLinkUpdate; debug != "" && debug != debugfile.Auto {
		if err := destinationOf("--debug-link-update", debug).distinct("the output", s.output); err != nil {
			return err
		}
	}
	d := s.destination(s.stream(stdout, stderr))
	var err error
	if !outfile.IsStdout(s.output) {
		err = d.distinct("the output", s.output)
	}
	inputs := slices.Clone(s.files)
	if i := slices.Index(inputs, files.Stdin); i >= 0 {
		inputs[i] = "/dev/stdin"
	}
	err = cmp.Or(err, d.distinct("an input", inputs...), d.distinct("the file of --for", s.like))
	for _, debug := range []string{s.DebugFile, s.DebugLinkUpdate} {
		found := func(in string) bool { return d != nil && d.info != nil && debugfile.IsFound(d.info, in) }
		if debug != debugfile.Auto {
			err = cmp.Or(err, d.distinct("the debug file", debug))
		} else if slices.ContainsFunc(s.files, found) {
			err = cmp.Or(err, fmt.Errorf("%s is also the debug file; use another file", d.name))
		}
	}
	return err
}

// destination returns where the report goes, or nil if that is no file. Without --report-file it goes to a stream.
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
	info, _ := os.Stat(path) // it may not exist
	return &destination{name: flag + " " + path, path: path, info: info}
}

// is reports whether a path leads to the destination, which may not exist yet. Devices are never the same.
func (d *destination) is(path string) bool {
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

// isFile reports whether the destination is the file of info.
func (d *destination) isFile(info fs.FileInfo) bool {
	return d != nil && d.info != nil && info.Mode()&fs.ModeDevice == 0 && os.SameFile(info, d.info)
}
