package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
)

// A reporter writes the report. The report on a file is flushed before the file is replaced. The file of --report-file
// is replaced last.
type reporter struct {
	out   *bufio.Writer
	to    io.Writer          // destination of out
	file  *outfile.File      // the file of --report-file, or nil
	html  bool               // one page on all files, written at the end
	json  bool               // a line of JSON for each file
	pages []*report.Coverage // of the page
	fails []*report.Failed   // files with errors, for the page
	sync  bool               // wait until the file is on the disk
	said  bool               // the report is not empty
	rows  int                // lines of the list of files
	ended bool               // the final lines have been written
}

// openReport opens the report. Without --report-file, the report goes to the stream; name is the stream's name in
// errors.
func openReport(r *reporting, stream io.Writer, name string, noSync bool) (*reporter, error) {
	out := &reporter{to: stream, sync: !noSync}
	if r.file != "" {
		file, err := files.Create(r.file, 0o666)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; create the directory first", err)
		}
		if err != nil {
			return nil, err
		}
		out.file, out.to, name = file, file, r.file
	}
	out.out = bufio.NewWriter(&output{Writer: out.to, name: name})
	return out, nil
}

// close discards a report that was not committed.
func (r *reporter) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// fail reports a file with an error. Text reports omit it, because standard error names the file. flush returns errors.
func (r *reporter) fail(f *report.Failed) {
	switch {
	case r.json:
		_ = report.WriteJSON(r.out, f)
	case r.html:
		r.fails = append(r.fails, f)
	default:
		return
	}
	r.said = true
}

// flush writes everything reported so far, and returns errors.
func (r *reporter) flush() error {
	err := r.out.Flush()
	if f, ok := r.to.(*os.File); ok && err == nil {
		err = outfile.Flush(f)
	}
	return outfile.Plain(err)
}

// finish writes the last lines of the report, so that only the rename remains. If finish is called again, it rewrites
// an HTML page.
func (r *reporter) finish(line string) error {
	r.ended = true
	if r.html && r.file != nil {
		if err := r.file.Truncate(0); err != nil {
			return outfile.Plain(err)
		}
		if _, err := r.file.Seek(0, io.SeekStart); err != nil {
			return outfile.Plain(err)
		}
	}
	if r.html {
		if err := report.HTML(r.out, r.pages, r.fails, thisVersion()); err != nil {
			return outfile.Plain(err)
		}
	}
	if _, err := io.WriteString(r.out, line); err != nil {
		return outfile.Plain(err)
	}
	if err := r.flush(); err != nil || r.file == nil {
		return err
	}
	if r.file.Stream() { // a write to a pipe or device must not fail after files are replaced
		return r.file.Commit()
	}
	return r.file.Finish(r.sync)
}

// commit renames the file of the report to its final name.
func (r *reporter) commit() error {
	if r.file == nil || r.file.Stream() {
		return nil
	}
	if err := r.file.Commit(); err != nil || !r.sync || r.file.Replaced() == nil {
		return err
	}
	return r.file.Replaced().SyncDirectory()
}
