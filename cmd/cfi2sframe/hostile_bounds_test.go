package main

import (
	"bytes"
	"compress/flate"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
)

// Bounds for a file of up to 10 MB: memory and processor time. A quiet machine needs 2 s, and virtual machines with
// slow system calls have needed 6 s; unbounded work takes minutes.
const (
	boundMemory = 512 << 20
	boundTime   = 20 * time.Second
	boundWait   = 2 * time.Minute
)

// measure runs a command and writes its peak memory in bytes and its processor time in nanoseconds to descriptor 3.
// This takes a separate process: the test's memory would otherwise count as the command's until exec.
func measure() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(125)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		os.Exit(125)
	}
	fmt.Fprintln(os.NewFile(3, "measured"), usage.Maxrss<<10, usage.Utime.Nano()+usage.Stime.Nano())
	os.Exit(cmd.ProcessState.ExitCode())
}

// runBounded runs cfi2sframe on a file with the given contents, and checks the time and memory used. In the arguments,
// IN and OUT stand for the file and the output in the returned directory.
func runBounded(t *testing.T, data []byte, env []string, args ...string) (dir string, status int,
	output string) {
	t.Helper()
	dir = t.TempDir()
	in := filepath.Join(dir, "in")
	must.Do(t, os.WriteFile(in, data, 0o755))
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.NewReplacer("IN", in, "OUT", filepath.Join(dir, "out")).Replace(args[i])
	}
	self := must.Get(os.Executable())(t)
	read, write := must.Two(os.Pipe())(t)
	defer read.Close()
	ctx, cancel := context.WithTimeout(t.Context(), boundWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, append([]string{tool(t)}, args...)...)
	cmd.Args[0] = "measure" // TestMain checks the name
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = []*os.File{write}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	write.Close()
	var exit *exec.ExitError
	if ctx.Err() != nil {
		t.Fatalf("%v takes more than %v", args, boundWait)
	} else if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var memory int64
	var took time.Duration
	if _, err := fmt.Fscan(read, &memory, (*int64)(&took)); err != nil {
		t.Fatalf("%v\n%s", err, out.b)
	}
	if memory > boundMemory {
		t.Errorf("%v takes %d MiB of memory; %d are accepted", args, memory>>20, boundMemory>>20)
	}
	if took > boundTime {
		t.Errorf("%v takes %v of processor time; %v are accepted", args, took, boundTime)
	}
	t.Logf("%d bytes, %v: %d MiB, %v", len(data), args[0], memory>>20, took.Round(time.Millisecond))
	return dir, cmd.ProcessState.ExitCode(), string(out.b)
}

// A limitedBuffer keeps the first maxBuffered bytes written to it.
type limitedBuffer struct{ b []byte }

const maxBuffered = 2 << 20

func (w *limitedBuffer) Write(b []byte) (int, error) {
	w.b = append(w.b, b[:min(len(b), maxBuffered-len(w.b))]...)
	return len(b), nil
}

// Arguments of cfi2sframe.
var (
	toOut  = []string{"-q", "IN", "-o", "OUT"}
	toText = []string{"--dry-run", "IN"}
	toV2   = []string{"--dry-run", "--format", "2", "IN"} // V2 has gaps that V3 does not have
	toList = []string{"--dry-run", "-v", "IN"}
	toJSON = []string{"--dry-run", "--report", "json", "IN"}
	toPage = []string{"--dry-run", "--report", "html", "IN"}
)

// TestHostileBounds converts files made to take far more time or memory than their size justifies.
func TestHostileBounds(t *testing.T) {
	long.Test(t)
	for _, tt := range []struct {
		name   string
		make   func(t testing.TB) []byte
		args   [][]string
		env    []string
		status int
		want   string // part of the first command's output
	}{
		{name: "FDEs of bad CIEs, compressed to a thousandth", make: badCIEs, args: [][]string{toText}, status: 1,
			want: "94371840 bytes of CFI, in addition to 42 in other sections, " +
				"exceed the limit of 12582912 for a file of this size"},
		{name: "small FDEs for many processors", make: smallFDEs, env: []string{"GOMAXPROCS=64"},
			args: [][]string{{"-q", "-j", "100000", "IN", "-o", "OUT"}}},
		{name: "CIEs inside of each other", make: overlappingCIEs, args: [][]string{toText},
			want: "CIEs overlap: their total size exceeds the 9600055 bytes of the section"},
		{name: "a CIE for each FDE", make: manyCIEs, args: [][]string{toOut}},
		{name: "rows that are all different", make: manyRows, args: [][]string{toOut}},
		{name: "a function cut in pieces", make: manyPieces, args: [][]string{toText},
			want: "FDEs truncated or dropped because of overlaps"},
		{name: "a PLT with long expressions", make: longPLT, args: [][]string{toText},
			want: "1,048,576 bytes in 1 range of 1 function: CFA given by an expression"},
		{name: "120 sections .eh_frame of the same bytes", make: sameFrames, args: [][]string{toText}, status: 1,
			want: "1048576 bytes of CFI, in addition to 12582912 in other sections"},
		{name: "PLTs of one stub each", make: manyPLTs, args: [][]string{toOut}},
		{name: "functions without CFI that overlap all others", make: manyUncovered, args: [][]string{toText}},
		{name: "gaps of a function with a long name", make: longName, args: [][]string{toList, toJSON, toPage}},
		{name: "names that are long after demangling", make: mangledNames,
			args: [][]string{toV2, append(toV2, "--report", "html")},
			want: "not in this report: names of"},
		{name: "an archive of gaps", make: gapsInArchive, args: [][]string{toPage, toJSON}},

		{name: "rows of all FDEs, dumped",
			make: func(testing.TB) []byte { return sharedRows(100_000, 14_000, 1<<14, 0) },
			args: [][]string{{"dump", "IN"}}, status: 1, want: "Contents of the SFrame section"},
		{name: "rows of all FDEs, compared", make: libraryWith(sharedRows(300_000, 14_000, 14_000, 0)),
			args: [][]string{{"check", "IN"}}, status: 2},
		{name: "rows without CFI, compared", make: libraryWith(sharedRows(400, 60_000, 60_000, 0)),
			args: [][]string{{"check", "IN"}}, status: 2},
		{name: "mangled names, looked up", make: mangledNames, status: 2, want: "functions are named",
			args: [][]string{{"lookup", "--cfi", "IN", "f"}, {"lookup", "--cfi", "IN", "f(int)"}}},
		{name: "long expressions, compared", make: wrongExpressions, args: [][]string{{"check", "IN"}}, status: 2,
			want: "expressions exceed the limit of"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := tt.make(t)
			for i, args := range tt.args {
				_, status, out := runBounded(t, data, tt.env, args...)
				if status != tt.status || i == 0 && !strings.Contains(out, tt.want) {
					t.Errorf("%v: exit status %d; want %d\n%.2000s\nwhich should contain %q", args, status,
						tt.status, out, tt.want)
				}
			}
		})
	}
}

// hugeFile is the approximate size of the largest generated files.
const hugeFile = 9_600_000

// codeAddr is the address of code and of .eh_frame.
const codeAddr = 1 << 24

// describedLibrary makes a library whose code has no contents in the file, and calls fill to add CFI.
func describedLibrary(t testing.TB, fill func(f *elftest.Frames, text uint64)) *elftest.Patcher {
	p := elftest.Patch(t.Fatalf, fixture(t, "pltlib.so"))
	h := p.Section(".text")
	p.Put32(h+elftest.ShType, uint32(elf.SHT_NOBITS))
	p.Put64(h+elftest.ShAddr, codeAddr)
	p.Put64(h+elftest.ShSize, 1<<26)
	var f elftest.Frames
	fill(&f, codeAddr)
	p.Contents(".eh_frame", f.B)
	p.Put64(p.Section(".eh_frame")+elftest.ShAddr, codeAddr)
	return p
}

// nearCIE appends a CIE whose FDEs have two-byte pc-relative addresses.
func nearCIE(f *elftest.Frames) int { return f.CIEOf("zR", 1, []byte{1, 0x1a}, elftest.Sound) }

// nearFDE appends an FDE of a CIE from nearCIE, for code of the given size at the FDE's own address.
func nearFDE(f *elftest.Frames, cie int, size uint16, instructions ...byte) {
	f.Entry(cie, binary.LittleEndian.AppendUint16([]byte{0, 0}, size), []byte{0}, instructions)
}

// addGaps describes n one-byte ranges that SFrame cannot express, each followed by a one-byte range that it can
// express.
func addGaps(f *elftest.Frames, text uint64, n int) {
	f.FDE(f.CIE(elftest.Sound...), text, uint64(2*n), bytes.Repeat([]byte{0x41, 0x0d, 3, 0x41, 0x0d, 7}, n)...)
}

// oneFDE adds an FDE for 16 bytes of code.
func oneFDE(f *elftest.Frames, text uint64) { f.FDE(f.CIE(elftest.Sound...), text, 16) }

// zlibCopies returns n copies of a chunk, zlib-compressed. If the chunk has at least 32 KiB, which is the window of
// zlib, all copies after the first compress to the same bytes, so only two are compressed.
func zlibCopies(t testing.TB, chunk []byte, n int) []byte {
	b := bytes.NewBuffer([]byte{0x78, 0x9c})
	z := must.Get(flate.NewWriter(b, flate.BestCompression))(t)
	var second []byte
	for range 2 {
		at := b.Len()
		must.Get(z.Write(chunk))(t)
		must.Do(t, z.Flush())
		second = bytes.Clone(b.Bytes()[at:])
	}
	for range n - 2 {
		b.Write(second)
	}
	b.Write([]byte{1, 0, 0, 0xff, 0xff}) // the last block, empty
	sum := adler32.New()
	for range n {
		sum.Write(chunk)
	}
	return sum.Sum(b.Bytes())
}

func badCIEs(t testing.TB) []byte {
	p := describedLibrary(t, oneFDE)
	var f elftest.Frames
	f.Record(7, make([]byte, 4)) // there is no CIE
	const n = 120
	data := elftest.Compressed(elf.COMPRESS_ZLIB, uint64(n<<16*len(f.B)), zlibCopies(t, bytes.Repeat(f.B, 1<<16), n))
	p.AddSection(".debug_frame", uint64(elf.SHF_COMPRESSED), data)
	return p.B
}

func smallFDEs(t testing.TB) []byte {
	return describedLibrary(t, func(f *elftest.Frames, text uint64) {
		cie := nearCIE(f)
		for i := 0; len(f.B) < hugeFile; i++ {
			nearFDE(f, cie, 16, 0x0e, 0x80|byte(i), 0x80|byte(i>>7), byte(i>>14))
		}
	}).B
}

func overlappingCIEs(t testing.TB) []byte {
	return describedLibrary(t, func(f *elftest.Frames, text uint64) {
		oneFDE(f, text)
		at := len(f.B)
		const n = 320_000
		head := []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16} // a CIE up to its instructions
		cie := append(slices.Clone(head), 0x0f, byte(len(head)))  // an expression that contains the next CIE
		body := append(bytes.Repeat(cie, n), make([]byte, len(head))...)
		for i := range n {
			binary.LittleEndian.PutUint32(body[len(cie)*i:], uint32(len(body)-len(cie)*i-4))
		}
		f.B = append(f.B, body...)
		for i := range n {
			f.Entry(at+len(cie)*i, make([]byte, 7))
		}
	}).B
}

func manyCIEs(t testing.TB) []byte {
	return describedLibrary(t, func(f *elftest.Frames, text uint64) {
		for i := 0; len(f.B) < hugeFile; i++ {
			cie := f.CIEOf("zR", 1, []byte{1, 0x1a}, []byte{0x0c, 7, 8, 0x90, 1, 0x86, byte(2 + i%100), 0x0e,
				byte(i / 100)})
			nearFDE(f, cie, 30)
		}
	}).B
}

func manyRows(t testing.TB) []byte {
	return describedLibrary(t, func(f *elftest.Frames, text uint64) {
		cie := f.CIE(elftest.Sound...)
		const n = 500_000 // per function
		seed := uint32(1)
		for len(f.B) < hugeFile {
			program := make([]byte, 0, 3*n)
			for range n {
				seed = seed*1664525 + 1013904223
				program = append(program, 0x46, 0x0e, byte(seed>>25))
			}
			f.FDE(cie, text, 6*n, program...)
			text += 6 * n
		}
	}).B
}

func manyPieces(t testing.TB) []byte {
	p := describedLibrary(t, func(f *elftest.Frames, text uint64) {
		cie := f.CIE(elftest.Sound...)
		for i := range uint64(100_000) {
			f.FDE(cie, text+20*i, 1)
		}
	})
	var f elftest.Frames
	cie := f.Record(-1, append([]byte{1, 0, 1, 0x78, 16}, elftest.Sound...))
	body := binary.LittleEndian.AppendUint64(nil, codeAddr)
	body = binary.LittleEndian.AppendUint64(body, 2_000_000)
	f.Record(cie, append(body, bytes.Repeat([]byte{0x86, 2, 0x41, 0xc6, 0x41}, 400_000)...))
	p.AddSection(".debug_frame", 0, f.B)
	return p.B
}

// cfaExpression returns a DW_CFA_def_cfa_expression with the given operations, followed by no-ops.
func cfaExpression(nops int, expression ...byte) []byte {
	expression = append(slices.Clone(expression), bytes.Repeat([]byte{0x96}, nops)...)
	return append(binary.AppendUvarint([]byte{0x0f}, uint64(len(expression))), expression...)
}

func longPLT(t testing.TB) []byte {
	return describedLibrary(t, func(f *elftest.Frames, text uint64) {
		f.FDE(f.CIE(elftest.Sound...), text, 1<<20, slices.Concat(cfaExpression(230, steady[2:]...),
			[]byte{0x10, 16, 0xf2, 1, 0x38, 0x1c}, bytes.Repeat([]byte{0x96}, 240), // RA c-8
			[]byte{0x10, 6, 0xf2, 1, 0x40, 0x1c}, bytes.Repeat([]byte{0x96}, 240))...) // FP c-16
	}).B
}

func sameFrames(t testing.TB) []byte {
	p := describedLibrary(t, func(f *elftest.Frames, text uint64) {
		cie := nearCIE(f)
		for len(f.B) < 1<<20 {
			nearFDE(f, cie, 13)
		}
	})
	p.NewSections(120, func(i, h int) {
		p.CopySection(h, ".eh_frame")
		p.Put64(h+elftest.ShAddr, codeAddr+uint64(i)<<19)
	})
	return p.B
}

func manyPLTs(t testing.TB) []byte {
	p := elftest.Patch(t.Fatalf, fixture(t, "pltlib.so"))
	p.BigPLT(1<<20, 0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90)
	h := p.Section(".plt")
	off, addr := p.U64(h+elftest.ShOff), p.U64(h+elftest.ShAddr)
	p.Put64(h+elftest.ShSize, 8)
	p.NewSections(130_000, func(i, h int) {
		p.CopySection(h, ".plt")
		p.Put64(h+elftest.ShOff, off+8*uint64(i))
		p.Put64(h+elftest.ShAddr, addr+8*uint64(i))
	})
	return p.B
}

// hollow describes only every 13th byte of the code, which splits the rest into many pieces without CFI.
func hollow(t testing.TB, size int) *elftest.Patcher {
	p := describedLibrary(t, func(f *elftest.Frames, text uint64) {
		cie := nearCIE(f)
		for len(f.B) < size {
			nearFDE(f, cie, 1)
		}
	})
	h := p.Section(".text")
	p.Put32(h+elftest.ShType, uint32(elf.SHT_PROGBITS))
	p.Put64(h+elftest.ShOff, p.U64(p.Section(".eh_frame")+elftest.ShOff))
	p.Put64(h+elftest.ShSize, uint64(size))
	return p
}

func manyUncovered(t testing.TB) []byte {
	const size = 4_500_000
	p := hollow(t, size)
	var symbols []byte
	for i := range uint64(180_000) {
		symbols = append(symbols, elftest.Symbol(1, codeAddr+i, size, uint16(p.Index(".text")))...)
	}
	p.Contents(".symtab", symbols)
	return p.B
}

func longName(t testing.TB) []byte {
	p := describedLibrary(t, func(f *elftest.Frames, text uint64) { addGaps(f, text, 60_000) })
	p.Contents(".strtab", append(append([]byte{0}, bytes.Repeat([]byte("x"), 60<<10)...), 0))
	p.Contents(".symtab", elftest.Symbol(1, codeAddr, 1<<24, uint16(p.Index(".text"))))
	return p.B
}

func mangledNames(t testing.TB) []byte {
	const n = 60_000
	p := describedLibrary(t, func(f *elftest.Frames, text uint64) { addGaps(f, text, n) })
	// Each template has its predecessor as both arguments.
	long := "_Z1f1AIiiE"
	for i := range 10 {
		arg := "S_"
		if i > 0 {
			arg = fmt.Sprintf("S%d_", i-1)
		}
		long += "1AI" + arg + arg + "E"
	}
	strings, symbols := []byte{0}, []byte(nil)
	for i := range uint64(n) {
		symbols = append(symbols, elftest.Symbol(uint32(len(strings)), codeAddr+2*i, 2, uint16(p.Index(".text")))...)
		strings = fmt.Appendf(strings, "%s5b%04x\x00", long, i)
	}
	p.Contents(".strtab", strings)
	p.Contents(".symtab", symbols)
	return p.B
}

func gapsInArchive(t testing.TB) []byte {
	p := describedLibrary(t, func(f *elftest.Frames, text uint64) { addGaps(f, text, 20_000) })
	return elftest.Ar(bytes.Repeat(elftest.ArMember("a/", p.B), 36))
}

// sharedRows returns an SFrame V2 section for code at the section's address, which addSFrame sets. All FDEs share the
// same rows, which repeat every rep bytes unless rep is 0.
func sharedRows(fdes, rows int, size uint32, rep byte) []byte {
	le := binary.LittleEndian
	b := []byte{0xe2, 0xde, 2, 1, 3, 0, 0xf8, 0}
	for _, v := range []int{fdes, fdes * rows, 7 * rows, 0, 20 * fdes} {
		b = le.AppendUint32(b, uint32(v))
	}
	info := byte(2) // starts of four bytes
	if rep > 0 {
		info |= 1 << 4
	}
	for i := range fdes {
		for _, v := range []uint32{uint32(i) * size, size, 0, uint32(rows)} {
			b = le.AppendUint32(b, v)
		}
		b = append(b, info, rep, 0, 0)
	}
	for i := range rows {
		b = le.AppendUint32(b, uint32(i))
		b = append(b, 1|1<<1|1<<5, 8, byte(i%2)) // CFA sp+8 or sp+264
	}
	return b
}

// libraryWith returns a function that makes a library with the given .sframe at the address of the code. Only the code
// after the first 32 MiB has CFI: 64 functions of 512 KiB.
func libraryWith(section []byte) func(testing.TB) []byte {
	return func(t testing.TB) []byte {
		p := describedLibrary(t, func(f *elftest.Frames, text uint64) {
			cie := f.CIE(elftest.Sound...)
			for i := range uint64(64) {
				f.FDE(cie, text+1<<25+i<<19, 1<<19)
			}
		})
		addSFrame(p, section)
		return p.B
	}
}

// addSFrame adds an .sframe section at the address of the code.
func addSFrame(p *elftest.Patcher, b []byte) {
	p.AddSection(".sframe", uint64(elf.SHF_ALLOC), b)
	p.Put64(p.Section(".sframe")+elftest.ShAddr, codeAddr)
}

func wrongExpressions(t testing.TB) []byte {
	p := describedLibrary(t, func(f *elftest.Frames, text uint64) {
		cie := f.CIE(append(cfaExpression(9_000, 0x77, 16), 0x90, 1)...)
		for i := range uint64(300_000) {
			f.FDE(cie, text+4*i, 4)
		}
	})
	addSFrame(p, sharedRows(100, 1, 12_000, 0))
	return p.B
}
