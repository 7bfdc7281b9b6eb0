package clients

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/kit"
)

// A guest is a program in which outside.c takes stacks. Its shell script has what it needs in SRC, and writes to TMP,
// its current directory.
type guest struct {
	name, needs string // needs is a program that must be there
	script      string
	signals     bool // a timer's handlers take stacks, too
	user        string
}

var guests = []guest{
	{name: "perl", script: `perl -e 'my %h; for (1..9000) { $h{$_} = [split //, "abc$_"] } print scalar(keys %h)'`},
	{name: "python", needs: "/usr/bin/python3",
		script: `/usr/bin/python3 -c 'import json, re
for i in range(3000): json.loads(json.dumps({str(i): [i] * 9})); re.sub("a", "b", "abc" * i)'`},
	{name: "git", script: `rm -rf g && git init -q g && cd g && cp -r "$SRC" . && git add . &&
		git -c user.name=a -c user.email=a@b commit -qm one && git log -p | wc -c && git gc -q`},
	{name: "node", script: `node -e 'let s = 0; for (let i = 0; i < 1e5; i++) s += JSON.stringify({i}).length'`},
	{name: "java", script: `java -XX:+UseSerialGC -XshowSettings:all -version`},
	{name: "gdb", script: `gdb -nx -batch -ex 'info functions ma' "$(command -v sqlite3)"`},
	{name: "g++", script: `g++ -O1 -c "$SRC/throw8.cc" -o throw8.o`},
	{name: "cmake",
		script: `printf 'project(p CXX)\nadd_library(l x.cc)\n' >CMakeLists.txt && : >x.cc && cmake . && cmake --build .`},
	{name: "Rust, panics", needs: "rustc",
		script: `[ -e rust ] || rustc -O "$SRC/panics.rs" -o rust; ./rust 2>&1 | tail -n 1`},
	{name: "C++, exceptions in 8 threads", needs: "g++", signals: true,
		script: `[ -e throw8 ] || g++ -O2 "$SRC/throw8.cc" -o throw8 -pthread; LD_BIND_NOW=1 ./throw8`},
	{name: "redis", needs: "redis-benchmark",
		script: `redis-server --port 7919 --bind 127.0.0.1 --save '' --daemonize no >log &
		for i in 1 2 3 4 5 6 7 8 9; do redis-cli -p 7919 ping >/dev/null 2>&1 && break; sleep 0.3; done
		redis-benchmark -p 7919 -n 3000 -q >/dev/null && redis-cli -p 7919 shutdown nosave; wait`},
	{name: "nginx", needs: "nginx", script: `printf 'daemon off; pid nginx.pid; error_log e.log; events {}
		http { access_log off; server { listen 127.0.0.1:7918; location / { return 200 "%%s"; } } }' >n.conf
		nginx -p . -c n.conf & sleep 1; ab -q -n 3000 -c 4 http://127.0.0.1:7918/ >/dev/null; kill -QUIT $!; wait`},
	{name: "postgres", needs: "initdb", user: "postgres",
		script: `PATH=$(dirname "$(readlink -f "$(command -v initdb)")"):$PATH
		rm -rf db && initdb -D db >/dev/null || exit
		postgres -D db -p 7917 -k "$PWD" -c listen_addresses=127.0.0.1 >log 2>&1 &
		for i in 1 2 3 4 5 6 7 8 9; do pg_isready -q -h 127.0.0.1 -p 7917 && break; sleep 0.3; done
		pgbench -h 127.0.0.1 -p 7917 -i -q postgres >/dev/null 2>&1 &&
		pgbench -h 127.0.0.1 -p 7917 -c 4 -t 100 postgres >/dev/null; pg_ctl -D db -m fast stop >/dev/null; wait`},
}

// counts are the first fields of outside.c's report.
type counts struct{ Stacks, Frames, Differ, Shorter, Longer, Faults, Cases uint64 }

// outside compares all stacks of programs: those of runs, until there are enough of them.
func (l *lab) outside(only []string, runs, stacks, every int) error {
	hook, path := filepath.Join(l.dir, "outside.so"), filepath.Join(l.dir, "report")
	build := []string{"-O2", "-std=gnu11", "-fPIC", "-shared", "-static-libgcc", "-o", hook, "lab/clients/c/outside.c"}
	if b, err := exec.Command("gcc", build...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %v: %w\n%s", build, err, b)
	}
	table := kit.NewTable(os.Stdout, "program", ">runs", ">stacks", ">frames", ">differ", ">shorter", ">longer",
		">libgcc's faults")
	for i := range guests {
		g := &guests[i]
		needs := g.needs
		if needs == "" {
			needs = strings.Fields(g.script)[0]
		}
		if !wanted(only, g.name) {
			continue
		}
		if _, err := exec.LookPath(needs); err != nil {
			fmt.Fprintf(os.Stderr, "backtrace: %s is missing: %v\n", g.name, err)
			continue
		}
		var sum counts
		if _, out, err := l.visit(g, hook, path, every, true); err != nil {
			l.bad = append(l.bad, fmt.Sprintf("%s: %v\n%.2000s", g.name, err, out))
			continue
		}
		n := 0
		for ; n < runs || (sum.Stacks < uint64(stacks) && n < 100*runs); n++ {
			c, out, err := l.visit(g, hook, path, every, false)
			if err != nil {
				l.bad = append(l.bad, fmt.Sprintf("%s: %v\n%.2000s", g.name, err, out))
				break
			}
			sum.Stacks += c.Stacks
			sum.Frames += c.Frames
			sum.Differ += c.Differ
			sum.Shorter += c.Shorter
			sum.Longer += c.Longer
			sum.Faults += c.Faults
			if c.Differ+c.Shorter > 0 {
				l.bad = append(l.bad,
					fmt.Sprintf("%s: %d stacks differ, %d are shorter: %s", g.name, c.Differ, c.Shorter, cases(path)))
			}
			if c.Stacks == 0 {
				l.bad = append(l.bad, g.name+": no stacks")
				break
			}
		}
		table.Row(g.name, n, sum.Stacks, sum.Frames, sum.Differ, sum.Shorter, sum.Longer, sum.Faults)
	}
	return nil
}

// reportSize is more than the size of outside.c's report.
const reportSize = 16 << 10

// visit runs a program once. The first run is for what it builds, and learns what has to be covered.
func (l *lab) visit(g *guest, hook, path string, every int, first bool) (c counts, out []byte, err error) {
	if err := os.WriteFile(path, make([]byte, reportSize), 0o666); err != nil {
		return c, nil, err
	}
	home := filepath.Join(l.dir, strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, g.name))
	if err := os.MkdirAll(home, 0o755); err != nil {
		return c, nil, err
	}
	command := []string{l.run, "-q", "--preload", hook}
	if first {
		command = append(command, "--learn")
	}
	command = append(command, "sh", "-c", g.script)
	if g.user != "" && os.Getuid() == 0 {
		if err := errors.Join(exec.Command("chown", "-R", g.user, home).Run(), os.Chmod(l.dir, 0o755),
			os.Chmod(path, 0o666)); err != nil {
			return c, nil, err
		}
		command = append([]string{"setpriv", "--reuid=" + g.user, "--regid=" + g.user, "--clear-groups"}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+home, "SRC="+l.sources, "OUTSIDE="+path,
		fmt.Sprintf("OUTSIDE_EVERY=%d", every), "HOME="+home, "LC_ALL=C")
	if g.signals {
		cmd.Env = append(cmd.Env, "OUTSIDE_SIGNALS=1")
	}
	if out, err = cmd.CombinedOutput(); err != nil {
		return c, out, err
	}
	f, err := os.Open(path)
	if err != nil {
		return c, nil, err
	}
	defer f.Close()
	return c, nil, binary.Read(f, binary.NativeEndian, &c)
}

// cases describes the first stacks that differ.
func cases(path string) string {
	const header, size, name, most = 56, 128, 24, 4
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	var list []string
	for at := header; at+size <= len(b) && len(list) < most; at += size {
		text, _, _ := strings.Cut(string(b[at+name:at+size]), "\x00")
		if offset := binary.NativeEndian.Uint64(b[at+8:]); offset != 0 {
			list = append(list, fmt.Sprintf("after %s+%#x", text, offset))
		}
	}
	return strings.Join(list, ", ")
}
