package sample

import (
	"os"
	"strings"

	"cfi2sframe/lab/kit"
)

// A subject is a program that is busy until it is ended.
type subject struct {
	name    string
	c       bool   // it and its libraries are C and C++: every sample has to reach the start
	static  bool   // the sampler is in it
	zero    bool   // its stacks begin with a return address of 0, as those of goroutines do
	build   string // a command: OUT stands for the program, SRC for the sources, SAMPLE for the static sampler
	env     []string
	command []string // REPO stands for a path; of subjects that are built, the program
}

// subjects use the processor until they are ended, or are run again.
var subjects = []subject{
	{name: "bash", c: true, command: []string{"/bin/bash", "-c", `
		f() { local i s= x; for ((i = 0; i < 200; i++)); do s+=$i; [[ $s =~ 1(.)3 ]] && s=${s//1/2}; done
			printf -v x "%s %d" "$s" $((i * 7)); }
		declare -A a
		while :; do f; for k in a b c d; do a[$k]=$RANDOM; done; case ${a[b]} in 1*) eval 'b=${a[c]}' ;; esac; done`}},
	{name: "python3", c: true, command: []string{"/usr/bin/python3", "-c", `
import json, re, sqlite3, threading, zlib
def deep(n): return n if n == 0 else 1 + deep(n - 1)
def work():
    db = sqlite3.connect(":memory:")
    db.create_function("twice", 1, lambda x: x * 2)
    while True:
        json.loads(json.dumps([{str(i): [i, 1.5 * i]} for i in range(50)]))
        re.sub(r"(a+)(b?)", lambda m: m.group(2) + m.group(1), "aaabab" * 20)
        db.execute("select sum(twice(value)) from json_each('[1,2,3,4,5,6,7]')").fetchall()
        zlib.decompress(zlib.compress(b"sample" * 500)); deep(20)
        sorted(range(200), key=lambda x: -x)
threading.Thread(target=work).start()
work()`}},
	{name: "perl", c: true, command: []string{"/usr/bin/perl", "-e", `
		use List::Util qw(sum first); use POSIX;
		sub deep { my $n = shift; return $n ? 1 + deep($n - 1) : 0 }
		while (1) {
			my %h = map { $_ => sqrt $_ } 1 .. 200; my @s = sort { $h{$a} <=> $h{$b} } keys %h;
			my $t = join ",", map { sprintf "%.2f", $h{$_} } @s; $t =~ s/(\d)\.(\d+)/$2.$1/g;
			eval { die { n => deep(20) } }; my $x = sum(map { POSIX::floor($_) } values %h);
		}`}},
	{name: "sqlite3", c: true, command: []string{"/usr/bin/sqlite3", ":memory:", `
		create table t (a integer primary key, b text, c real); create index i on t (b);
		with recursive n(x) as (select 1 union all select x + 1 from n where x < 20000)
		insert into t select x, hex(randomblob(4)), x * 1.5 from n;
		with recursive n(x) as (select 1 union all select x + 1 from n where x < 1000000)
		select sum((select count(*) || max(c) from t
			where b between hex(randomblob(1)) and 'F' and a < 500 + x % 50)) from n;`}},
	{name: "gdb", c: true, command: []string{"/usr/bin/gdb", "-nx", "-batch", "-ex", "file /bin/bash", "-ex",
		`python exec("while True:\n gdb.execute('info functions read', to_string=True)\n` +
			` gdb.parse_and_eval('1 + 2 * 3')\n gdb.execute('info line *0x40000', to_string=True)")`}},
	{name: "git", c: true,
		command: []string{"/usr/bin/git", "-c", "safe.directory=*", "-C", "REPO", "--no-pager", "log", "-p", "-M"}},
	{name: "exceptions (C++)", c: true, build: "g++ -O2 SRC/throw.cc -o OUT"},
	{name: "static (C++)", c: true, static: true, build: "g++ -O2 -static -DNO_THROW SRC/throw.cc SAMPLE -o OUT"},
	{name: "threads (C)", c: true, build: "gcc -O2 -pthread SRC/threads.c -lm -o OUT"},
	{name: "Rust", build: "rustc -O -C debuginfo=0 SRC/work.rs -o OUT"},
	{name: "Go with cgo", zero: true, build: "go build -ldflags=-linkmode=external -o OUT SRC/gowork/main.go",
		env: []string{"SAMPLE_ONSTACK=1"}},
	{name: "stripped Go with cgo", zero: true, env: []string{"SAMPLE_ONSTACK=1"},
		build: "go build -ldflags=-s -o OUT SRC/gowork/main.go"},
}

// prepare builds the subject, and replaces the names in its command.
func (s *subject) prepare(l *lab) error {
	if s.build != "" {
		program, err := kit.Build(s.build, l.sources(), l.dir, s.name, "SAMPLE", l.staticSampler())
		s.command = []string{program}
		return err
	}
	repo, err := os.Getwd()
	if err != nil {
		return err
	}
	for i, w := range s.command {
		s.command[i] = strings.ReplaceAll(w, "REPO", repo)
	}
	_, err = os.Stat(s.command[0])
	return err
}
