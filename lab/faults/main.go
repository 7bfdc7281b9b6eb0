// Package faults has everything go wrong that can while cfi2sframe works on files. Each file must be unchanged or
// complete, no temporary file may be left, and the exit status and the messages must be right.
//
// Usage: scripts/lab faults [--quick] [--only calls|kills|crash] [--cfi2sframe PROGRAM]
//
// calls  every system call that has to do with files fails once, in several ways (EIO, ENOSPC, EINTR,
//
//	half of the bytes ...), for every mode that writes something, and the program is
//	killed at each. Those of the Go runtime (memory, threads, signals, time) are left out: it
//	ends the program if they fail.
//
// kills  it is killed at random moments, also by a second signal and by a pipe without a reader.
// crash  the power fails after every system call that changes something, and later, on ext4, XFS and
//
//	btrfs. That a check of this kind can fail is shown with --no-sync.
//
// Prints what was done, and exits with 1 if anything was wrong. A second name of a file, .cfi2sframe-*,
// is left only by a kill or a power failure between the two system calls that make and remove it;
// how often is said. The quick mode takes a minute or two. Needs as and, for crash, root, loop
// devices, mkfs.ext4, mkfs.xfs and mkfs.btrfs (not in the quick mode).
package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"cfi2sframe/lab/kit"
	"cfi2sframe/lab/product"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("faults", "", 0, 0)
	quick := c.Bool("quick", false, "fewer scenes, kills and moments, for a minute or two")
	tool := c.String("cfi2sframe", "", "the `PROGRAM`; by default it is built")
	only := c.String("only", "", "run one `PART` only: calls, kills or crash")
	c.Run = func([]string) error {
		if !slices.Contains([]string{"", "calls", "kills", "crash"}, *only) {
			return fmt.Errorf("--only %q is not calls, kills or crash", *only)
		}
		return run(*tool, *only, *quick)
	}
	return c
}

func run(tool, only string, quick bool) error {
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if tool == "" {
		tool = filepath.Join(dir, "cfi2sframe")
		if err = product.Build(tool); err != nil {
			return err
		}
	} else if tool, err = filepath.Abs(tool); err != nil {
		return err
	}
	if err := makeMaterial(tool, dir); err != nil {
		return err
	}
	n := &counter{tell: func(err error) { fmt.Println("FAIL ", strings.ReplaceAll(err.Error(), "\n", "\n      ")) }}
	for _, part := range []struct {
		name string
		run  func(tool, dir string, quick bool, n *counter) error
	}{{"calls", callFaults}, {"kills", killFaults}, {"crash", crashFaults}} {
		if only != "" && only != part.name {
			continue
		}
		start := time.Now()
		if err := part.run(tool, dir, quick, n); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Printf("%s: %d runs and %d failures so far, %.0f s\n", part.name, n.runs, n.failures, time.Since(start).Seconds())
	}
	if n.failures > 0 {
		return kit.ErrFound
	}
	return nil
}

// quickScenes are those of the quick mode.
var quickScenes = []*scene{sceneOf("existing output"), sceneOf("report file")}

func sceneOf(name string) *scene {
	return scenes[slices.IndexFunc(scenes, func(s *scene) bool { return s.name == name })]
}

// callFaults has every system call fail, and kills the tool at each.
func callFaults(tool, dir string, quick bool, n *counter) error {
	chosen := scenes
	if quick {
		chosen = quickScenes
	}
	if err := makeScenes(tool, dir, chosen); err != nil {
		return err
	}
	for _, s := range chosen {
		runs := n.runs
		for i := range faults {
			if err := s.each(tool, dir, &faults[i], n); err != nil {
				return err
			}
		}
		failed := n.runs - runs
		moments, left, err := s.eachKill(tool, dir, n)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d system calls failed; killed at %d; %d of the kills leave a second name\n",
			s.name, failed, moments, left)
	}
	return nil
}

// maxLeft is how many of a thousand kills at random moments may leave a second name: those that come
// between two system calls that follow each other.
const maxLeft = 20

// killFaults ends runs at random moments.
func killFaults(tool, dir string, quick bool, n *counter) error {
	each := 60
	if quick {
		each = 12
	}
	killed, left, err := kills(tool, dir, each, n)
	if err != nil {
		return err
	}
	fmt.Printf("%d runs killed at random moments, of which %d left a second name\n", killed, left)
	if left*1000 > killed*maxLeft+2000 {
		n.fail(fmt.Errorf("%d of %d kills left a second name; %d of a thousand are expected at most", left, killed, maxLeft))
	}
	return nil
}
