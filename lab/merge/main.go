// Package merge makes parts of a survey as a cluster would that surveys a distribution, has cfi2sframe merge them, and
// measures that.
//
// A part has five libraries, and the twenty functions of which most is lost, with names as C++ has
// them. The JSON is that of a survey of libraries that as and ld have made, in which the names are replaced. What is
// expected of the sums follows from the number of parts. Needs as and ld.
package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cfi2sframe/lab/kit"
	"cfi2sframe/lab/product"
)

const (
	kinds     = 4 // of parts, which lose more and more
	libraries = 5 // in a part
	functions = 6 // in a library
	memory    = 512 << 10
	patience  = time.Minute
	folder    = "pool/main/p/package-NNNNNN" // that a part is of
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("merge", "[N]", 0, 1)
	c.Run = func(args []string) error {
		n := 60000
		if len(args) > 0 {
			var err error
			if n, err = strconv.Atoi(args[0]); err != nil {
				return err
			}
		}
		dir, err := os.MkdirTemp("", "merge-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		tool := filepath.Join(dir, "cfi2sframe")
		if err := product.Build(tool); err != nil {
			return err
		}
		return run(tool, n)
	}
	return c
}

// skipped is how many bytes of each function of a kind are lost.
func skipped(kind int) int { return 16 * (kind + 1) }

// source returns a library whose functions have a CFA based on rbx.
func source(kind int) string {
	var b strings.Builder
	for i := range functions {
		name := "_ZN"
		for j := range 20 {
			name += fmt.Sprintf("14namespace_%02d_%d", j, i%10)
		}
		name += fmt.Sprintf("10function_%dEiPKcRSt6vectorIiSaIiEE", i%10)
		fmt.Fprintf(&b, "\t.globl %[1]s\n\t.type %[1]s, @function\n%[1]s:\n\t.cfi_startproc\n\tnop\n\t.cfi_def_cfa 3, 16\n\t.skip %[2]d, 0x90\n\tret\n\t.cfi_endproc\n\t.size %[1]s, .-%[1]s\n",
			name, skipped(kind)-1)
	}
	return b.String()
}

// template returns the JSON of a part of a kind.
func template(program, dir string, kind int) ([]byte, error) {
	at := filepath.Join(dir, folder, fmt.Sprint("kind", kind))
	if err := os.MkdirAll(at, 0o777); err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(at, name) }
	if err := os.WriteFile(file("source.s"), []byte(source(kind)), 0o666); err != nil {
		return nil, err
	}
	for i := range libraries {
		for _, args := range [][]string{
			{"as", "--64", "-o", file("object"), file("source.s")}, {"ld", "-m", "elf_x86_64", "-shared", "-o", file(fmt.Sprintf("lib%d.so", i)), file("object")},
		} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%v: %w\n%s", args, err, out)
			}
		}
	}
	for _, name := range []string{"source.s", "object"} {
		if err := os.Remove(file(name)); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, "--survey", "--report", "json", filepath.Join(folder, fmt.Sprint("kind", kind)))
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd.Output()
}

// A sum is what is looked at in the result.
type sum struct {
	Paths []struct{ Name string }
	Total struct {
		Files, Functions int
		Described        uint64
		Gaps             []struct {
			Reason string
			Bytes  uint64
		}
	}
	Worst []struct {
		File, Function string
		Lost           int
	} `json:"worst_functions"`
	Files []struct{ File string }
}

func run(program string, n int) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "merge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var halves [2]string
	for i := range halves {
		halves[i] = filepath.Join(dir, "parts", fmt.Sprint(i))
		if err := os.MkdirAll(halves[i], 0o777); err != nil {
			return err
		}
	}
	var templates [kinds][]byte
	for kind := range templates {
		if templates[kind], err = template(program, dir, kind); err != nil {
			return err
		}
	}
	var size int64
	for i := range n {
		b := bytes.ReplaceAll(templates[i%kinds], []byte("NNNNNN"), fmt.Appendf(nil, "%06d", i))
		size += int64(len(b))
		if err := os.WriteFile(filepath.Join(halves[i%2], fmt.Sprintf("%06d.json", i)), b, 0o666); err != nil {
			return err
		}
	}
	fmt.Printf("%d parts, %d MB\n", n, size/1e6)
	whole := filepath.Join(dir, "whole")
	if err := merge(program, whole, filepath.Join(dir, "parts")); err != nil {
		return err
	}
	if err := check(whole, n); err != nil {
		return err
	}
	for _, half := range halves {
		if err := merge(program, half+".json", half); err != nil {
			return err
		}
	}
	again := filepath.Join(dir, "again")
	if err := merge(program, again, halves[1]+".json", halves[0]+".json"); err != nil {
		return err
	}
	if out, err := exec.Command("cmp", whole, again).CombinedOutput(); err != nil {
		return fmt.Errorf("both halves together are not the whole: %s", out)
	}
	for _, form := range []string{"text", "csv", "html"} {
		if err := merge(program, whole+"."+form, whole, "--report", form); err != nil {
			return err
		}
	}
	return nil
}

// merge merges parts, and measures that.
func merge(program, out string, args ...string) error {
	cmd := exec.Command(program, append([]string{"--merge", "--report", "json", "--report-file", out}, args...)...)
	cmd.Stderr = os.Stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("merging %s: %w", args, err)
	}
	wall, cpu := time.Since(start), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	fmt.Printf("%s: %.1f s, %.1f s of processors, %d MiB of memory, %d MB written\n",
		filepath.Base(out), wall.Seconds(), cpu.Seconds(), used/1024, info.Size()/1e6)
	if used > memory || min(wall, cpu) > patience { // a machine that is busy otherwise takes longer
		return fmt.Errorf("at most %d MiB and %v were expected", memory/1024, patience)
	}
	return nil
}

// check compares with what n parts make.
func check(name string, n int) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var got sum
	if err := json.Unmarshal(b, &got); err != nil {
		return err
	}
	var lost, all uint64
	for i := range n {
		lost += uint64(libraries * functions * skipped(i%kinds))
		all += uint64(libraries * functions * (skipped(i%kinds) + 1))
	}
	t := &got.Total
	if t.Files != n*libraries || len(got.Files) != t.Files || len(got.Paths) != n || t.Functions != t.Files*functions || t.Described != all ||
		len(t.Gaps) != 1 || t.Gaps[0].Reason != "cfa-register" || t.Gaps[0].Bytes != lost {
		return fmt.Errorf("%d paths, %d files, %+v; %d, %d, %d and %d lost were expected", len(got.Paths), len(got.Files), got.Total, n, n*libraries, all, lost)
	}
	for i, f := range got.Worst {
		of := i / functions // the files by name
		part := of/libraries*kinds + kinds - 1
		file := fmt.Sprintf("pool/main/p/package-%06d/kind%d/lib%d.so", part, kinds-1, of%libraries)
		if f.File != file || f.Lost != skipped(kinds-1) || !strings.HasPrefix(f.Function, "namespace_00_") {
			return fmt.Errorf("function %d of the worst is %+v; one of %s was expected", i+1, f, file)
		}
	}
	if len(got.Worst) != 20 {
		return fmt.Errorf("%d of the worst functions; 20 were expected", len(got.Worst))
	}
	return nil
}
