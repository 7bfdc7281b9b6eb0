package step

// A program is followed for a limited number of steps.
type program struct {
	abi, name string
	build     string // command, with SRC and OUT replaced; "" for an installed program
	args      []string
	env       []string
	quick     bool
}

const (
	sources      = "lab/step/testdata"
	forever      = "1000000"
	freestanding = " -O2 -ffreestanding -nostdlib -static -fasynchronous-unwind-tables SRC/free.c -o OUT"
	crypto       = "gcc -O2 SRC/crypto.c -l:libcrypto.so.3 -o OUT"
	jumps        = "-linux-gnu-gcc -O2 -pthread -DALONE -static SRC/jumps.c -o OUT"
)

var programs = []program{
	{abi: "amd64", name: "bash", args: []string{sources + "/script.sh", forever}, quick: true},
	{abi: "amd64", name: "perl", args: []string{sources + "/script.pl", forever}, quick: true},
	{abi: "amd64", name: "exceptions", build: "g++ -O2 SRC/throws.cc -o OUT", args: []string{forever}, quick: true},
	{abi: "amd64", name: "jumps", build: "gcc -O2 -pthread SRC/jumps.c -o OUT", args: []string{forever}, quick: true},
	{abi: "amd64", name: "python3", args: []string{sources + "/script.py", forever}},
	{abi: "amd64", name: "cc1",
		args: []string{"-quiet", "-O2", "-imultiarch", "x86_64-linux-gnu", sources + "/jumps.c", "-o", "/dev/null"}},
	{abi: "amd64", name: "sqlite3", args: []string{":memory:", sql}},
	{abi: "amd64", name: "git",
		args: []string{"--no-pager", "diff", "--no-index", "--stat", "-p", "--histogram", "cfi", "sframe"}},
	{abi: "amd64", name: "gdb", env: []string{"DEBUGINFOD_URLS="},
		args: []string{"-nx", "-batch", "-ex", "python print(sum(range(1000)))", "-ex", "info functions .",
			"/bin/bash"}},
	{abi: "amd64", name: "libcrypto", build: crypto, args: []string{"3000", forever}},
	// OPENSSL_ia32cap selects other code: without AVX2 and later, or without SSSE3 and AES.
	{abi: "amd64", name: "libcrypto-sse", build: crypto, args: []string{"3000", forever},
		env: []string{"OPENSSL_ia32cap=~0x1000000000000000:~0xffffffff"}},
	{abi: "amd64", name: "libcrypto-plain", build: crypto, args: []string{"500", forever},
		env: []string{"OPENSSL_ia32cap=~0x1200020000000200:~0xffffffff"}},
	{abi: "amd64", name: "libgcrypt", build: "gcc -O2 SRC/gcrypt.c -l:libgcrypt.so.20 -o OUT",
		args: []string{"2000", forever}},
	// Preemption by signals is disabled, because its handlers change the address that they return to.
	{abi: "amd64", name: "gofmt", build: "go build -ldflags=-compressdwarf=false -o OUT cmd/gofmt",
		args: []string{"-l", "."}, env: []string{"GODEBUG=asyncpreemptoff=1"}},
	{abi: "amd64", name: "rust", build: "rustc -O SRC/rustrun.rs -o OUT", args: []string{forever}},
	// Under QEMU, programs are static, because the loader would take most of the steps.
	{abi: "aarch64", name: "exceptions", build: "aarch64-linux-gnu-g++ -O2 -static SRC/throws.cc -o OUT",
		args: []string{forever}},
	{abi: "aarch64", name: "jumps", build: "aarch64" + jumps, args: []string{forever}, quick: true},
	{abi: "aarch64", name: "free", build: "aarch64-linux-gnu-gcc" + freestanding, quick: true},
	{abi: "aarch64_be", name: "free", quick: true,
		build: "clang --target=aarch64_be-linux-gnu -fuse-ld=lld" + freestanding},
	{abi: "s390x", name: "jumps", build: "s390x" + jumps, args: []string{forever}, quick: true},
	{abi: "s390x", name: "free", build: "s390x-linux-gnu-gcc" + freestanding, quick: true},
}

const sql = `create table t(a integer primary key, b text, c real); create index i on t(b);
with recursive n(x) as (select 1 union all select x+1 from n where x<100000)
insert into t select x, hex(x*7919%10007)||'text', x/7.0 from n;
select count(*), sum(c), max(b), group_concat(b) from (select * from t where b like '%3%' order by b, c limit 2000);
update t set c=c*2 where a%3=0; delete from t where a%7=0;
select b, count(*) from t group by substr(b,1,3) order by 2;
select json_group_array(json_object('a',a,'b',b)) from t; vacuum;`
