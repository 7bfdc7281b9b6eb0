package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/survey"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// surveyIndex is the page of the survey in a directory that also has pages about files.
const surveyIndex = "index.html"

// pages writes a page for each file that loses rows to the directory of the report, and returns where these
// are, by the names of files in the survey. A file that could not be converted has none, which is said.
func (w *work) pages(ctx context.Context, s *survey.Survey) (map[string]string, error) {
	files := s.Lossy()
	w.startBar(len(files))
	defer w.clearBar()
	links := make(map[string]string)
	taken := map[string]bool{surveyIndex: true}
	for i, f := range files {
		var coverage []*report.Coverage
		err := errPackage
		if !f.Package {
			coverage, err = w.coverage(ctx, f.Path)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			w.clearBar()
			w.complain(f.Path, fmt.Errorf("no page: %w", err))
			continue
		}
		name := pageName(f.Path, taken)
		if err := w.page(filepath.Join(w.reportDir, name), coverage); err != nil {
			return nil, fmt.Errorf("page of %s: %w", f.Path, err)
		}
		fragments := report.Fragments(coverage)
		for _, n := range f.Names {
			links[n] = name + fragments[n]
		}
		if w.bar != nil {
			w.bar.Set(i + 1)
		}
	}
	return links, nil
}

// errPackage is why there are no pages about what is in packages: they are made of files on the disk.
var errPackage = errors.New("what is in a package has none; unpack it for that")

// coverage returns the gaps of a file in the format of the survey.
func (w *work) coverage(ctx context.Context, path string) ([]*report.Coverage, error) {
	var opt files.Options
	opt.DryRun, opt.Workers, opt.Starting = true, w.Workers, w.Starting
	opt.Version, opt.Force, opt.Room = sframe.V2, true, report.NewRoom()
	res, err := files.Convert(ctx, path, "", opt)
	if err != nil {
		return nil, err
	}
	if len(res.Coverage) == 0 {
		return nil, errors.New("it has no CFI any more")
	}
	return res.Coverage, nil
}

// notPage returns an error if there is a file at a path that is no page: it may be one of those that the survey is about.
func notPage(path string) error {
	f, _, err := outfile.OpenRegular(path)
	if err != nil {
		return nil // there is none, or what is wrong is said when it is written
	}
	defer f.Close()
	const begin = "<!doctype html>"
	head := make([]byte, len(begin))
	if n, err := io.ReadFull(f, head); (err == nil || n > 0) && !strings.EqualFold(string(head[:n]), begin) {
		return fmt.Errorf("%s is there already, and is no page; another folder was expected", path)
	}
	return nil
}

// page writes a page about a file, or the members of an archive.
func (w *work) page(path string, coverage []*report.Coverage) error {
	if err := notPage(path); err != nil {
		return err
	}
	f, err := outfile.Open(path, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	if err = report.HTML(out, coverage); err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = f.Finish(false) // it can be made again
	}
	if err == nil {
		err = f.Commit()
	}
	return outfile.Plain(err)
}

// maxPageName is how much of a path is in the name of a page, in bytes. File systems have names of 255 at most.
const maxPageName = 200

// pageName returns a name for the page about a file, from its path: of characters that need no quoting anywhere. It
// is not among those that are taken, and is then.
func pageName(path string, taken map[string]bool) string {
	plain := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._+", r):
			return r
		}
		return '-'
	}
	stem := strings.Map(plain, filepath.Clean(path))
	stem = cmp.Or(strings.TrimLeft(stem[max(0, len(stem)-maxPageName):], "-."), "file")
	name := stem + ".html"
	for i := 2; taken[strings.ToLower(name)]; i++ { // some file systems do not tell case
		name = fmt.Sprintf("%s-%d.html", stem, i)
	}
	taken[strings.ToLower(name)] = true
	return name
}
