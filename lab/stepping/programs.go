package stepping

// A program runs for longer than it is followed.
type program struct {
	abi, name string
	source    string   // a file of testdata to compile, a command of Go's, or the name of an installed program
	args      []string // {T} stands for testdata, {R} for the repository
	env       []string
	flags     []string // of the compiler
	quick     bool
}

const (
	forever = "1000000"
	// These select other code of libcrypto: without AVX2 and later, and without SSSE3 and AES.
	noAVX   = "OPENSSL_ia32cap=~0x1000000000000000:~0xffffffff"
	noSSSE3 = "OPENSSL_ia32cap=~0x1200020000000200:~0xffffffff"
)

var (
	crypto       = []string{"-l:libcrypto.so.3"}
	alone        = []string{"-DALONE", "-static"}
	freestanding = []string{"-ffreestanding", "-nostdlib", "-static", "-fasynchronous-unwind-tables"}
)

var programs = []program{
	{abi: "amd64", name: "bash", source: "bash", args: []string{"{T}/script.sh", forever}, quick: true},
	{abi: "amd64", name: "perl", source: "perl", args: []string{"{T}/script.pl", forever}, quick: true},
	{abi: "amd64", name: "exceptions", source: "throws.cc", args: []string{forever}, quick: true},
	{abi: "amd64", name: "jumps", source: "jumps.c", args: []string{forever}, quick: true},
	{abi: "amd64", name: "python3", source: "/usr/bin/python3",
		args: []string{"{T}/script.py", forever}, env: []string{"PYTHONHOME=/usr"}},
	{abi: "amd64", name: "cc1", source: "cc1",
		args: []string{"-quiet", "-O2", "-imultiarch", "x86_64-linux-gnu", "{T}/jumps.c", "-o", "/dev/null"}},
	{abi: "amd64", name: "sqlite3", source: "sqlite3", args: []string{":memory:", sql}},
	{abi: "amd64", name: "git", source: "git",
		args: []string{"--no-pager", "diff", "--no-index", "--stat", "-p", "--histogram", "{R}/cfi", "{R}/sframe"}},
	{abi: "amd64", name: "gdb", source: "gdb", env: []string{"PYTHONHOME=/usr", "DEBUGINFOD_URLS="},
		args: []string{"-nx", "-batch", "-data-directory", "/usr/share/gdb", "-ex", "python print(sum(range(1000)))",
			"-ex", "info functions .", "/bin/bash"}},
	{abi: "amd64", name: "libcrypto", source: "crypto.c", flags: crypto, args: []string{"3000", forever}},
	{abi: "amd64", name: "libcrypto-sse", source: "crypto.c", flags: crypto,
		args: []string{"3000", forever}, env: []string{noAVX}},
	{abi: "amd64", name: "libcrypto-plain", source: "crypto.c", flags: crypto,
		args: []string{"500", forever}, env: []string{noSSSE3}},
	{abi: "amd64", name: "libgcrypt", source: "gcrypt.c", flags: []string{"-l:libgcrypt.so.20"},
		args: []string{"2000", forever}},
	// Without preemption by signals, whose handlers change where they return to.
	{abi: "amd64", name: "gofmt", source: "cmd/gofmt", args: []string{"-l", "{R}"},
		env: []string{"GODEBUG=asyncpreemptoff=1"}},
	{abi: "amd64", name: "rust", source: "rustrun.rs", args: []string{forever}},
	// Under QEMU they are static: the loader would take most of the steps.
	{abi: "aarch64", name: "exceptions", source: "throws.cc", flags: []string{"-static"}, args: []string{forever}},
	{abi: "aarch64", name: "jumps", source: "jumps.c", flags: alone, args: []string{forever}, quick: true},
	{abi: "aarch64", name: "free", source: "free.c", flags: freestanding, quick: true},
	{abi: "aarch64_be", name: "free", source: "free.c", flags: freestanding, quick: true},
	{abi: "s390x", name: "jumps", source: "jumps.c", flags: alone, args: []string{forever}, quick: true},
	{abi: "s390x", name: "free", source: "free.c", flags: freestanding, quick: true},
}

const sql = `create table t(a integer primary key, b text, c real); create index i on t(b);
with recursive n(x) as (select 1 union all select x+1 from n where x<100000)
insert into t select x, hex(x*7919%10007)||'text', x/7.0 from n;
select count(*), sum(c), max(b), group_concat(b) from (select * from t where b like '%3%' order by b, c limit 2000);
update t set c=c*2 where a%3=0; delete from t where a%7=0;
select b, count(*) from t group by substr(b,1,3) order by 2;
select json_group_array(json_object('a',a,'b',b)) from t; vacuum;`
