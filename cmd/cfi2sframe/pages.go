package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/page"
	"cfi2sframe/internal/survey"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// surveyIndex is the page of the survey in a directory that also has pages about files.
const surveyIndex = "index.html"

// footer returns the footer of a page about files.
func footer() []string {
	command := report.PrintableMessage(page.Command(os.Args[1:]...))
	return []string{"Made by", thisBuild().String(), "Date", today(), "Command", command}
}

// today returns the date for pages. For builds that can be repeated, SOURCE_DATE_EPOCH has it in seconds; 0 is none.
func today() string {
	now := time.Now()
	if epoch, ok := os.LookupEnv("SOURCE_DATE_EPOCH"); ok {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds == 0 {
			return ""
		}
		now = time.Unix(seconds, 0)
	}
	return now.UTC().Format("2 January 2006")
}

// pages writes a page to a directory for each file that loses rows, and returns the pages by the names of files in the
// survey. A file that cannot be converted has none.
func (w *sumWork) pages(ctx context.Context, s *survey.Survey, dir string) (map[string]string, error) {
	files := s.Lossy()
	w.startBar(len(files))
	defer w.bar.Clear()
	links := make(map[string]string)
	taken := map[string]bool{surveyIndex: true}
	for i, f := range files {
		coverage, err := fileCoverage(ctx, f.Path)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			w.bar.Clear()
			complain(w.stderr, f.Path, fmt.Errorf("no page: %w", err))
			continue
		}
		name := pageName(f.Path, taken)
		if err := writePage(filepath.Join(dir, name), coverage); err != nil {
			return nil, fmt.Errorf("page of %s: %w", f.Path, err)
		}
		fragments := report.Fragments(coverage)
		for _, n := range f.Names {
			links[n] = name + fragments[n]
		}
		w.bar.Set(i + 1)
	}
	return links, nil
}

// fileCoverage returns the gaps of a file in the format of the survey.
func fileCoverage(ctx context.Context, path string) ([]*report.Coverage, error) {
	opt := newConversion().Options
	opt.DryRun = true
	opt.Version, opt.Force, opt.Limits = sframe.V2, true, report.NewLimits()
	res, err := files.Convert(ctx, path, "", opt)
	if err != nil {
		return nil, err
	}
	if len(res.Coverage) == 0 {
		return nil, errors.New("its CFI was removed after the survey")
	}
	return res.Coverage, nil
}

// notPage returns an error if the file at a path is not a page, and may be one of the surveyed files.
func notPage(path string) error {
	f, _, err := outfile.OpenRegular(path)
	if outfile.OfMachine(err) {
		return outfile.Plain(err)
	}
	if err != nil {
		return nil // it does not exist, or the error is reported when it is written
	}
	defer f.Close()
	const begin = "<!doctype html>"
	head := make([]byte, len(begin))
	if n, err := io.ReadFull(f, head); (err == nil || n > 0) && !strings.EqualFold(string(head[:n]), begin) {
		return fmt.Errorf("%s exists and is not a page; use another directory", path)
	}
	return nil
}

// writePage writes a page about a file, or the members of an archive.
func writePage(path string, coverage []*report.Coverage) error {
	if err := notPage(path); err != nil {
		return err
	}
	r, err := openReport(&reporting{file: path}, nil, "", true) // pages can be made again
	if err != nil {
		return err
	}
	defer r.close()
	r.html, r.pages = true, coverage
	if err := r.finish(""); err != nil {
		return err
	}
	return outfile.Plain(r.commit())
}

// maxPageName is how many bytes of a path are in the name of a page. Names have at most 255 bytes in file systems.
const maxPageName = 200

// pageName makes the name of a page from the path of its file, with characters that need no quoting, and adds it to the
// names that are taken.
func pageName(path string, taken map[string]bool) string {
	plain := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("._+", r):
			return r
		}
		return '-'
	}
	base := strings.Map(plain, filepath.Clean(path))
	base = cmp.Or(strings.TrimLeft(base[max(0, len(base)-maxPageName):], "-."), "file")
	name := base + ".html"
	for i := 2; taken[strings.ToLower(name)]; i++ { // some file systems ignore case
		name = fmt.Sprintf("%s-%d.html", base, i)
	}
	taken[strings.ToLower(name)] = true
	return name
}
