// Command corpus converts every ELF file below the given directories into a
// scratch folder and sums up: how many were converted, how many refused and why,
// how much code is covered, and whether anything is wrong. On demand it also starts
// them. It is run by scripts/corpus.
package corpus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// totals are the sums over all files.
type totals struct {
	mu                                      sync.Mutex
	converted, wrong                        int
	described, covered, outermost           uint64
	topmost, plt                            uint64
	functions, fdes                         int
	fres, sframe, ehFrame                   uint64
	refused                                 map[string][]string // by reason
	gaps                                    map[string]report.Reason
	overlapped, discarded, empty, malformed int
	malformedFiles, overlappedFiles         []string

	starter *starter // or nil
}

// Main runs the subcommand.
func Main() {
	keep := pflag.String("keep", "", "keep the results below `FOLDER`, under the paths of the inputs")
	list := pflag.Bool("list", false, "list the files that were refused")
	jobs := pflag.Int("jobs", 2, "files converted at a time")
	format := pflag.Int("format", int(sframe.V2), "SFrame version")
	pcrel := pflag.Bool("pcrel", false, "errata 1 start addresses")
	outermost := pflag.Bool("outermost", false, "errata 2 rows")
	start := pflag.Bool("start", false, "start the originals and the results, and compare")
	root := pflag.String("root", "/", "the files belong to the system in `FOLDER`; each DIR is a path inside it")
	pflag.Parse()
	if pflag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: scripts/corpus [flags] DIR...")
		pflag.PrintDefaults()
		os.Exit(2)
	}
	opt := convert.Options{Version: sframe.Version(*format), PCRel: *pcrel, Outermost: *outermost}
	ok, err := run(*root, pflag.Args(), *start, *keep, *jobs, *list, opt)
	if err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run does what the flags say, and reports whether nothing was wrong.
func run(root string, dirs []string, start bool, keep string, jobs int, list bool, opt convert.Options) (bool, error) {
	t := &totals{refused: make(map[string][]string), gaps: make(map[string]report.Reason)}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return false, err
	}
	if start {
		if t.starter, err = newStarter(root); err != nil {
			return false, err
		}
		defer t.starter.close()
	}
	paths := make(chan string)
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			for p := range paths {
				t.file(p, keep, opt)
			}
		})
	}
	err = walk(root, dirs, paths)
	close(paths)
	wg.Wait()
	if err != nil {
		return false, err
	}
	t.print(list)
	if start {
		t.starter.print()
		return t.wrong == 0 && t.starter.differ == 0, nil
	}
	return t.wrong == 0, nil
}

// walk sends the regular files below the directories of a root, each one once.
func walk(root string, dirs []string, paths chan<- string) error {
	seen := make(inode.Seen)
	for _, dir := range dirs {
		if root != "/" {
			dir = filepath.Join(root, dir)
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return err
		}
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
		if !strings.HasPrefix(dir+"/", strings.TrimSuffix(root, "/")+"/") {
			return fmt.Errorf("%s is not below %s", dir, root)
		}
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // unreadable folders are not part of the corpus
			}
			info, err := d.Info()
			if err == nil && seen.First(info) && isELF(path) {
				paths <- path
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [4]byte
	_, err = f.Read(b[:])
	return err == nil && string(b[:]) == "\x7fELF"
}

// file converts one file and adds it to the totals.
func (t *totals) file(path, keep string, opt convert.Options) {
	temp := os.TempDir()
	if t.starter != nil {
		temp = t.starter.places.dir
	}
	tmp, err := os.MkdirTemp(temp, "file-")
	if err != nil {
		t.bad(path, err)
		return
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "out")
	if keep != "" {
		out = filepath.Join(keep, path)
		if err := os.MkdirAll(filepath.Dir(out), 0o777); err != nil {
			t.bad(path, err)
			return
		}
	}
	res, err := files.Convert(context.Background(), path, out, files.Options{Options: opt})
	if err != nil {
		if errors.Is(err, convert.ErrWrong) {
			t.bad(path, err)
			return
		}
		t.refuse(path, err)
		return
	}
	if err := same(path, out); err != nil {
		t.bad(path, err)
		return
	}
	if len(res.Kept) > 0 { // an object without CFI
		t.refuse(path, res.Kept[0].Why)
		return
	}
	for _, c := range res.Coverage {
		t.add(path, c)
	}
	if t.starter != nil {
		if err := t.starter.check(path, out, tmp); err != nil {
			t.bad(path, err)
		}
	}
}

func (t *totals) refuse(path string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := generalize(err.Error())
	t.refused[r] = append(t.refused[r], path)
}

func (t *totals) bad(path string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong++
	fmt.Printf("WRONG %s: %v\n", path, err)
}

// same checks that the conversion changed nothing that the program sees.
func same(before, after string) error {
	x, err := open(before)
	if err != nil {
		return err
	}
	y, err := open(after)
	if err != nil {
		return err
	}
	return image.Compare(x, y)
}

func open(path string) (*elffile.File, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return elffile.New(strings.NewReader(string(b)), int64(len(b)))
}

func (t *totals) add(path string, c *report.Coverage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.converted++
	t.described += c.Described
	t.covered += c.Covered
	t.outermost += c.Outermost
	t.topmost += c.Topmost
	t.plt += c.PLT
	t.functions += c.Functions
	t.fdes += c.FDEs
	t.fres += c.FREs
	t.sframe += c.Size
	t.ehFrame += c.EHFrame + c.EHHdr
	t.discarded += c.Dropped.Discarded
	t.empty += c.Dropped.ZeroLength
	t.overlapped += c.Dropped.Overlapped
	t.malformed += c.Malformed.Count
	if c.Malformed.Count > 0 {
		t.malformedFiles = append(t.malformedFiles, path+": "+c.Malformed.Errors[0])
	}
	if c.Dropped.Overlapped > 0 {
		t.overlappedFiles = append(t.overlappedFiles, path)
	}
	for _, r := range c.Reasons {
		s := t.gaps[r.Name]
		s.Name, s.Text = r.Name, r.Text
		s.Functions += r.Functions
		s.Ranges += r.Ranges
		s.Bytes += r.Bytes
		t.gaps[r.Name] = s
	}
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|[0-9]+`)

// generalize makes one reason of messages that differ in numbers only.
func generalize(s string) string { return numbers.ReplaceAllString(s, "N") }

func (t *totals) print(list bool) {
	refused := 0
	for _, files := range t.refused {
		refused += len(files)
	}
	fmt.Printf("%d files: %d converted, %d refused, %d wrong\n", t.converted+refused+t.wrong, t.converted, refused, t.wrong)
	fmt.Printf("%d functions, %d FDEs, %d FREs; .sframe %d bytes, .eh_frame and .eh_frame_hdr %d bytes\n", t.functions, t.fdes, t.fres, t.sframe, t.ehFrame)
	share := 100 * float64(t.covered) / float64(max(t.described, 1))
	fmt.Printf("%d bytes of code described by CFI, %d covered (%.4f %%), %d without a caller, %d in topmost frames only; %d bytes of PLT stubs without CFI\n",
		t.described, t.covered, share, t.outermost, t.topmost, t.plt)
	var gaps []report.Reason
	for _, r := range t.gaps {
		gaps = append(gaps, r)
	}
	slices.SortFunc(gaps, func(a, b report.Reason) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, r := range gaps {
		fmt.Printf("  gap %-15s %8d bytes %6d ranges %6d functions\n", r.Name, r.Bytes, r.Ranges, r.Functions)
	}
	fmt.Printf("FDEs dropped: %d of no code, %d of discarded code, %d overlapping; %d malformed records\n", t.empty, t.discarded, t.overlapped, t.malformed)
	for _, m := range t.malformedFiles {
		fmt.Println("  malformed in", m)
	}
	for _, m := range t.overlappedFiles {
		fmt.Println("  overlapping in", m)
	}
	var reasons []string
	for r := range t.refused {
		reasons = append(reasons, r)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(t.refused[b]), len(t.refused[a])), cmp.Compare(a, b))
	})
	for _, r := range reasons {
		fmt.Printf("refused %5d: %s\n", len(t.refused[r]), r)
		if list {
			slices.Sort(t.refused[r])
			for _, f := range t.refused[r] {
				fmt.Println("       ", f)
			}
		}
	}
}
