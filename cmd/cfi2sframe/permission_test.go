package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// A user is the user ID and the groups with which a program runs.
type user struct {
	uid    uint32
	groups []uint32 // the first is the primary group
}

var (
	superuser = user{0, []uint32{0}}
	somebody  = user{1234, []uint32{1234, 500}}
)

// run runs a shell script in a directory.
func (u user) run(dir, script string) (string, error) {
	cmd := exec.Command("bash", "-ec", script)
	cmd.Dir = dir
	if int(u.uid) != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.groups[0],
			Groups: u.groups}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// shell runs a shell script in a directory, and expects it to succeed.
func (u user) shell(t *testing.T, dir, script string) string {
	t.Helper()
	out, err := u.run(dir, script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// describeOut is a script that prints a file's mode, owner, group, ACL and extended attributes.
const describeOut = `stat -c '%a %u:%g' out; getfacl -cEn out; getfattr -d -m - -e hex out |
	grep -v -e '^#' -e posix_acl -e selinux || true`

// needAttributes skips the test unless it runs as root and the tools for file attributes are installed.
func needAttributes(t *testing.T) {
	t.Helper()
	for _, name := range []string{"setfacl", "getfacl", "setfattr", "getfattr", "setcap", "cp", "bash"} {
		peer.Look(t, name)
	}
	if os.Geteuid() != 0 {
		peer.Missing(t, "changing the owners of files requires root")
	}
}

// A setting is a situation in which cp and cfi2sframe are compared. Scripts create it.
type setting struct {
	user                        user
	folder, input, output, root string // scripts; the one for the output runs as the user, the others as root
}

// likeCpSettings are the settings of TestLikeCp.
func likeCpSettings() []setting {
	inputs := []string{
		"chmod 755 in", "chmod 644 in", "chmod 4755 in", "chmod 2755 in", "chown 12:34 in; chmod 6755 in",
		"setfacl -m u:12:rwx in; setfattr -n user.origin -v in in", "chmod 755 in; setcap cap_net_raw+ep in",
	}
	outputs := []struct{ script, root string }{
		{"touch out", ""}, {"touch out; chmod 604 out", ""},
		{"touch out; chmod 755 out; setfattr -n user.kept -v out out", ""},
		{"touch out; setfacl -b out; setfacl -m u:13:rw- out", ""}, {"touch out; setfacl -b out; chmod 664 out", ""},
		{"touch out; chmod 6755 out", ""}, {"touch out; chmod 2745 out", ""},
		{"touch out; chgrp 500 out; chmod 660 out", ""}, {"touch out; chmod 200 out", ""},
		{"touch out; chmod 755 out", "setcap cap_net_raw+ep out"},
		{"touch out", "if [ -O . ]; then chown 12:34 out; chmod 6755 out; fi"}, // only root can give files away
	}
	var all []setting
	for _, u := range []user{superuser, somebody} {
		for _, folder := range []string{":", "setfacl -d -m u:12:rwx,g:13:r-x,g::r-x,o::r-x .",
			"chgrp 500 .; chmod g+s ."} {
			for _, in := range inputs {
				all = append(all, setting{u, folder, in, ":", ":"})
			}
			for _, o := range outputs {
				all = append(all, setting{u, folder, inputs[4], o.script, cmp.Or(o.root, ":")})
			}
		}
	}
	return all
}

// TestLikeCp compares the attributes of outputs with those of copies made by cp, for new and for existing files.
func TestLikeCp(t *testing.T) {
	needAttributes(t)
	all := likeCpSettings()
	dir := must.Get(os.MkdirTemp("", "cfi2sframe-"))(t) // readable for all users
	defer os.RemoveAll(dir)
	must.Do(t, os.Chmod(dir, 0o755))
	// Starting shells takes most of the time, so there are only a few, and each runs many commands.
	scripts := make(map[string]*strings.Builder)
	for _, step := range []string{"first", "0", "1234", "root", "run 0", "run 1234", "last"} {
		scripts[step] = &strings.Builder{}
	}
	add := func(step, format string, args ...any) { fmt.Fprintf(scripts[step], format+"\n", args...) }
	program := must.Get(filepath.Abs(filepath.Join(fixtures, "plt")))(t)
	for i, s := range all {
		uid := fmt.Sprint(s.user.uid)
		add("first", "mkdir %d; cd %d; cp '%s' in; %s", i, i, program, s.input)
		for _, side := range []string{"cp", "ours"} {
			add("first", "mkdir %s; cd %s; %s; chown %s .; cd ..", side, side, s.folder, uid)
			add(uid, "cd %d/%s; %s; cd ../..", i, side, s.output)
			add("root", "cd %d/%s; %s; cd ../..", i, side, s.root)
			add("last", "cd %d/%s; { %s; } >../%s.txt; cd ../..", i, side, describeOut, side)
		}
		add("first", "cd ..")
		add("run "+uid, "cp %d/in %d/cp/out; '%s' -q %d/in -o %d/ours/out", i, i, tool(t), i, i)
	}
	for _, step := range []struct {
		user user
		name string
	}{{superuser, "first"}, {superuser, "0"}, {somebody, "1234"}, {superuser, "root"}, {superuser, "run 0"},
		{somebody, "run 1234"}, {superuser, "last"}} {
		umask := "umask 027\n"
		if step.name == "first" { // all users must be able to read these files
			umask = "umask 022\n"
		}
		step.user.shell(t, dir, umask+scripts[step.name].String())
	}
	for i, s := range all {
		var texts [2]string
		for k, side := range []string{"cp", "ours"} {
			b := testfile.Read(t, filepath.Join(dir, fmt.Sprint(i), side+".txt"))
			texts[k] = string(b)
		}
		if texts[0] != texts[1] {
			t.Errorf("user %d: %s; %s; %s; %s: cp has\n%s\nand we have\n%s", s.user.uid, s.folder, s.input, s.output,
				s.root, texts[0], texts[1])
		}
	}
}

// copyTo copies a program to a path.
func copyTo(t *testing.T, path string) {
	t.Helper()
	b := testfile.Read(t, filepath.Join(fixtures, "plt"))
	testfile.Write(t, path, b)
}
