// Package faults injects failures while cfi2sframe writes files. Each file must be unchanged or complete, no temporary
// file may be left, and the exit status and the messages must be correct.
//
// Usage: scripts/lab faults [--quick]
//
//	calls  In every mode that writes files, each system call on files fails in several ways (EIO, ENOSPC, EINTR, half
//	       of the bytes ...). In other runs, signals arrive at the call, or the program is killed there. Calls by the
//	       Go runtime (memory, threads, signals, time) are not covered: the program aborts if they fail.
//	crash  The power fails after each system call that changes a file system, and after the run, on ext4, XFS and
//	       btrfs. Runs with --no-sync show that the check can fail.
//
// Exits with 1 if anything is wrong. Only a kill or a power failure between the two system calls that create and remove
// a second name of a file, .cfi2sframe-*, may leave that name; these cases are counted. The quick mode, without
// crash, takes one or two minutes. Needs as and ar; crash needs root, loop devices, mkfs.ext4, mkfs.xfs and mkfs.btrfs.
package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("faults", "", 0, 0)
	quick := c.Bool("quick", false, "run fewer scenarios and faults, in one or two minutes")
	c.Run = func([]string) error {
		dir, err := os.MkdirTemp("", "faults-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		h, err := newHarness(dir)
		if err != nil {
			return err
		}
		h.quick, h.tell = *quick, func(s string) { fmt.Println("FAIL ", strings.ReplaceAll(s, "\n", "\n      ")) }
		if err = h.failCalls(); err == nil {
			err = h.crash()
		}
		fmt.Printf("%d runs, %d failures\n", h.runs, h.failures)
		if err == nil && h.failures > 0 {
			err = kit.ErrFound
		}
		return err
	}
	return c
}

// A harness runs cfi2sframe in scenarios and counts failures.
type harness struct {
	tool, dir      string
	quick          bool
	runs, failures int
	tell           func(failure string)
}

func newHarness(dir string) (*harness, error) {
	h := &harness{tool: filepath.Join(dir, "cfi2sframe"), dir: dir}
	if err := kit.BuildProduct(h.tool); err != nil {
		return nil, err
	}
	return h, h.makeMaterial()
}

// fail counts a failure.
func (h *harness) fail(s *scenario, event string, err error) {
	h.failures++
	h.tell(fmt.Sprintf("%s: %s: %v", s.name, event, err))
}
