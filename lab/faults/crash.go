package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A power failure is a copy of a disk. The disk is a file in a file system whose files can share blocks, so a copy
// takes one step; mounting it replays the journal, as after the failure. Copies are made after each system call that
// changes something, and after the end of the run.
//
// The kernel may write names long before contents, but waits up to half a minute. Another file is synced before each
// copy, which makes the journal write all that it has.

// A disk is a kind of file system.
type disk struct {
	kind   string
	mkfs   string
	size   int64
	run    string // mount options of the run
	mount  string // those of a copy
	breaks bool   // without a sync, the failure breaks a file
}

var disks = []disk{
	// Without the option, ext4 writes the contents of a file before it replaces another.
	{"ext4", "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", 64 << 20, "loop,noauto_da_alloc", "loop", true},
	{"xfs", "mkfs.xfs -q", 320 << 20, "loop", "loop,nouuid", true},
	// Its log of synced files has none of other files, and the rest comes too late to wait for it.
	{"btrfs", "mkfs.btrfs -q", 256 << 20, "loop", "loop", false},
}

// crash lets the power fail.
func (h *harness) crash() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("mounting file systems requires root")
	}
	list := largeScenarios[:4]
	if h.quick {
		list = list[:1]
	}
	if err := h.prepare(list); err != nil {
		return err
	}
	if err := shell(h.dir, `truncate -s 8G base.img && mkfs.xfs -q -m reflink=1 base.img
		mkdir -p base disk copy && mount -o loop base.img base`); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell(h.dir, "umount base && rm base.img")) }()
	for i := range disks {
		d := &disks[i]
		if h.quick && !d.breaks {
			continue
		}
		for _, s := range list {
			if err := h.safe(d, s); err != nil {
				return fmt.Errorf("%s, %s: %w", d.kind, s.name, err)
			}
		}
		if d.breaks {
			if err := h.unsafe(d, list[0]); err != nil {
				return fmt.Errorf("%s, --no-sync: %w", d.kind, err)
			}
		}
	}
	return nil
}

// A moment is a copy of the disk.
type moment struct {
	path string
	when string
	over bool // the run had ended
}

// safe expects all files to be whole after power failures.
func (h *harness) safe(d *disk, s *scenario) error {
	moments, err := h.moments(d, s)
	if err != nil {
		return err
	}
	names := 0
	for _, m := range moments {
		now, err := h.look(d, m)
		if err != nil {
			return err
		}
		left, err := s.allWhole(now, !m.over)
		for _, name := range s.targets() {
			if err == nil && m.over && now[name] != s.after[name] {
				err = fmt.Errorf("%s is not complete after the run", name)
			}
		}
		if err != nil {
			h.fail(s, "power failure on "+d.kind+" "+m.when, err)
		}
		names += min(left, 1)
	}
	h.runs += len(moments)
	fmt.Printf("%s, %s: %d power failures; after %d of them, between linkat and renameat, a second name is left\n",
		d.kind, s.name, len(moments), names)
	return nil
}

// unsafe expects a broken file without a sync: otherwise safe proves nothing.
func (h *harness) unsafe(d *disk, s *scenario) error {
	moments, err := h.moments(d, s, "--no-sync")
	if err != nil {
		return err
	}
	broken := ""
	for _, m := range moments {
		now, err := h.look(d, m)
		if err != nil {
			return err
		}
		if _, err := s.whole(now); err != nil && broken == "" {
			broken = m.when + ": " + err.Error()
		}
	}
	h.runs += len(moments)
	if broken == "" {
		h.fail(s, "--no-sync on "+d.kind, errors.New("no power failure breaks a file; the check is blind"))
		return nil
	}
	fmt.Printf("%s, %s, --no-sync, to check the check: power failure %s\n", d.kind, s.name, broken)
	return nil
}

// moments runs cfi2sframe on a new disk, and returns copies of the disk.
func (h *harness) moments(d *disk, s *scenario, flags ...string) (all []*moment, err error) {
	image, mounted := filepath.Join(h.dir, "base/disk.img"), filepath.Join(h.dir, "disk")
	script := fmt.Sprintf("rm -f '%[1]s'; truncate -s %[2]d '%[1]s' && %[3]s '%[1]s' && mount -o %[5]s '%[1]s' disk && "+
		"cp -a '%[4]s' disk/work && sync -f disk", image, d.size, d.mkfs, s.template, d.run)
	if err := shell(h.dir, script); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shell(h.dir, "umount disk")) }()
	var failed error
	take := func(when string, over bool) {
		m := &moment{filepath.Join(h.dir, fmt.Sprintf("base/copy%d.img", len(all))), when, over}
		if failed == nil {
			failed = syncOther(filepath.Join(mounted, "other"))
		}
		if failed == nil {
			failed = clone(m.path, image)
		}
		all = append(all, m)
	}
	out, err := h.trace(s, filepath.Join(mounted, "work"), nil, func(c *call) {
		if c.ret >= 0 && slices.Contains(changing, c.name) {
			take("after "+c.String(), false)
		}
	}, flags...)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	if out.status.ExitStatus() != 0 {
		return nil, fmt.Errorf("status %v\n%s", out.status, out.stderr)
	}
	for wait := range 2 {
		time.Sleep(time.Duration(wait) * time.Second)
		take(fmt.Sprintf("%d s later", wait), true)
	}
	return all, failed
}

// syncOther appends to a file, and syncs it.
func syncOther(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		return err
	}
	return f.Sync()
}

// clone makes a copy that shares the blocks.
func clone(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	return unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
}

// look mounts a copy, which replays its journal, and returns the state of the files. It removes the copy.
func (h *harness) look(d *disk, m *moment) (now map[string]string, err error) {
	defer os.Remove(m.path)
	if d.kind == "btrfs" { // it takes copies for the same disk
		_ = exec.Command("btrfs", "device", "scan", "--forget").Run() // it fails if there is none to forget
	}
	if err := shell(h.dir, fmt.Sprintf("mount -o %s '%s' copy", d.mount, m.path)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shell(h.dir, "umount copy")) }()
	return snapshot(filepath.Join(h.dir, "copy", "work"))
}
