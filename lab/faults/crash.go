package faults

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A power failure is a copy of a disk at a moment. The disk is a file in a file system whose files can
// share blocks, so that a copy of it is made in one step, and costs nothing; what is mounted from a
// copy is what would be there after the failure, when the journal has been replayed. Copies are
// made while the tool runs, after each system call that changes something, and after its end.
//
// What the kernel has not written yet is not in them, and it may write names long before contents. As
// that would take up to half a minute, another file is synced before each second copy, which makes
// the journal write all that it has.

// A disk is a file system that is tried.
type disk struct {
	kind   string
	mkfs   string
	size   int64
	mount  string // options for a copy
	breaks bool   // without a sync, a file is broken after the failure
}

var disks = []disk{
	{"ext4", "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0", 64 << 20, "loop", true},
	{"xfs", "mkfs.xfs -q", 320 << 20, "loop,nouuid", true},
	// Its log of synced files has none of other files, and the rest comes too late to wait for it.
	{"btrfs", "mkfs.btrfs -q", 256 << 20, "loop", false},
}

// crashScenes are what is done when the power fails.
var crashScenes = []*scene{
	{name: "in place", make: "cp mlarge p; chmod 750 p", args: "-q --in-place p"},
	{name: "existing output", make: "echo old >out; chmod 640 out", args: "-q mlarge -o out"},
	{name: "three files, two names of one", make: "cp mlarge p; ln p q; cp mgaps r; cp marchive s", args: "-q --in-place p q r s"},
	{name: "report file", make: "cp mgaps p; echo old >report", args: "--report html --report-file report --in-place p"},
}

// A laboratory is where disks are tried.
type laboratory struct {
	tool, dir string
	base      string // a file system whose files can share blocks
	quick     bool
	n         *counter
}

// crashFaults has the power fail.
func crashFaults(tool, dir string, quick bool, n *counter) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("root is needed, to mount file systems")
	}
	l := &laboratory{tool: tool, dir: dir, base: filepath.Join(dir, "base"), quick: quick, n: n}
	if err := makeScenes(tool, dir, crashScenes); err != nil {
		return err
	}
	script := "truncate -s 8G base.img && mkfs.xfs -q -m reflink=1 base.img && mkdir -p base disk copy && mount -o loop base.img base"
	if err := shell(dir, script); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell(dir, "umount base && rm base.img")) }()
	for _, d := range disks {
		if quick && !d.breaks {
			continue
		}
		for _, s := range crashScenes {
			if quick && s != crashScenes[0] {
				continue
			}
			if err := l.safe(&d, s); err != nil {
				return fmt.Errorf("%s, %s: %w", d.kind, s.name, err)
			}
		}
		if d.breaks {
			if err := l.unsafe(&d, crashScenes[0]); err != nil {
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
	over bool // the tool had ended, and said that all is well
}

// safe has the power fail on a disk, and expects every file to be whole.
func (l *laboratory) safe(d *disk, s *scene) error {
	checked, names := 0, 0
	for _, journal := range []bool{true, false} {
		if !journal && l.quick {
			continue
		}
		moments, err := l.moments(d, s, "", journal)
		if err != nil {
			return err
		}
		for _, m := range moments {
			left := 0
			now, err := l.look(d, m)
			if err != nil {
				return err
			}
			err = s.whole(now, func(name string) bool {
				ok := strings.HasPrefix(name, prefix) && !m.over
				if ok {
					left = 1
				}
				return ok
			})
			for _, name := range s.targets() {
				if err == nil && m.over && now[name] != s.after[name] {
					err = fmt.Errorf("%s is not what the tool had made of it", name)
				}
			}
			if err != nil {
				l.n.fail(&finding{s.name + " on " + d.kind, "power failure " + m.when, err.Error()})
			}
			checked, names = checked+1, names+left
		}
	}
	l.n.runs += checked
	fmt.Printf("%s, %s: %d power failures; after %d of them, between linkat and unlinkat, there is a second name\n", d.kind, s.name, checked, names)
	return nil
}

// unsafe does the same without a sync, and expects a file to be broken: otherwise safe says nothing.
func (l *laboratory) unsafe(d *disk, s *scene) error {
	moments, err := l.moments(d, s, "--no-sync", true)
	if err != nil {
		return err
	}
	broken := ""
	for _, m := range moments {
		now, err := l.look(d, m)
		if err != nil {
			return err
		}
		if err := s.whole(now, func(name string) bool { return strings.HasPrefix(name, prefix) }); err != nil && broken == "" {
			broken = m.when + ": " + err.Error()
		}
	}
	l.n.runs += len(moments)
	if broken == "" {
		l.n.fail(&finding{s.name + " on " + d.kind, "--no-sync", "no file is broken by a power failure; the check does not see anything"})
		return nil
	}
	fmt.Printf("%s, %s, --no-sync, as a check of the check: power failure %s\n", d.kind, s.name, broken)
	return nil
}

// moments runs the tool on a new disk, and returns copies of that. With journal, another file is
// synced before each.
func (l *laboratory) moments(d *disk, s *scene, flag string, journal bool) (all []*moment, err error) {
	image, mounted := filepath.Join(l.base, "disk.img"), filepath.Join(l.dir, "disk")
	script := fmt.Sprintf("rm -f '%[1]s'; truncate -s %[2]d '%[1]s' && %[3]s '%[1]s' && mount -o loop '%[1]s' disk && cp -a '%[4]s' disk/work && sync -f disk", image, d.size, d.mkfs, s.template)
	if err := shell(l.dir, script); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shell(l.dir, "umount disk")) }()
	var failed error
	take := func(when string, over bool) {
		if journal && failed == nil {
			failed = syncOther(filepath.Join(mounted, "other"))
		}
		m := &moment{filepath.Join(l.base, fmt.Sprintf("copy%d.img", len(all))), when, over}
		if failed == nil {
			failed = clone(m.path, image)
		}
		all = append(all, m)
	}
	p := s.program(l.tool, filepath.Join(mounted, "work"))
	if flag != "" {
		p.args = append([]string{flag}, p.args...)
	}
	out, err := p.run(pass, func(c *call) {
		if c.ret >= 0 && slices.Contains(changing, c.name) {
			take("after "+c.String(), false)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	if out.status.ExitStatus() != 0 {
		return nil, fmt.Errorf("status %v\n%s", out.status, out.stderr)
	}
	seconds := []int{0, 1, 5, 6}
	if l.quick || journal {
		seconds = []int{0, 1}
	}
	for _, wait := range seconds {
		time.Sleep(time.Duration(wait) * time.Second)
		take(fmt.Sprintf("%d s later", wait), true)
	}
	return all, failed
}

// syncOther writes to a file, and waits until that is on the disk.
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

// clone makes a copy of a file in one step.
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

// look mounts a copy, which replays its journal, and returns what is there. The copy is removed.
func (l *laboratory) look(d *disk, m *moment) (now map[string]string, err error) {
	defer os.Remove(m.path)
	if d.kind == "btrfs" { // it takes copies for the same disk
		_ = exec.Command("btrfs", "device", "scan", "--forget").Run() // there may be none to be forgotten
	}
	if err := shell(l.dir, fmt.Sprintf("mount -o %s '%s' copy", d.mount, m.path)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shell(l.dir, "umount copy")) }()
	return snapshot(filepath.Join(l.dir, "copy", "work"))
}
