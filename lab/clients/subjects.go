package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/kit"
)

// A client is a profiler packaged by Debian that captures stacks inside the profiled process.
type client struct {
	name    string
	preload string   // the profiler
	always  bool     // preload the profiler even in runs without profiling, because it is an allocator
	env     []string // enables profiling; TMP is replaced by a directory
	timed   bool     // captures stacks at timed intervals, too rarely to slow the program down
}

const debianLib = "/usr/lib/x86_64-linux-gnu/"

var clients = []client{
	{name: "gperftools heap profile, libunwind", preload: debianLib + "libtcmalloc.so.4", always: true,
		env: []string{"HEAPPROFILE=TMP/heap", "TCMALLOC_STACKTRACE_METHOD=libunwind"}},
	{name: "gperftools heap profile, libgcc", preload: debianLib + "libtcmalloc.so.4", always: true,
		env: []string{"HEAPPROFILE=TMP/heap", "TCMALLOC_STACKTRACE_METHOD=libgcc"}},
	{name: "gperftools CPU profile", preload: debianLib + "libprofiler.so.0", timed: true,
		env: []string{"CPUPROFILE=TMP/cpu", "CPUPROFILE_FREQUENCY=4000", "TCMALLOC_STACKTRACE_METHOD=libunwind"}},
	{name: "jemalloc heap profile, each allocation", preload: debianLib + "libjemalloc.so.2", always: true,
		env: []string{"MALLOC_CONF=prof:true,lg_prof_sample:0"}},
	{name: "heaptrack", preload: "/usr/lib/heaptrack/libheaptrack_preload.so",
		env: []string{"DUMP_HEAPTRACK_OUTPUT=TMP/heaptrack"}},
}

// A program is profiled by each client.
type program struct {
	name    string
	env     []string
	command []string // TMP is replaced by a directory
	input   string   // %d is replaced by size
	size    int
}

var programs = []program{
	{name: "sqlite3", command: []string{"/usr/bin/sqlite3", ":memory:"}, size: 20000, input: `
create table t (a integer primary key, b text, c text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < %d)
	insert into t select i, printf('%%d-%%x', i * 7919 %% 10007, i), hex(i * 8) from n;
create index tb on t (b);
select count(*), sum(length(s)) from (select group_concat(c) as s from t group by a %% 1000);
select count(*) from t x join t y on x.b = y.b;
select sum(length(replace(b || c, '1', 'one'))), count(distinct upper(b)) from t;
`},
	{name: "cc1", command: []string{"CC1", "-quiet", "-O2", "-o", "/dev/null", "TMP/walker.i"}},
	{name: "python3", env: []string{"PYTHONMALLOC=malloc"}, size: 40,
		command: []string{"/usr/bin/python3", "-"}, input: `
import json, re, sqlite3
def deep(n): return [n] if n == 0 else deep(n - 1) + [str(n)]
db = sqlite3.connect(":memory:")
db.create_function("twice", 1, lambda x: x * 2)
for i in range(%d):
    json.loads(json.dumps([{str(i): [i, 1.5 * i]} for i in range(20)]))
    re.sub(r"(a+)(b?)", lambda m: m.group(2) + m.group(1), "aaabab" * 20)
    db.execute("select sum(twice(value)) from json_each('[1,2,3,4,5,6,7]')").fetchall()
    deep(20)
`},
}

// stdin returns the program's input.
func (p *program) stdin() string {
	if p.input == "" {
		return ""
	}
	return fmt.Sprintf(p.input, p.size)
}

// A tracer captures stacks in a loop, and prints the time.
type tracer struct {
	name      string
	build     string // a command; OUT is replaced by the program, SRC by the sources
	functions int    // number of functions in a program made by wide.sh
	traces    int
	onward    bool // SFrame finds more frames than DWARF
}

var tracers = []tracer{
	{name: "glibc `backtrace()`", build: "gcc -O2 SRC/glibc.c -o OUT", traces: 30000},
	{name: "glibc `backtrace()`, nothing cached", build: "gcc -O2 SRC/uncached.c -o OUT", traces: 30000},
	{name: "glibc `backtrace()`, 256 functions at random",
		build: "gcc -O0 -ISRC OUT.c -o OUT", functions: 256, traces: 30000},
	{name: "libunwind `unw_backtrace()`, 256 functions at random",
		build: "gcc -O0 -ISRC -DLIBUNWIND OUT.c -o OUT -lunwind", functions: 256, traces: 30000},
	{name: "glibc `backtrace()`, 12,000 functions at random",
		build: "gcc -O0 -ISRC OUT.c -o OUT", functions: 12000, traces: 10000},
	{name: "glibc `backtrace()`, 2 fibers", build: "gcc -O2 -DFIBERS=2 SRC/fibers.c -o OUT", traces: 10000},
	{name: "glibc `backtrace()`, 3 fibers", build: "gcc -O2 -DFIBERS=3 SRC/fibers.c -o OUT", traces: 10000},
	{name: "glibc `backtrace()`, 100 fibers", build: "gcc -O2 -DFIBERS=100 SRC/fibers.c -o OUT", traces: 10000},
	{name: "glibc `backtrace()`, 1,000 fibers", traces: 10000, build: "gcc -O2 -DFIBERS=1000 SRC/fibers.c -o OUT"},
	{name: "Boost.Stacktrace", build: "g++ -O2 SRC/boost.cc -ldl -o OUT", traces: 30000},
	{name: "`std::stacktrace`", build: "g++ -O2 -std=c++23 SRC/stacktrace.cc -lstdc++exp -o OUT", traces: 30000},
	{name: "Rust `std::backtrace`", build: "rustc -O SRC/rust.rs -o OUT", traces: 10000},
	{name: "Go calling C (cgo)", build: "go build -o OUT SRC/cgo.go", traces: 20000, onward: true},
	{name: "Python's `faulthandler.dump_c_stack`, with names", build: "cp SRC/fault.py OUT", traces: 300},
	{name: "C++ `throw`", build: "g++ -O2 SRC/throw.cc -o OUT", traces: 10000},
}

// prepare builds the tracer and returns the program.
func (l *lab) prepare(t *tracer) (string, error) {
	if strings.Contains(t.build, "OUT.c") {
		source, err := exec.Command("sh", filepath.Join(l.sources, "wide.sh"), fmt.Sprint(t.functions)).Output()
		if err == nil {
			err = os.WriteFile(kit.ProgramPath(l.dir, t.name)+".c", source, 0o644)
		}
		if err != nil {
			return "", fmt.Errorf("wide.sh: %w", err)
		}
	}
	return kit.Build(t.build, l.sources, l.dir, t.name)
}
