package faults

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"cfi2sframe/lab/kit"
)

// A scenario is a directory with files, and a command line.
type scenario struct {
	name  string
	make  string // a shell script that makes the files from those that makeMaterial creates
	args  string
	stdin string
	// others are input files that must not change. An error in one of them does not stop the conversion of other files.
	others []string

	before, after  map[string]string // states of files, by name
	stdout, stderr string
	template       string // directory with the initial files
}

// scenarios covers all modes that write files. Names of input files begin with "m".
var scenarios = []*scenario{
	{name: "new output", args: "-q mprog -o out"},
	{name: "existing output", make: "echo old >out; chmod 640 out; setfattr -n user.kept -v 1 out || true",
		args: "mprog -o out"},
	{name: "in place", make: "cp -p mprog p; chmod 4750 p; setfattr -n user.kept -v 1 p || true", args: "--in-place p"},
	{name: "in place, no sync", make: "cp mprog p", args: "-q --no-sync --in-place p"},
	{name: "force", make: "cp mdone p", args: "-q --force --format 2 --in-place p"},
	{name: "remove", make: "cp mdone p", args: "remove -q --in-place p"},
	{name: "object", make: "cp mobject p", args: "-q --in-place p"},
	{name: "object, removed", make: "cp mobject.done p", args: "remove -q --in-place p"},
	{name: "archive", make: "cp marchive p", args: "--in-place p"},
	{name: "report file", make: "echo old >report; cp mprog p",
		args: "--report json --report-file report --in-place p"},
	{name: "new report file and output", args: "--report html --report-file report mgaps -o out"},
	{name: "report on stdout", make: "cp mgaps p", args: "--report json --in-place p"},
	{name: "three files, one with two names", make: "cp mprog p; ln p q; cp mgaps r; cp mobject s",
		args: "-v --in-place p q r s"},
	{name: "standard input", args: "-q - -o out", stdin: "mprog"},
	{name: "tree", make: "cp mprog p; cp mgaps q; echo text >t; rm m*", args: "-r --in-place .",
		others: []string{"./", "t"}},
	{name: "update", make: "cp mdone p; cp mprog q", args: "--update --in-place p q", others: []string{"p"}},
	{name: "detach", args: "detach mprog -o out"},
	{name: "attach", make: "cp mprog p", args: "attach --in-place p --sframe mdetached"},
	{name: "debug file", make: "cp mgaps p; cp mgaps mdebug", args: "-v --debug-file mdebug --in-place p"},
}

// largeScenarios are for power failures: their files are so large that the kernel writes their contents late.
var largeScenarios = []*scenario{
	{name: "in place", make: "cp mlarge p; chmod 750 p", args: "-q --in-place p"},
	{name: "existing output", make: "echo old >out; chmod 640 out", args: "-q mlarge -o out"},
	{name: "three files, one with two names", make: "cp mlarge p; ln p q; cp mgaps r; cp marchive s",
		args: "-q --in-place p q r s"},
	{name: "report file", make: "cp mgaps p; echo old >report",
		args: "--report html --report-file report --in-place p"},
}

// named returns the scenario with the given name.
func named(name string) *scenario {
	return scenarios[slices.IndexFunc(scenarios, func(s *scenario) bool { return s.name == name })]
}

// makeMaterial makes the files that scenarios start from.
func (h *harness) makeMaterial() error {
	top, err := kit.Top()
	if err != nil {
		return err
	}
	return shell(h.dir, fmt.Sprintf(`
		mkdir material && cd material
		cp %[1]s/testdata/bin/amd64/plt mprog
		cp %[1]s/testdata/bin/amd64/drap1 mgaps
		chmod 755 mprog mgaps
		yes | head -c 3145728 >pad; objcopy --add-section .pad=pad mprog mlarge; rm pad
		printf 'f: .cfi_startproc\npush %%%%rbx\n.cfi_def_cfa_offset 16
			pop %%%%rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n' | as --64 -o mobject
		cp mobject one.o && cp mobject two.o && echo no object >text
		ar rcD marchive one.o text two.o
		rm one.o two.o text
		'%[2]s' -q mprog -o mdone
		'%[2]s' detach -q mprog -o mdetached
		'%[2]s' -q mobject -o mobject.done`, top, h.tool))
}

// prepare makes the directories of scenarios, and runs cfi2sframe in each without faults.
func (h *harness) prepare(list []*scenario) error {
	for i, s := range list {
		s.template = filepath.Join(h.dir, fmt.Sprintf("scenario%d-%d", len(list), i))
		if err := shell(h.dir, "cp -a material '"+s.template+"' && cd '"+s.template+"'\n"+s.make); err != nil {
			return err
		}
		var err error
		if s.before, err = snapshot(s.template); err != nil {
			return err
		}
		out, after, err := h.run(s, nil, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if !out.status.Exited() || out.status.ExitStatus() != 0 || maps.Equal(s.before, after) {
			return fmt.Errorf("%s: status %v, or no file has changed\n%s", s.name, out.status, out.stderr)
		}
		s.after, s.stdout, s.stderr = after, out.stdout, out.stderr
	}
	return nil
}

// shell runs a shell script in a directory.
func shell(dir, script string) error { return kit.Run(dir, "sh", "-ec", script) }

// snapshot returns the state of each file in a directory: mode, owner, an extended attribute, and contents.
func snapshot(dir string) (map[string]string, error) {
	all := make(map[string]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			all[e.Name()] = info.Mode().String()
			continue
		}
		path := filepath.Join(dir, e.Name())
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if e.Name() == "report" && isFailure(b) {
			all[e.Name()] = failureReport
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		value := make([]byte, 16)
		n, _ := syscall.Getxattr(path, "user.kept", value) // -1 if it has none
		all[e.Name()] = fmt.Sprintf("%v %d:%d %q %d bytes %x",
			info.Mode(), st.Uid, st.Gid, value[:max(n, 0)], len(b), sha256.Sum256(b))
	}
	return all, nil
}

// failureReport is the state of a complete report on files that failed.
const failureReport = "report on failed files"

// isFailure reports whether a report is complete, in JSON or HTML, and contains errors.
func isFailure(report []byte) bool {
	if bytes.HasPrefix(bytes.ToLower(report), []byte("<!doctype html>")) {
		return bytes.HasSuffix(bytes.TrimSpace(report), []byte("</html>")) && bytes.Contains(report, []byte("Failed"))
	}
	failed := false
	for d := json.NewDecoder(bytes.NewReader(report)); ; {
		var line struct{ Error string }
		if err := d.Decode(&line); err != nil {
			return failed && errors.Is(err, io.EOF)
		}
		failed = failed || line.Error != ""
	}
}

// run runs cfi2sframe in a copy of the scenario's directory, and returns the state of the files.
func (h *harness) run(s *scenario, before func(*call) action, after func(*call)) (*outcome, map[string]string, error) {
	dir := filepath.Join(h.dir, "run")
	if err := shell(h.dir, "rm -rf run; cp -a '"+s.template+"' run"); err != nil {
		return nil, nil, err
	}
	out, err := h.trace(s, dir, before, after)
	if err != nil {
		return nil, nil, err
	}
	now, err := snapshot(dir)
	return out, now, err
}
