package faults

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A scene is a folder with files, and what the tool is asked to do there.
type scene struct {
	name  string
	make  string // a shell script that makes the files, from those of material
	args  string
	stdin string
	// endless: the tool waits for ever if nobody ends it, and changes nothing.
	endless bool

	before, after map[string]string // what is in the folder, by name
	said          [2]string         // what is said on standard output, and on standard error
	template      string            // a folder as it is before
}

// scenes have all modes that write something. Targets of the tool do not begin with "m".
var scenes = []*scene{
	{name: "new output", args: "-q mprog -o out"},
	{name: "existing output", make: "echo old >out; chmod 640 out; setfattr -n user.kept -v 1 out || true", args: "mprog -o out"},
	{name: "in place", make: "cp -p mprog p; chmod 4750 p; setfattr -n user.kept -v 1 p || true", args: "--in-place p"},
	{name: "in place, no sync", make: "cp mprog p", args: "-q --no-sync --in-place p"},
	{name: "force", make: "cp mdone p", args: "-q --force --format 3 --in-place p"},
	{name: "remove", make: "cp mdone p", args: "-q --remove --in-place p"},
	{name: "object", make: "cp mobject p", args: "-q --in-place p"},
	{name: "object, removed", make: "cp mobject.done p", args: "-q --remove --in-place p"},
	{name: "archive", make: "cp marchive p", args: "--in-place p"},
	{name: "report file", make: "echo old >report; cp mprog p", args: "--report json --report-file report --in-place p"},
	{name: "new report file and output", args: "--report html --report-file report mgaps -o out"},
	{name: "report on stdout", make: "cp mgaps p", args: "--report json --in-place p"},
	{name: "three files, two names of one", make: "cp mprog p; ln p q; cp mgaps r; cp mobject s", args: "--in-place p q r s"},
	{name: "standard input", args: "-q - -o out", stdin: "mprog"},
	{name: "debug file", make: "cp mstripped p", args: "-v --debug-file mdebug --in-place p"},
}

// makeScenes makes the scenes in a folder that has the material, and finds out what becomes of them.
func makeScenes(tool, dir string, all []*scene) error {
	for i, s := range all {
		s.template = filepath.Join(dir, fmt.Sprintf("scene%d-%d", len(all), i))
		if err := shell(dir, "cp -a material '"+s.template+"' && cd '"+s.template+"'\n"+s.make); err != nil {
			return err
		}
		var err error
		if s.before, err = snapshot(s.template); err != nil {
			return err
		}
		if s.endless {
			s.after = s.before
			continue
		}
		out, after, err := s.run(tool, dir, pass, ignore)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if out.status.ExitStatus() != 0 || !out.status.Exited() {
			return fmt.Errorf("%s: status %v\n%s", s.name, out.status, out.stderr)
		}
		s.after, s.said = after, [2]string{out.stdout, out.stderr}
		if maps.Equal(s.before, s.after) {
			return fmt.Errorf("%s: nothing has changed", s.name)
		}
	}
	return nil
}

func pass(*call) deed { return deed{} }
func ignore(*call)    {}

// shell runs a shell script in a folder.
func shell(dir, script string) error {
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return nil
}

// objectSource is an object with CFI.
const objectSource = `
	.globl f
f:	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
`

// makeMaterial makes the files that the scenes are made of, in a folder of their own below dir. It
// needs as.
func makeMaterial(tool, dir string) error {
	dir = filepath.Join(dir, "material")
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	fixtures, err := filepath.Abs("testdata/bin/amd64")
	if err != nil {
		return err
	}
	if _, err := os.Stat(fixtures); err != nil { // of a test, which runs in its package
		if fixtures, err = filepath.Abs("../../testdata/bin/amd64"); err != nil {
			return err
		}
	}
	if err := shell(dir, "cp '"+fixtures+"/plt' mprog; cp '"+fixtures+"/drap1' mgaps; chmod 755 m*"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "object.s"), []byte(objectSource), 0o666); err != nil {
		return err
	}
	if err := shell(dir, "as --64 -o mobject object.s; rm object.s"); err != nil {
		return err
	}
	object, err := os.ReadFile(filepath.Join(dir, "mobject"))
	if err != nil {
		return err
	}
	var ar bytes.Buffer
	ar.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		data []byte
	}{{"one.o/", object}, {"text/", []byte("no object")}, {"two.o/", object}} {
		fmt.Fprintf(&ar, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", m.name, 0, 0, 0, 0o644, len(m.data))
		ar.Write(m.data)
		if len(m.data)&1 > 0 {
			ar.WriteByte('\n')
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "marchive"), ar.Bytes(), 0o644); err != nil {
		return err
	}
	prog, err := os.ReadFile(filepath.Join(dir, "mprog"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "mlarge"), large(prog), 0o755); err != nil {
		return err
	}
	return shell(dir, fmt.Sprintf(`
		'%[1]s' -q mprog -o mdone
		'%[1]s' -q mobject -o mobject.done
		cp mgaps mdebug
		cp mgaps mstripped`, tool))
}

// large returns a program of 3 MiB more, which are after what its headers know of.
func large(prog []byte) []byte {
	rest := make([]byte, 3<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(rest) // it always can
	return append(bytes.Clone(prog), rest...)
}

// snapshot describes the files of a folder: mode, owner, number of names and contents.
func snapshot(dir string) (map[string]string, error) {
	all := make(map[string]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		what, err := describe(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all[e.Name()] = what
	}
	return all, nil
}

// describe describes a file.
func describe(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return info.Mode().String(), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	value := make([]byte, 16)
	n, err := syscall.Getxattr(path, "user.kept", value)
	if err != nil {
		n = 0
	}
	return fmt.Sprintf("%v %d:%d %q %d bytes %x", info.Mode(), st.Uid, st.Gid, value[:n], len(b), sha256.Sum256(b)), nil
}

// run runs the tool in a copy of the scene, and returns what is there afterwards.
func (s *scene) run(tool, dir string, before func(*call) deed, after func(*call)) (*outcome, map[string]string, error) {
	place, err := s.copy(dir)
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(place)
	out, err := s.program(tool, place).run(before, after)
	if err != nil {
		return nil, nil, err
	}
	now, err := snapshot(place)
	return out, now, err
}

// copy makes a copy of the scene.
func (s *scene) copy(dir string) (string, error) {
	place, err := os.MkdirTemp(dir, "run")
	if err != nil {
		return "", err
	}
	if out, err := exec.Command("cp", "-a", s.template+"/.", place).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cp: %w\n%s", err, out)
	}
	return place, nil
}

func (s *scene) program(tool, place string) *program {
	p := &program{path: tool, args: strings.Fields(s.args), dir: place}
	if s.stdin != "" {
		p.stdin = filepath.Join(place, s.stdin)
	}
	return p
}

// targets are the names of the files that the tool writes.
func (s *scene) targets() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.after)), func(name string) bool { return s.before[name] == s.after[name] })
}

// A finding is something that must not be.
type finding struct{ scene, what, how string }

func (f *finding) Error() string { return fmt.Sprintf("%s: %s: %s", f.scene, f.what, f.how) }

// whole returns an error unless each file is as it was, or as it is to be, and nothing else is there
// but what is allowed.
func (s *scene) whole(now map[string]string, allowed func(name string) bool) error {
	for name, what := range now {
		old, hasOld := s.before[name]
		done, hasDone := s.after[name]
		if hasOld && what == old || hasDone && what == done || allowed(name) {
			continue
		}
		if !hasOld && !hasDone {
			return fmt.Errorf("%s is left behind", name)
		}
		return fmt.Errorf("%s is neither as it was nor as it is to be: %s, it was %q and is to be %q", name, what, old, done)
	}
	for name := range s.before {
		if _, ok := now[name]; !ok {
			return fmt.Errorf("%s is gone", name)
		}
	}
	return nil
}

func nothing(string) bool { return false }

// honest returns an error unless the exit status and what is said agree with what was done. The
// report file is done only if all is. Of a run that got signals, the status may name one of them.
func (s *scene) honest(out *outcome, now map[string]string) error {
	if !out.status.Exited() {
		return fmt.Errorf("it ended by %v", out.status.Signal())
	}
	status := out.status.ExitStatus()
	all, none := true, true
	for _, name := range s.targets() {
		if now[name] == s.after[name] {
			none = false
		} else {
			all = false
		}
	}
	said := func(text string) bool { return strings.Contains(out.stderr, text) }
	switch {
	case status == 0 && !all:
		return fmt.Errorf("status 0, and not everything is done; stderr %q", out.stderr)
	case status == 0 && s.said != [2]string{} && s.said != [2]string{out.stdout, out.stderr}:
		return fmt.Errorf("status 0, and what is said is not what it is otherwise: %q, %q", out.stdout, out.stderr)
	case status == 0:
		return nil
	case status != 1 && !slices.Contains(out.signals, syscall.Signal(status-128)):
		return fmt.Errorf("status %d; stderr %q", status, out.stderr)
	case status != 1 && !said("interrupted"):
		return fmt.Errorf("status %d, and nothing is said of an interruption: %q", status, out.stderr)
	case all && len(s.targets()) > 0 && !said("in its place") && !said("in their places") && !said("is left behind"):
		return fmt.Errorf("status %d, although everything is done; stderr %q", status, out.stderr)
	case !said("cfi2sframe: "):
		return fmt.Errorf("status %d, and nothing is said: %q", status, out.stderr)
	case all || none:
		return nil
	}
	if r, ok := s.after["report"]; ok && now["report"] == r {
		return fmt.Errorf("the report is there, but not everything that it is about; stderr %q", out.stderr)
	}
	for _, name := range s.targets() {
		if now[name] != s.after[name] && name != "report" && !said("cfi2sframe: "+name+": ") {
			return fmt.Errorf("nothing is said of %s, which is not done; stderr %q", name, out.stderr)
		}
	}
	return nil
}
