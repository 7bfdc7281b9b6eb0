package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// A copy of a disk simulates a power failure. The disk is a file in a file system with reflinks, so a copy is
// atomic; mounting it replays the journal, as after a real failure. Copies are made after each system call that
// changes a file, and after the run. The kernel may write names long before contents, but delays names by up to half
// a minute. Syncing an unrelated file before each copy flushes the journal.

// A disk is a file system to test.
type disk struct {
	kind   string
	mkfs   string
	size   int64
	run    string // mount options of the run
	mount  string // mount options of copies
	breaks bool   // without a sync, a power failure breaks a file
}

var disks = []disk{
	// Without noauto_da_alloc, ext4 writes a file's contents before the file replaces another.
	{"ext4", "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", 64 << 20, "loop,noauto_da_alloc", "loop", true},
	{"xfs", "mkfs.xfs -q", 320 << 20, "loop", "loop,nouuid", true},
	// The log contains only synced files, and waiting for the next commit would take too long.
	{"btrfs", "mkfs.btrfs -q", 256 << 20, "loop", "loop", false},
}

// crash simulates power failures.
func (h *harness) crash() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("mounting file systems requires root")
	}
	list := largeScenarios
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
			err := h.cutPower(d, s, true)
			if err == nil && d.breaks && s == list[0] {
				err = h.cutPower(d, s, false)
			}
			if err != nil {
				return fmt.Errorf("%s, %s: %w", d.kind, s.name, err)
			}
		}
	}
	return nil
}

// A diskCopy is a copy of the disk, made during or after a run.
type diskCopy struct {
	path string
	when string
	over bool // after the run
}

// cutPower checks that all files are unchanged or complete after power failures. Without a sync, at least one file must
// be broken: this shows that the check can fail.
func (h *harness) cutPower(d *disk, s *scenario, synced bool) error {
	copies, err := h.copies(d, s, synced)
	if err != nil {
		return err
	}
	broken, names := 0, 0
	for _, m := range copies {
		now, err := h.inspect(d, m)
		if err != nil {
			return err
		}
		left, err := s.checkFiles(now)
		if err != nil {
			broken++
		}
		if err == nil && m.over && len(left) > 0 {
			err = fmt.Errorf("%s remains", left[0])
		}
		for _, name := range s.targets() {
			if err == nil && m.over && now[name] != s.after[name] {
				err = fmt.Errorf("%s is not complete after the run", name)
			}
		}
		if err != nil && synced {
			h.fail(s, "power failure on "+d.kind+" "+m.when, err)
		}
		names += min(len(left), 1)
	}
	h.runs += len(copies)
	if !synced && broken == 0 {
		h.fail(s, "--no-sync on "+d.kind, errors.New("no power failure breaks a file, so the check shows nothing"))
	}
	fmt.Printf("%s, %s, synced %t: %d power failures; %d break a file, and %d leave a second name\n",
		d.kind, s.name, synced, len(copies), broken, names)
	return nil
}

// copies runs cfi2sframe on a new disk, and returns copies of the disk.
func (h *harness) copies(d *disk, s *scenario, synced bool) (all []*diskCopy, err error) {
	if !synced {
		unsynced := *s
		unsynced.args = "--no-sync " + s.args
		s = &unsynced
	}
	image, mounted := filepath.Join(h.dir, "base/disk.img"), filepath.Join(h.dir, "disk")
	script := fmt.Sprintf("rm -f '%[1]s'; truncate -s %[2]d '%[1]s' && %[3]s '%[1]s' && mount -o %[5]s '%[1]s' disk "+
		"&& "+
		"cp -a '%[4]s' disk/work && sync -f disk", image, d.size, d.mkfs, s.template, d.run)
	if err := shell(h.dir, script); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shell(h.dir, "umount disk")) }()
	var failed error
	take := func(when string, over bool) {
		m := &diskCopy{filepath.Join(h.dir, fmt.Sprintf("base/copy%d.img", len(all))), when, over}
		if failed == nil {
			failed = syncOther(filepath.Join(mounted, "other"))
		}
		if failed == nil {
			failed = shell(h.dir, "cp --reflink=always "+image+" "+m.path)
		}
		all = append(all, m)
	}
	out, err := h.trace(s, filepath.Join(mounted, "work"), nil, func(c *call) {
		if c.ret >= 0 && slices.Contains(modifyingCalls, c.name) {
			take("after "+c.String(), false)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	if out.status.ExitStatus() != 0 {
		return nil, fmt.Errorf("status %v\n%s", out.status, out.stderr)
	}
	take("after the run", true)
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

// inspect mounts a copy, which replays the journal, and returns the state of its files. It removes the copy.
func (h *harness) inspect(d *disk, m *diskCopy) (now map[string]string, err error) {
	defer os.Remove(m.path)
	// btrfs confuses copies of a disk unless it forgets the devices it has seen.
	script := fmt.Sprintf("btrfs device scan --forget 2>log || :; mount -o %s '%s' copy", d.mount, m.path)
	if err := shell(h.dir, script); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shell(h.dir, "umount copy")) }()
	return snapshot(filepath.Join(h.dir, "copy", "work"))
}
