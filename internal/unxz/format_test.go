package unxz

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ulikunitz/xz/lzma"
)

// streamed decompresses all streams of b with dictionaries of up to most bytes.
func streamed(b []byte, most int64) ([]byte, error) {
	r, err := NewStream(bytes.NewReader(b), most)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// summed sets the CRC32 at a place of b to that of b[from:to].
func summed(b []byte, at, from, to int) {
	binary.LittleEndian.PutUint32(b[at:], crc32.ChecksumIEEE(b[from:to]))
}

// TestFormat changes what xz has written, one field at a time, and corrects the CRC32 of what the field is in, so that it is the field that
// is refused. Sections are those of "The .xz File Format".
func TestFormat(t *testing.T) {
	text := []byte("seven b")
	good := packed(t, text, "--check=crc32", "--lzma2=dict=64KiB")
	// The places in it: the stream's header has 12 bytes, that of the block 12 (3.1), its only chunk 3+7 and 1 for the end (3.3: 1 of padding),
	// the check 4, the index 1+1+1+1 and its CRC32 (4), the footer 12 (2.1.2).
	const (
		block, data, index = 12, 24, 40
	)
	foot := len(good) - 12
	if good[block] != 2 || good[index] != 0 || foot != index+8 {
		t.Fatalf("xz has written %x, which is not as it was expected", good)
	}
	header := func(b []byte) { summed(b, 8, 6, 8) }
	blockHeader := func(b []byte) { summed(b, data-4, block, data-4) }
	indexed := func(b []byte) { summed(b, foot-4, index, foot-4) }
	footer := func(b []byte) { summed(b, foot, foot+4, foot+10) }
	for _, tt := range []struct {
		name   string
		at     int
		value  byte
		mend   func([]byte)
		want   string
		unread bool // by NewReader
	}{
		{"2.1.1.2: flags that are reserved", 6, 1, header, "flags 0x01 of an xz file", false},
		{"2.1.1.2: an unknown check", 7, 2, header, "checksum type 2 of an xz file; 0, 1, 4 or 10 was expected", false},
		{"2.1.1.3: the CRC32", 8, good[8] + 1, nil, "its header was expected", false},
		{"3.1.2: reserved flags", block + 1, 4, blockHeader, "other filters", false},
		{"3.1.2: two filters", block + 1, 1, blockHeader, "other filters", false},
		{"3.1.5: an unknown filter", block + 2, 0x22, blockHeader, "other filters", false},
		{"5.3.1: no properties", block + 3, 0, blockHeader, "other filters", false},
		{"5.3.1: dictionary sizes that are reserved", block + 4, 41, blockHeader, "dictionary", false},
		{"3.1.6: padding of the header", block + 7, 9, blockHeader, "the header of an xz block is padded with 000009; zeros were expected", false},
		{"3.1.7: the CRC32", data - 1, good[data-1] + 1, nil, "the header of an xz block has another checksum", false},
		{"3.3: padding", data + 11, 7, nil, "an xz block is padded with 07; zeros were expected", false},
		{"3.4: the check", data + 12, good[data+12] + 1, nil, "an xz block has another checksum", false},
		{"4.2: the number of records", index + 1, 2, nil, "the index of an xz file is of 2 blocks; 1 were there", true},
		{"4.3: a block's size in the file", index + 2, good[index+2] + 1, indexed, "the index of an xz file has other sizes", true},
		{"4.3: what a block unpacks to", index + 3, good[index+3] + 1, indexed, "the index of an xz file has other sizes", true},
		{"4.5: the CRC32", foot - 1, good[foot-1] + 1, nil, "the index of an xz file has another checksum", true},
		{"2.1.2.1: the CRC32", foot, good[foot] + 1, nil, "the end of an xz stream is not", true},
		{"2.1.2.2: the index's size", foot + 4, 2, footer, "says that its index has 12 bytes; 8 were expected", true},
		{"2.1.2.3: other flags", foot + 9, 4, footer, "the end of an xz stream has the flags 0004; 0001 were expected", true},
		{"2.1.2.3: reserved flags", foot + 8, 1, footer, "the end of an xz stream has the flags 0101; 0001 were expected", true},
		{"2.1.2.4: the magic number", foot + 11, 'y', nil, "the end of an xz stream is not", true},
	} {
		bad := bytes.Clone(good)
		bad[tt.at] = tt.value
		if tt.mend != nil {
			tt.mend(bad)
		}
		if _, err := streamed(bad, 1<<20); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; %q was expected", tt.name, err, tt.want)
		}
		got, err := unpacked(bad, 1<<20)
		if tt.unread && (err != nil || !bytes.Equal(got, text)) {
			t.Errorf("%s: %q, %v; it was not to be read", tt.name, got, err)
		}
		if !tt.unread && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: one stream: %v; %q was expected", tt.name, err, tt.want)
		}
	}

	// 4.4: an index of no blocks has two bytes of padding.
	bad := packed(t, nil)
	bad[headerSize+3] = 5
	if _, err := streamed(bad, 1<<20); err == nil || !strings.Contains(err.Error(), "the index of an xz file is padded with 0x05; 0 was expected") {
		t.Errorf("4.4: %v", err)
	}
	// 3.1.3: a compressed size that goes on until the header ends.
	bad = bytes.Clone(good)
	copy(bad[block+1:], []byte{isPacked, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	blockHeader(bad)
	if _, err := streamed(bad, 1<<20); err == nil || !strings.Contains(err.Error(), "the header of an xz block ends early") {
		t.Errorf("3.1.3: %v", err)
	}
}

// TestCutOff has two streams, with padding, that end early: the whole first one and its padding alone are a file by section 2.
func TestCutOff(t *testing.T) {
	text := []byte("some text, some more text, and some text again")
	one := packed(t, text, "--block-size=20", "-T1")
	b := slices.Concat(one, make([]byte, 4), one)
	for n := range len(b) {
		_, err := streamed(b[:n], 64<<20)
		if whole := n == len(one) || n == len(one)+4; whole != (err == nil) {
			t.Errorf("%d bytes of %d: %v", n, len(b), err)
		}
	}
}

// TestFailing has a reader that fails anywhere, which is not an end of the file, nor another format.
func TestFailing(t *testing.T) {
	text := []byte("some text, some more text, and some text again")
	one := packed(t, text, "--block-size=20", "-T1")
	b := slices.Concat(one, make([]byte, 4), one)
	failing := errors.New("no disk")
	for n := range len(b) + 1 {
		r, err := NewStream(io.MultiReader(bytes.NewReader(b[:n]), iotest.ErrReader(failing)), 64<<20)
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if !errors.Is(err, failing) {
			t.Errorf("after %d bytes of %d: %v; %v was expected", n, len(b), err, failing)
		}
	}
}

// TestManyDictionaries has blocks of a byte whose dictionaries are as large as one may be.
func TestManyDictionaries(t *testing.T) {
	const most = 1 << 20
	got, err := streamed(stream(bytes.Repeat([]byte{lzma.EncodeDictCap(most)}, anySpare+1), nil), most)
	if len(got) != anySpare || err == nil || !strings.Contains(err.Error(), "there were too many of the kind before, for the 4 bytes in those") {
		t.Errorf("%d bytes, %v; %d were expected, and no more", len(got), err, anySpare)
	}
}

// TestNothing reads no bytes, which is no error by io.Reader.
func TestNothing(t *testing.T) {
	r, err := NewReader(packed(t, []byte("x")), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(nil); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got, err := io.ReadAll(r); string(got) != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestForm tells how xz was called by what it has written.
func TestForm(t *testing.T) {
	for _, tt := range []struct {
		text, check, lzma2 string
		number             byte // section 2.1.1.2
		dict               int64
	}{
		{"text", "none", "dict=4KiB", 0, 4 << 10},
		{"text", "crc32", "dict=96KiB", 1, 96 << 10},
		{"text", "crc64", "dict=8MiB", 4, 8 << 20},
		{"text", "sha256", "dict=192MiB", 10, 192 << 20},
		{"", "sha256", "dict=8MiB", 10, 0},
	} {
		b := packed(t, []byte(tt.text), "--check="+tt.check, "--lzma2="+tt.lzma2)
		check, dict, err := Form(b[:min(len(b), MaxHead)])
		if check != tt.number || dict != tt.dict || err != nil {
			t.Errorf("%s %s: check %d, dictionary of %d bytes, %v; %d, %d were expected", tt.check, tt.lzma2, check, dict, err, tt.number, tt.dict)
		}
		if tt.text == "" {
			continue
		}
		for n := range headerSize + 8 { // all but the CRC32 of the block's header
			if _, _, err := Form(b[:n]); err != io.ErrUnexpectedEOF {
				t.Errorf("of %d bytes: %v", n, err)
			}
		}
	}
	if _, _, err := Form(packed(t, []byte("text"), "--delta", "--lzma2")); err == nil || !strings.Contains(err.Error(), "other filters") {
		t.Errorf("another filter: %v", err)
	}
}
