package unxz

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz/lzma"

	"cfi2sframe/internal/testkit/peer"
)

// text is what the tests compress: the source of a test, twice, with the test program itself between.
func text(t testing.TB) []byte {
	t.Helper()
	source, err := os.ReadFile("unxz_test.go")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Join([][]byte{source, program[:min(len(program), 500_000)], source}, nil)
}

// packed returns what the program xz makes of b.
func packed(t testing.TB, b []byte, args ...string) []byte {
	t.Helper()
	cmd := peer.Tool(t, "", "xz")(append([]string{"-c"}, args...)...)
	cmd.Stdin = bytes.NewReader(b)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, string(err.(*exec.ExitError).Stderr))
	}
	return out
}

// unpacked decompresses b with dictionaries of up to most bytes.
func unpacked(b []byte, most int64) ([]byte, error) {
	r, err := NewReader(b, most)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// TestXZ reads what xz has written.
func TestXZ(t *testing.T) {
	want := text(t)
	for _, args := range []string{
		"-0", "-6", "-9e", "--check=none", "--check=crc32", "--check=crc64", "--check=sha256", "--block-size=100001 -T1", "--block-size=100001 -T2 -9",
		"--lzma2=preset=6,lc=0,lp=4,pb=0", "--lzma2=dict=4KiB",
	} {
		got, err := unpacked(packed(t, want, strings.Fields(args)...), 128<<20)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("xz %s: %d bytes, %v; the %d bytes that went in were expected", args, len(got), err, len(want))
		}
	}
	if got, err := unpacked(packed(t, nil), 0); err != nil || len(got) != 0 {
		t.Errorf("of nothing: %q, %v", got, err)
	}
}

// TestDamaged changes each byte of a file but the index, which is not read.
func TestDamaged(t *testing.T) {
	want := []byte("some text, some more text, and some text again")
	for _, check := range []string{"crc32", "crc64", "sha256"} {
		good := packed(t, want, "--check="+check)
		index := int(binary.LittleEndian.Uint32(good[len(good)-8:])+1) * 4 // of its size, which the footer has
		end := len(good) - headerSize - index
		for i := range end + 1 { // the last one says that no block follows
			bad := bytes.Clone(good)
			bad[i] ^= 0x10
			if got, err := unpacked(bad, 128<<20); err == nil && !bytes.Equal(got, want) {
				t.Errorf("%s: byte %d of %d changed, and %q read", check, i, end, got)
			}
			if got, err := unpacked(good[:i], 128<<20); err == nil {
				t.Errorf("%s: %d bytes of %d, and %q read", check, i, end, got)
			}
		}
	}
}

// TestFilters expects other filters to be refused.
func TestFilters(t *testing.T) {
	for args, want := range map[string]string{"--x86 --lzma2": "other filters", "--delta --lzma2": "other filters"} {
		if _, err := unpacked(packed(t, text(t), strings.Fields(args)...), 128<<20); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("xz %s: %v; %q was expected", args, err, want)
		}
	}
}

// stream is an xz file of blocks with the given dictionaries, each of which holds one byte and the chunks.
func stream(dicts []byte, chunks []byte) []byte {
	b := []byte(magic + "\x00\x00")
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[6:]))
	for _, dict := range dicts {
		header := []byte{2, 0, lzma2, 1, dict, 0, 0, 0}
		b = append(b, header...)
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(header))
		block := append([]byte{1, 0, 0, 'x'}, chunks...)
		block = append(block, 0)
		b = append(b, append(block, make([]byte, -len(block)&3)...)...)
	}
	return append(b, 0)
}

// TestDictionaries has blocks that ask for much memory, and looks how much is allocated.
func TestDictionaries(t *testing.T) {
	const most = 64 << 20
	size := func(d int64) byte { return lzma.EncodeDictCap(d) }
	for _, tt := range []struct {
		name          string
		dicts         []byte
		want          string // of the error
		blocks, bytes int
	}{
		{"as much as there is", []byte{size(most)}, "", 1, most},
		{"more", []byte{size(most) + 1}, "dictionary of 100663296 bytes; 67108864 were expected at most", 0, 0},
		{"all that the format can say", []byte{40}, "dictionary of 4294967295 bytes", 0, 0},
		{"more than it can say", []byte{41}, "", 0, 0},
		{"more in the second block", []byte{size(1 << 20), 40}, "dictionary of 4294967295 bytes; 66060288 were", 1, 1 << 20},
		{"more than it together", bytes.Repeat([]byte{size(1 << 20)}, 65), "dictionary of 1048576 bytes; 0 were", 64, most},
		{"no more than all", bytes.Repeat([]byte{size(1 << 20)}, 64), "", 64, most},
		{"little, very often", bytes.Repeat([]byte{0}, 400000), "dictionary of 4096 bytes; 0 were", most / 4096, most},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := stream(tt.dicts, nil)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := unpacked(b, most)
			runtime.ReadMemStats(&after)
			if text := fmt.Sprint(err); !strings.Contains(text, tt.want) || (err != nil) != (len(got) < len(tt.dicts)) || len(got) != tt.blocks {
				t.Errorf("%d bytes, error %v; %d with %q were expected", len(got), err, tt.blocks, tt.want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took < uint64(tt.bytes) || took > uint64(tt.bytes)*3+1<<20 {
				t.Errorf("%d bytes were allocated; %d and little more were expected", took, tt.bytes)
			}
		})
	}
}

// TestChunks has a block of nothing but chunks with new properties, which are much work for few bytes.
func TestChunks(t *testing.T) {
	one := []byte{0xc0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0} // a zero byte, with lc=4
	b := stream([]byte{0}, bytes.Repeat(one, 900_000))
	if got, err := unpacked(b, 64<<20); err == nil || !strings.Contains(err.Error(), "chunks") || len(got) > maxReads {
		t.Errorf("%d bytes, error %v; a bound on chunks was expected", len(got), err)
	}
	// What xz writes is far from it.
	r, err := NewReader(packed(t, bytes.Repeat(text(t), 4), "--block-size=100000", "-0"), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil || r.(*reader).in.reads > maxReads/32 {
		t.Errorf("%d reads, error %v", r.(*reader).in.reads, err)
	}
}

// TestStream has several streams in a file, blocks whose dictionaries take more than there may be of one if they are added,
// and ends that are wrong.
func TestStream(t *testing.T) {
	all := func(b []byte) (string, error) {
		r, err := NewStream(bytes.NewReader(b), 1<<20)
		if err != nil {
			return "", err
		}
		got, err := io.ReadAll(r)
		return string(got), err
	}
	one := packed(t, text(t), "--lzma2=dict=1MiB", "--block-size=100000")
	two := packed(t, []byte("two"), "--check=none", "--lzma2=dict=64KiB")
	want := string(text(t))
	for _, tt := range []struct {
		name string
		b    []byte
		want string
		err  string
	}{
		{"blocks", one, want, ""},
		{"two", slices.Concat(one, two), want + "two", ""},
		{"zeros behind", slices.Concat(one, make([]byte, 8)), want, ""},
		{"zeros between", slices.Concat(one, make([]byte, 4), two), want + "two", ""},
		{"odd zeros behind", slices.Concat(one, make([]byte, 3)), want, "unexpected EOF"},
		{"odd zeros between", slices.Concat(one, make([]byte, 3), two), want, "3 zeros between two xz streams"},
		{"text behind", slices.Concat(one, []byte("text, which is no xz file")), want, "not an xz file"},
		{"end cut off", one[:len(one)-1], want, "unexpected EOF"},
		{"index cut off", one[:len(one)-14], want, "unexpected EOF"},
		{"other end", slices.Concat(one[:len(one)-1], []byte("z")), want, "the end of an xz stream"},
		{"index of another checksum", slices.Concat(two[:len(two)-16], []byte{0, 0, 0, 0}, two[len(two)-12:]), "two", "the index of an xz file has another checksum"},
		{"index of more blocks", slices.Concat(two[:len(two)-19], []byte{9}, two[len(two)-18:]), "two", "the index of an xz file is of 9 blocks; 1 were there"},
	} {
		got, err := all(tt.b)
		if got != tt.want || (tt.err == "") != (err == nil) || !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%s: %d bytes, %v; %d, %q were expected", tt.name, len(got), err, len(tt.want), tt.err)
		}
	}
	if _, err := all(stream([]byte{lzma.EncodeDictCap(2 << 20)}, nil)); err == nil || !strings.Contains(err.Error(), "dictionary of 2097152 bytes; 1048576 were expected at most") {
		t.Errorf("a larger dictionary: %v", err)
	}
	chunks := bytes.Repeat([]byte{0xc0, 0, 0, 0, 5, 4, 0, 0, 0, 0, 0, 0}, 900_000)
	if got, err := all(stream([]byte{0}, chunks)); err == nil || !strings.Contains(err.Error(), "chunks") || len(got) > 2*maxReads {
		t.Errorf("%d bytes, error %v; a bound on chunks was expected", len(got), err)
	}
}
