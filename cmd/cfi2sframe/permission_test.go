package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/internal/peer"
)

// A user is who runs a program.
type user struct {
	uid    uint32
	groups []uint32 // the first is the primary one
}

var (
	superuser = user{0, []uint32{0}}
	somebody  = user{1234, []uint32{1234, 500}}
)

// command makes a command for a user. Everybody can run the test program from where it is.
func (u user) command(umask int, name string, args ...string) *exec.Cmd {
	script := fmt.Sprintf(`umask %03o && exec "$0" "$@"`, umask)
	if name == "cfi2sframe" { // TestMain goes by the name
		script = fmt.Sprintf(`umask %03o && exec -a cfi2sframe "$0" "$@"`, umask)
	}
	cmd := exec.Command("bash", append([]string{"-c", script, name}, args...)...)
	if int(u.uid) != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.groups[0], Groups: u.groups}}
	}
	return cmd
}

// run runs the program for a user, and returns what it says.
func (u user) run(tool string, umask int, args ...string) (string, error) {
	cmd := u.command(umask, "cfi2sframe", args...)
	cmd.Args[3] = tool
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// publicTool copies the test program to a folder that everybody can look into.
func publicTool(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := publicDir(t)
	src, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	tool := filepath.Join(dir, "tool")
	dst, err := os.OpenFile(tool, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
	return tool
}

// publicDir makes a folder that everybody can look into.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cfi2sframe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shell runs a script in a folder, as the user who runs the tests.
func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("bash", "-ec", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// attributes describes a file: mode, owner, group, ACL and extended attributes.
func attributes(t *testing.T, path string) string {
	t.Helper()
	return shell(t, ".", "stat -c '%a %u:%g' '"+path+"'; getfacl -cEnp '"+path+"'; getfattr --absolute-names -d -m - -e hex '"+path+"' | grep -v -e '^#' -e posix_acl -e selinux || true")
}

// needAttributes skips the test without root or the tools that show attributes.
func needAttributes(t *testing.T) {
	t.Helper()
	for _, name := range []string{"setfacl", "getfacl", "setfattr", "getfattr", "setcap", "cp", "bash"} {
		peer.Look(t, name)
	}
	if os.Geteuid() != 0 {
		peer.Missing(t, "root is missing, to give files to others")
	}
}

// TestLikeCp compares the attributes of an output with those that cp gives to its own: a new
// one, and one that is there.
func TestLikeCp(t *testing.T) {
	needAttributes(t)
	tool := publicTool(t)
	inputs := []string{
		"chmod 755 in", "chmod 644 in", "chmod 4755 in", "chmod 2755 in", "chown 12:34 in && chmod 6755 in",
		"setfacl -m u:12:rwx in && setfattr -n user.origin -v in in", "chmod 755 in && setcap cap_net_raw+ep in",
	}
	outputs := []struct{ script, root string }{ // made by the user, and then changed by root
		{"touch out", ""}, {"touch out && chmod 604 out", ""},
		{"touch out && chmod 755 out && setfattr -n user.kept -v out out", ""},
		{"touch out && setfacl -b out && setfacl -m u:13:rw- out", ""}, {"touch out && setfacl -b out && chmod 664 out", ""},
		{"touch out && chmod 6755 out", ""}, {"touch out && chmod 2745 out", ""},
		{"touch out && chgrp 500 out && chmod 660 out", ""}, {"touch out && chmod 200 out", ""},
		{"touch out && chmod 755 out", "setcap cap_net_raw+ep out"},
		{"touch out", "[ ! -O . ] || chown 12:34 out && chmod 6755 out"}, // root's alone is given away
	}
	for _, folder := range []string{":", "setfacl -d -m u:12:rwx,g:13:r-x,g::r-x,o::r-x .", "chgrp 500 . && chmod g+s ."} {
		for _, u := range []user{superuser, somebody} {
			for _, input := range inputs {
				likeCp(t, tool, u, folder, input, ":", "")
			}
			for _, o := range outputs {
				likeCp(t, tool, u, folder, inputs[4], o.script, o.root)
			}
		}
	}
}

// likeCp is TestLikeCp for one setting, which scripts make.
func likeCp(t *testing.T, tool string, u user, folder, input, output, root string) {
	t.Helper()
	const umask = 0o027
	place := func() string {
		dir := publicDir(t)
		shell(t, dir, folder+fmt.Sprintf("\nchown %d .", u.uid))
		cmd := u.command(umask, "bash", "-ec", output)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", output, err, out)
		}
		shell(t, dir, root)
		return filepath.Join(dir, "out")
	}
	dir := publicDir(t)
	in := filepath.Join(dir, "in")
	copyTo(t, in)
	shell(t, dir, input)
	want, got := place(), place()
	if out, err := u.command(umask, "cp", in, want).CombinedOutput(); err != nil {
		t.Fatalf("%s; %s; %s: cp: %v\n%s", folder, input, output, err, out)
	}
	if out, err := u.run(tool, umask, "-q", in, "-o", got); err != nil {
		t.Errorf("user %d: %s; %s; %s; %s: %v\n%s", u.uid, folder, input, output, root, err, out)
	} else if w, g := attributes(t, want), attributes(t, got); w != g {
		t.Errorf("user %d: %s; %s; %s; %s: cp has\n%s\nand we have\n%s", u.uid, folder, input, output, root, w, g)
	}
}

// copyTo copies a program to a path.
func copyTo(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(fixtures, "plt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKeptAttributes converts files in place. They keep their attributes, or stay as they are.
func TestKeptAttributes(t *testing.T) {
	needAttributes(t)
	tool := publicTool(t)
	original, err := os.ReadFile(filepath.Join(fixtures, "plt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		user   user
		script string // makes the file, whose folder belongs to the user
		err    string // what is said, if that is to fail
	}{
		{superuser, "chmod 755 in", ""},
		{superuser, "chown 12:34 in && chmod 6755 in", ""},
		{superuser, "chown 12:34 in && chmod 2745 in", ""},
		{superuser, "chown 12:34 in && chmod 400 in && setcap cap_net_raw+ep in", ""},
		{superuser, "chmod 1604 in && setfattr -n user.a -v 1 in && setfattr -n trusted.b -v 2 in", ""},
		{superuser, "setfacl -d -m u:12:rwx,g::rwx,o::rwx . && chmod 600 in", ""},
		{superuser, "setfacl -d -m u:12:rwx,g::rwx,o::rwx . && setfacl -m u:13:r-x in && chmod 750 in", ""},
		{superuser, "chgrp 500 . && chmod g+s . && chmod 750 in", ""},
		{somebody, "chown 1234:1234 in && chmod 4755 in", ""},
		{somebody, "chown 1234:500 in && chmod 2755 in && setfattr -n user.a -v 1 in && setfacl -m u:13:r-x in", ""},
		{somebody, "setfacl -d -m u:12:rwx,g::rwx,o::rwx . && chown 1234:500 in && chmod 600 in", ""},
		{somebody, "chown 1234:34 in && chmod 750 in", "its group (34) cannot be given to the result: operation not permitted"},
		{somebody, "chown 12:500 in && chmod 755 in", "its owner (user 12) cannot be given to the result: operation not permitted"},
		{somebody, "chown 0:0 in && chmod 4755 in", "its owner (user 0) cannot be given to the result: operation not permitted"},
		{somebody, "chown 1234:1234 in && chmod 755 in && setcap cap_net_raw+ep in", "its extended attribute security.capability cannot be given to the result: operation not permitted"},
	} {
		dir := publicDir(t)
		in := filepath.Join(dir, "in")
		copyTo(t, in)
		shell(t, dir, fmt.Sprintf("chown %d:%d .\n%s", tt.user.uid, tt.user.groups[0], tt.script))
		before := attributes(t, in)
		for _, args := range [][]string{{"-q", "--force", "--in-place", in}, {"-q", "--force", in, "-o", in}} {
			out, err := tt.user.run(tool, 0o077, args...)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(out, ": "+tt.err)) {
				t.Errorf("user %d: %s: error %v, output %q", tt.user.uid, tt.script, err, out)
			}
			if after := attributes(t, in); after != before {
				t.Errorf("user %d: %s: attributes before\n%s\nand after\n%s", tt.user.uid, tt.script, before, after)
			}
			after, err := os.ReadFile(in)
			if err != nil {
				t.Fatal(err)
			}
			if same := bytes.Equal(original, after); same != (tt.err != "") {
				t.Errorf("user %d: %s: the file stayed as it was: %t", tt.user.uid, tt.script, same)
			}
			if names := shell(t, dir, "ls -A"); names != "in\n" {
				t.Errorf("user %d: %s: there are %q", tt.user.uid, tt.script, names)
			}
		}
	}
}

// TestForeignOutput writes to an output that belongs to somebody else, who cp would leave it to.
func TestForeignOutput(t *testing.T) {
	needAttributes(t)
	tool := publicTool(t)
	dir := publicDir(t)
	shell(t, dir, "touch out && chown 12:34 out && chmod 666 out && chown 1234 .")
	copyTo(t, filepath.Join(dir, "in"))
	before := attributes(t, filepath.Join(dir, "out"))
	out, err := somebody.run(tool, 0o022, "-q", filepath.Join(dir, "in"), "-o", filepath.Join(dir, "out"))
	if err == nil || !strings.Contains(out, "the owner of the output (user 12) cannot be given to the result: operation not permitted") {
		t.Errorf("error %v, output %q", err, out)
	}
	if after := attributes(t, filepath.Join(dir, "out")); after != before || shell(t, dir, "cat out; ls -A") != "in\nout\n" {
		t.Errorf("there is now\n%s%s", after, shell(t, dir, "ls -lA"))
	}
}
