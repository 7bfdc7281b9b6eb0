package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
)

// A reporter writes the report. The file of --report-file is replaced last.
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
}

// A leavingReader is a stream whose reader may go away before the last file is converted, as head does.
type leavingReader struct{ io.Writer }

func (l leavingReader) Write(b []byte) (int, error) {
	n, err := l.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		return len(b), nil
	}
	return n, err
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

// finish ends the report, and renames its file to its final name if keep is set.
func (r *reporter) finish(keep bool) error {
	if err := r.out.Flush(); err != nil {
		return err
	}
	switch f, ok := r.to.(*os.File); {
	case r.file != nil && r.file.Stream():
		return r.file.Commit()
	case r.file != nil && !keep:
		return nil
	case r.file != nil:
		return r.replace()
	case ok:
		return outfile.Flush(f)
	}
	return nil
}

// replace renames the file of the report to its final name.
func (r *reporter) replace() error {
	if err := r.file.Finish(r.sync); err != nil {
		return err
	}
	if err := r.file.Commit(); err != nil || !r.sync || r.file.Replaced() == nil {
		return err
	}
	return outfile.SyncDirectory(r.file.Replaced().Dir())
}
