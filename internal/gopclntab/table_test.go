package gopclntab_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/gopclntab"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/goprog"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
)

// read builds a program and returns its contents.
func read(t testing.TB, env string, flags ...string) []byte {
	t.Helper()
	return testfile.Read(t, goprog.Build(t, env, flags...))
}

// functions returns the functions of a program, keyed by end address. The table must be valid.
func functions(t testing.TB, f *elffile.File) map[uint64]gopclntab.Function {
	t.Helper()
	all := make(map[uint64]gopclntab.Function)
	for fn, err := range must.Get(gopclntab.Find(f))(t).Functions() {
		if err != nil {
			t.Fatal(err)
		}
		c := *fn
		c.Rows = slices.Clone(fn.Rows)
		all[fn.End] = c
	}
	return all
}

// TestTable compares frame sizes with those that Go's linker emits in .debug_frame, for all build modes. Without
// section headers, and in the layout of Go 1.18, the table must have the same functions.
func TestTable(t *testing.T) {
	for _, tt := range []struct{ name, env, flags string }{
		{"static", "CGO_ENABLED=0", ""},
		{"pie", "CGO_ENABLED=0", "-buildmode=pie"},
		{"cgo", "CGO_ENABLED=1", "-ldflags=-linkmode=external"},
		{"cgo-pie", "CGO_ENABLED=1", "-buildmode=pie -ldflags=-linkmode=external"},
		{"c-shared", "CGO_ENABLED=1", "-buildmode=c-shared"},
		{"plugin", "CGO_ENABLED=1", "-buildmode=plugin"},
		{"arm64", "CGO_ENABLED=0 GOARCH=arm64", ""},
		{"s390x", "CGO_ENABLED=0 GOARCH=s390x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := read(t, tt.env, strings.Fields(tt.flags)...)
			f := elftest.Parse(t, b)
			all := functions(t, f)
			compare(t, must.Get(cfi.Load(f, cfi.DebugFrame, nil))(t), all)
			if old := functions(t, elftest.Parse(t, oldLayout(f, b))); !reflect.DeepEqual(old, all) {
				t.Errorf("%d functions in the layout of Go 1.18 differ from %d", len(old), len(all))
			}
			for _, off := range []int{elftest.EhShoff, elftest.EhShnum, elftest.EhShstrndx} {
				clear(b[off:][:2])
			}
			clear(b[elftest.EhShoff:][:8])
			if bare := functions(t, elftest.Parse(t, b)); !reflect.DeepEqual(bare, all) {
				t.Errorf("%d functions without section headers differ from %d", len(bare), len(all))
			}
		})
	}
}

// compare compares functions with those in .debug_frame.
func compare(t *testing.T, debug *cfi.Table, all map[uint64]gopclntab.Function) {
	t.Helper()
	a := arch.Of(debug.Machine)
	var framed, saved int
	for fn := range debug.Functions() {
		got, ok := all[fn.End]
		if !ok || got.Begin != fn.Begin && (got.Kind != gopclntab.SigReturn || got.Begin != fn.Begin-1) {
			t.Fatalf("the table has no function at %#x-%#x", fn.Begin, fn.End)
		}
		if got.Kind != gopclntab.Framed {
			continue
		}
		framed++
		for i, r := range got.Rows {
			end := got.End
			if i+1 < len(got.Rows) {
				end = got.Begin + uint64(got.Rows[i+1].Off)
			}
			for pc := got.Begin + uint64(r.Off); pc < end; pc++ {
				want, _ := debug.Lookup(pc)
				// In .debug_frame, the CFA is the caller's SP on all machines.
				if want.CFA.Reg != a.SP || want.CFA.Offset != int64(r.Frame)+int64(a.EntryCFA)+a.CallerSP ||
					r.Base != gopclntab.OfSP {
					t.Fatalf("at %#x: %+v; .debug_frame has %v", pc, r, want.Rules)
				}
			}
			if r.Saved == 0 {
				continue
			}
			saved++
			below := uint32(8)
			if debug.Machine == elf.EM_AARCH64 {
				below += got.Rows[1].Frame
			}
			if i == 0 || r.Saved != below || r.Off <= got.Rows[i-1].Off {
				t.Fatalf("FP is saved %d bytes below SP in row %d of the function at %#x", r.Saved, i, got.Begin)
			}
		}
	}
	t.Logf("%d functions with frames of %d, FP saved in %d rows", framed, len(all), saved)
	if framed < 500 || len(all)-framed < 5 || len(all)-framed > 80 || saved < framed && debug.Machine != elf.EM_S390 {
		t.Errorf("%d functions with frames of %d, FP saved in %d rows", framed, len(all), saved)
	}
}

// oldLayout returns the program with the magic and the records of Go 1.18 (runtime2.go), which have no start line.
func oldLayout(f *elffile.File, b []byte) []byte {
	b = bytes.Clone(b)
	quantum := map[elf.Machine]byte{elf.EM_X86_64: 1, elf.EM_AARCH64: 4, elf.EM_S390: 2}[elf.Machine(f.Machine)]
	start := append(f.Order.(binary.AppendByteOrder).AppendUint32(nil, 0xfffffff1), 0, 0, quantum, 8)
	table := b[bytes.Index(b, start):]
	f.Order.PutUint32(table, 0xfffffff0)
	list := table[f.Order.Uint64(table[64:]):]
	for i := range f.Order.Uint64(table[8:]) {
		record := list[f.Order.Uint32(list[8*i+4:]):]
		copy(record[36:38], record[40:])
		copy(record[40:42], "\xff\xff")
	}
	return b
}

// TestKinds checks the kinds of the runtime's functions, from their flags (TOPFRAME, SPWRITE) and code in the runtime.
// For the bytes that signal handlers push, see pushCall and preparePanic in runtime/signal_*.go.
func TestKinds(t *testing.T) {
	names := [gopclntab.NumKinds]string{ // by kind; not all exist on all machines
		gopclntab.Framed:    "runtime.main runtime.sigtramp.abi0 main.main",
		gopclntab.Outermost: "_rt0_amd64_linux runtime.rt0_go.abi0 runtime.mstart.abi0 runtime.goexit.abi0",
		gopclntab.Switches: "runtime.gogo.abi0 runtime.mcall runtime.systemstack.abi0 runtime.asmcgocall.abi0 " +
			"runtime.clone.abi0",
		gopclntab.Injected:  "runtime.sigpanic runtime.sigpanic0.abi0 runtime.asyncPreempt.abi0 runtime.debugCallV2",
		gopclntab.SigReturn: "runtime.sigreturn__sigaction.abi0",
	}
	for goarch, pushed := range map[string]uint32{"amd64": 0, "arm64": 16, "s390x": 8} {
		b := read(t, "CGO_ENABLED=0 GOARCH="+goarch)
		f := elftest.Parse(t, b)
		all := functions(t, f)
		found := 0
		for kind, names := range names {
			for name, s := range must.Get(f.FindSymbols(strings.Fields(names)...))(t) {
				found++
				// The padding before the return address of signal handlers is part of the function.
				fn, begin, want, bad := all[s.Value+s.Size], s.Value, uint32(0), false
				switch gopclntab.Kind(kind) {
				case gopclntab.Switches: // code is examined only on amd64
					bad = goarch != "amd64" && len(fn.Rows) != 1 || fn.Rows[0].Off != 0
				case gopclntab.Injected:
					want = pushed
					bad = name == "runtime.sigpanic" && goarch != "s390x" && fn.Rows[len(fn.Rows)/2].Saved == 0
				case gopclntab.SigReturn:
					begin--
					other := bytes.Clone(b)
					off, _ := f.FileOffset(s.Value, 9)
					other[off+3]++ // the number of the system call
					bad = functions(t, elftest.Parse(t, other))[s.Value+s.Size].Kind == gopclntab.SigReturn
				}
				if bad || fn.Begin != begin || fn.Kind != gopclntab.Kind(kind) || fn.Pushed != want {
					t.Errorf("%s: %s at %#x: %+v; want kind %d, %d bytes", goarch, name, s.Value, fn, kind, want)
				}
			}
		}
		if found < 13 || goarch == "amd64" && found != 17 {
			t.Errorf("%s: %d symbols", goarch, found)
		}
	}
}

// TestStacks checks the register that locates the caller's frame after calls on a different stack, where Go's unwinder
// continues or stops. If C calls back into Go, the goroutine's stack may move before asmcgocall returns to it. Before
// Go 1.26, the goroutine's stack may also move before systemstack returns to it.
func TestStacks(t *testing.T) {
	calls := map[string]string{ // instructions of the call
		"runtime.systemstack.abi0": "\xff\xd7",
		"runtime.mcall":            "\x41\xff\xd4",
		"runtime.nanotime1.abi0":   "\xff\xd0",
		"runtime.asmcgocall.abi0":  "\x48\x83\xe4\xf0\x48\x89\x7c\x24\x08",
		"runtime.gogo.abi0":        "\x48\x8b",
	}
	static := read(t, "CGO_ENABLED=0")
	exports := read(t, "CGO_ENABLED=1", "-ldflags=-linkmode=external")
	release := func(change func(info []byte)) []byte {
		b := bytes.Clone(static)
		change(b[elftest.Parse(t, b).Section(".go.buildinfo").Off:])
		return b
	}
	for _, tt := range []struct {
		name                    string
		b                       []byte
		systemstack, asmcgocall gopclntab.Base
	}{
		{"static", static, gopclntab.OfFP, gopclntab.OfFP},
		{"cgo with exports", exports, gopclntab.OfFP, gopclntab.Unknown},
		{"Go 1.25", release(func(b []byte) { copy(b[33:], "go1.25") }), gopclntab.Unknown, gopclntab.OfFP},
		{"Go 1.27", release(func(b []byte) { copy(b[33:], "go1.27") }), gopclntab.OfFP, gopclntab.OfFP},
		{"version elsewhere", release(func(b []byte) { b[15] = 0 }), gopclntab.Unknown, gopclntab.OfFP},
		{"version too long", release(func(b []byte) { copy(b[32:], "\xff\x7f") }), gopclntab.Unknown, gopclntab.OfFP},
		{"no build information", release(func(b []byte) { b[8] = 0 }), gopclntab.Unknown, gopclntab.OfFP},
	} {
		f := elftest.Parse(t, tt.b)
		all := functions(t, f)
		text := f.Section(".text")
		want := map[string]gopclntab.Base{"runtime.mcall": gopclntab.NoCaller, "runtime.nanotime1.abi0": gopclntab.OfFP,
			"runtime.gogo.abi0": gopclntab.Unknown, "runtime.systemstack.abi0": tt.systemstack,
			"runtime.asmcgocall.abi0": tt.asmcgocall}
		symbols := must.Get(f.FindSymbols(slices.Collect(maps.Keys(want))...))(t)
		for name, base := range want {
			s := symbols[name]
			at := bytes.Index(tt.b[text.Off+s.Value-text.Addr:][:s.Size], []byte(calls[name]))
			if at < 0 {
				t.Fatalf("%s has no % x", name, calls[name])
			}
			var got gopclntab.Row
			for _, r := range all[s.Value+s.Size].Rows {
				if int(r.Off) <= at+len(calls[name]) {
					got = r
				}
			}
			if got.Base != base {
				t.Errorf("%s: %s: %+v after the call; want base %d", tt.name, name, got, base)
			}
		}
	}
}

// TestDamaged overwrites words of a table and of module data.
func TestDamaged(t *testing.T) {
	b := read(t, "CGO_ENABLED=0", "-ldflags=-s -w")
	f := elftest.Parse(t, b)
	le := binary.LittleEndian
	at, module := f.Section(".gopclntab").Off, f.Section(".go.module").Off
	records := at + le.Uint64(b[at+64:])
	record := records + uint64(le.Uint32(b[records+8+4:])) // of the second function
	pctab := at + le.Uint64(b[at+56:])
	larger := uint64(le.Uint32(b[records+16:])-le.Uint32(b[records+8:])) + 1 // than the second function
	count, size := le.Uint64(b[at+8:]), le.Uint64(b[module+8*14:])
	type words map[uint64]uint64 // by file offset
	for _, tt := range []struct {
		name string
		put  words
		want string // error of Find, or of one function
	}{
		{"another magic", words{at: 0x08010000_fffffffb}, "+0x0: starts with "},
		{"another size of pointers", words{at: 0x04010000_fffffff1}, "+0x0: starts with "},
		{"another quantum", words{at: 0x08030000_fffffff1}, "+0x0: starts with "},
		{"bytes after the magic", words{at: 0x08010100_fffffff1}, "+0x0: starts with "},
		{"more functions", words{at + 8: count + 1}, "+0x8: "},
		{"too many functions", words{at + 8: size / 8, module + 8*17: size/8 + 1}, " functions do not fit in "},
		{"pctab after the functions", words{at + 56: 1 << 30}, "+0x38: pctab at 0x40000000 is after the functions at "},
		{"functions elsewhere", words{at + 64: 96}, "+0x40: functions are at 0x60, but at "},
		{"names after their end", words{at + 32: 1 << 30}, "+0x20: names from 0x40000000 to "},
		{"names past the end", words{at + 40: 1 << 30}, "+0x20: names from "},
		{"first function elsewhere", words{records: le.Uint64(b[records:]) + 1}, " according to module data"},
		{"last function elsewhere", words{module + 8*21: le.Uint64(b[module+8*21:]) + 1}, " according to module data"},
		{"a table of 2^40 bytes", words{module + 8*14: 1 << 40}, " is larger than the file ("},
		{"a size that wraps", words{module + 8*14: 100 - (records - at)}, " is larger than the file ("},
		{"a table past the segment", words{module + 8*14: f.Size - (records - at)}, " is not within one segment"},
		{"another table", words{module: f.Section(".gopclntab").Addr + 8}, "no module data points to the table at "},
		{"another list", words{module + 8*16: 0}, "no module data points to the table at "},
		{"functions in the header", words{module + 8*13: 71, module + 8*16: 71}, "no module data points to the table"},
		{"no code", words{module + 8*20: 1 << 62}, "no module data points to the table at "},
		{"code before text", words{module + 8*22: 1 << 62}, "no module data points to the table at "},
		{"a record past the end", words{records + 8: le.Uint64(b[records+8:])&math.MaxUint32 | size<<32},
			": record at 0x"},
		{"a function that ends before it begins", words{records + 8: le.Uint64(b[records+8:]) | 1<<30},
			": function ends at "},
		{"a pcsp table past the end", words{record + 16: 1 << 30}, ": pcsp table at 0x40000000 is past the end of "},
		{"a larger function",
			words{pctab + uint64(le.Uint32(b[record+16:])): 2 | (larger&0x7f|0x80)<<8 | larger>>7<<16},
			" bytes, but the function has "},
	} {
		bad := bytes.Clone(b)
		for off, v := range tt.put {
			le.PutUint64(bad[off:], v)
		}
		table, err := gopclntab.Find(elftest.Parse(t, bad))
		failed := 0
		if err == nil && table != nil {
			for _, e := range table.Functions() {
				if e != nil {
					err, failed = e, failed+1
				}
			}
		}
		if err == nil || !strings.HasPrefix(err.Error(), ".gopclntab+") || !strings.Contains(err.Error(), tt.want) ||
			failed > 1 && tt.name != "a larger function" {
			t.Errorf("%s: error %v for %d functions; want %q", tt.name, err, failed, tt.want)
		}
	}
}

// TestEachRead makes each read of a program fail, one per run. Find must return the error.
func TestEachRead(t *testing.T) {
	b := read(t, "CGO_ENABLED=0", "-ldflags=-s -w")
	bare := bytes.Clone(b)
	clear(bare[elftest.EhShoff:][:8])
	clear(bare[elftest.EhShnum:][:4])
	for name, b := range map[string][]byte{"sections": b, "no sections": bare} {
		found := 0
		for n, failed := 0, true; failed; n++ {
			r := &testfile.FailingReader{ReaderAt: bytes.NewReader(b), Err: syscall.EIO}
			r.Left.Store(int64(n))
			f, err := elffile.New(r, int64(len(b)))
			var table *gopclntab.Table
			if err == nil {
				table, err = gopclntab.Find(f)
			}
			if failed = r.Left.Load() < 0; failed != errors.Is(err, syscall.EIO) || !failed && table == nil {
				t.Errorf("%s: read %d: a table: %t, error %v", name, n, table != nil, err)
			}
			if !failed {
				for _, err := range table.Functions() {
					if err != nil {
						t.Fatal(err)
					}
					found++
				}
			}
		}
		if found < 1000 {
			t.Errorf("%s: %d functions", name, found)
		}
	}
}

// TestOther reads files that are not Go programs, or not linked.
func TestOther(t *testing.T) {
	b := testfile.Read(t, "../../testdata/bin/amd64/plt")
	named := elftest.Patch(t.Fatalf, bytes.Clone(b))
	named.AddSection(".go.buildinfo", 0, nil)
	for name, b := range map[string][]byte{"C": b, "without a table": named.B, "object": elftest.NewObject().Bytes()} {
		if table, err := gopclntab.Find(elftest.Parse(t, b)); table != nil || err != nil {
			t.Errorf("%s: a table, or error %v", name, err)
		}
	}
}

// FuzzTable overwrites a word of a program and reads its table.
func FuzzTable(f *testing.F) {
	b := read(f, "CGO_ENABLED=0", "-ldflags=-s -w")
	file := elftest.Parse(f, b)
	table, module := file.Section(".gopclntab").Off, file.Section(".go.module").Off
	for i := range uint64(9) {
		f.Add(table+8*i, uint64(1)<<33)
		f.Add(module+8*(13+i), uint64(1)<<40)
	}
	f.Fuzz(func(t *testing.T, off, word uint64) {
		if off > uint64(len(b))-8 {
			return
		}
		bad := bytes.Clone(b)
		binary.LittleEndian.PutUint64(bad[off:], word)
		x, err := elffile.New(bytes.NewReader(bad), int64(len(bad)))
		if err != nil {
			return
		}
		table, err := gopclntab.Find(x)
		if err != nil || table == nil {
			return
		}
		for fn, err := range table.Functions() {
			for i := 1; err == nil && i < len(fn.Rows); i++ {
				if fn.Rows[i].Off <= fn.Rows[i-1].Off || uint64(fn.Rows[i].Off) >= fn.End-fn.Begin {
					t.Fatalf("rows out of order: %+v", fn)
				}
			}
		}
	})
}
