package compressed

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	unxz "github.com/mikelolasagasti/xz"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"cfi2sframe/elffile"
)

// Two libraries: mikelolasagasti/xz reads only, and ulikunitz/xz reads each block with the dictionary that it asks for,
// up to 4 GiB.

// NewXZ returns a reader that decompresses all streams of an xz file.
func NewXZ(in io.Reader) (*unxz.Reader, error) { return unxz.NewReader(in, maxDictionary) }

// An xzForm is how an xz stream was made.
type xzForm struct {
	check      unxz.CheckID
	dictionary int // of the first block, in bytes, or 0 without blocks
}

// The sizes and flags are from "The .xz File Format", version 1.2.1.
const (
	xzHeader   = 12 // bytes of the header of a stream
	xzMaxBlock = 1024
	lzma2      = 0x21 // the number of the filter
)

// costXZ is the cost in the budget of a byte of an xz stream. Hostile streams take up to 640 ns for one (2026-11).
const costXZ = 100

// xzReader is reader for xz.
func (f *Form) xzReader(in *bufio.Reader, head []byte, budget *elffile.Budget) (io.ReadCloser, error) {
	z, err := NewXZ(&charged{in, budget})
	if err != nil {
		return nil, err
	}
	f.xz.check = z.CheckType
	f.xz.dictionary, err = xzDictionary(head[xzHeader:])
	return io.NopCloser(z), err
}

// A charged reader spends costXZ from a budget for each byte.
type charged struct {
	io.Reader
	budget *elffile.Budget
}

func (r *charged) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	return n, cmp.Or(r.budget.Spend(costXZ, uint64(n)), err)
}

// xzDictionary returns the size of the dictionary of a block, or 0 if there is no block.
func xzDictionary(block []byte) (int, error) {
	if len(block) == 0 || len(block) < 4*int(block[0]) {
		return 0, io.ErrUnexpectedEOF
	}
	end := 4 * int(block[0]) // of the block's header without its checksum
	if end == 0 {
		return 0, nil
	}
	fields := block[2:end]
	for flags := block[1] >> 6; flags > 0; flags >>= 1 { // the sizes of the block
		if flags&1 != 0 {
			_, n := binary.Uvarint(fields)
			fields = fields[max(n, 0):]
		}
	}
	if block[1]&3 != 0 || len(fields) < 3 || fields[0] != lzma2 {
		return 0, errors.New("a block has filters beside LZMA2, which are not supported")
	}
	dictionary, err := lzma.DecodeDictCap(fields[2])
	return int(dictionary), err
}

// storeXZ is Store for xz: by the program xz, whose results are a sixth smaller, or without it by the library.
func (f *Form) storeXZ(ctx context.Context, to *os.File, workers int, r io.Reader) error {
	sum, again := sha256.New(), sha256.New()
	r = io.TeeReader(r, sum)
	dictionary := f.dictionary(cmp.Or(f.xz.dictionary, anyDictionary))
	path, err := exec.LookPath("xz")
	if err == nil {
		err = f.runXZ(ctx, path, to, workers, dictionary, r)
	} else {
		var z *xz.Writer
		check := f.xz.check
		config := xz.WriterConfig{DictCap: dictionary, CheckSum: byte(check), NoCheckSum: check == unxz.CheckNone}
		if z, err = config.NewWriter(Output{to}); err == nil {
			_, err = io.Copy(z, r)
			err = cmp.Or(err, z.Close())
		}
	}
	if err != nil {
		return err
	}
	z, err := Open(ctx, nil, io.NewSectionReader(to, 0, 1<<62))
	if err == nil {
		_, err = io.Copy(again, z)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errEncoder, err)
	}
	if z.Form.Kind != XZ || !bytes.Equal(again.Sum(nil), sum.Sum(nil)) {
		return errEncoder
	}
	return nil
}

// xzChecks are the checksums as xz calls them.
var xzChecks = map[unxz.CheckID]string{
	unxz.CheckNone: "none", unxz.CheckCRC32: "crc32", unxz.CheckCRC64: "crc64", unxz.CheckSHA256: "sha256",
}

// xzThreads is the least number of threads: the output of one differs from that of several, which does not depend on
// their number.
const xzThreads = 2

// The threads of xz may take anyThreads bytes of memory, and perPackage more for each byte of the package. Each takes
// perThread times as much as its dictionary (130 MB for the usual one).
const (
	anyThreads   = 256 << 20
	perPackage   = 8
	perThread    = 17
	maxWorkers   = 4
	mostThreaded = 1 << 40
)

// xzWorkers returns how many threads there are at most.
func (f *Form) xzWorkers() int {
	each := perThread * int64(max(f.dictionary(f.xz.dictionary), 1<<20))
	return int(min((anyThreads+perPackage*min(f.Size, mostThreaded))/each, maxWorkers))
}

// runXZ has the program xz compress r.
func (f *Form) runXZ(ctx context.Context, path string, to *os.File, workers, dictionary int, r io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	threads := max(min(workers, f.xzWorkers()), xzThreads)
	cmd := exec.CommandContext(ctx, path, "--compress", "--stdout", "--format=xz", "--check="+xzChecks[f.xz.check],
		fmt.Sprintf("--lzma2=preset=6,dict=%d", dictionary), fmt.Sprintf("--threads=%d", threads))
	cmd.Env = append(os.Environ(), "XZ_DEFAULTS=", "XZ_OPT=")
	cmd.WaitDelay = time.Second // programs that it has started may keep its pipes
	in, message := &counted{Reader: r}, &bytes.Buffer{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, to, message
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot run %s: %w", path, cmp.Or(errors.Unwrap(err), err))
	}
	go watch(ctx, cancel, in, to, patience, perHeld, int64(blockSize*threads*dictionary), path)
	err := cmd.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var failed *exec.ExitError
	if !errors.As(err, &failed) {
		return err
	}
	if text := bytes.TrimSpace(message.Bytes()); len(text) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.ReplaceAll(text, []byte("\n"), []byte("; ")))
	}
	return fmt.Errorf("%s: %w", path, err)
}

// A counted reader counts the bytes that are read.
type counted struct {
	io.Reader
	n atomic.Int64
}

func (r *counted) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n.Add(int64(n))
	return n, err
}

// xz is stuck if it neither reads nor writes for this time, and perHeld more for each byte that it may hold. xz -6
// takes 0.3 µs for a byte, emulated 4 µs (2026-11).
var (
	patience = 20 * time.Second
	perHeld  = 8 * time.Microsecond
)

// blockSize is the size of the blocks that the threads of xz fill, in dictionaries (xz(1), --block-size).
const blockSize = 3

// watch cancels when xz is stuck, which holds at most the given bytes. It counts ticks, because the time in which this
// process is stopped does not count.
func watch(
	ctx context.Context, cancel context.CancelCauseFunc, in *counted, out *os.File,
	patience, perHeld time.Duration, held int64, path string,
) {
	const tick = time.Second / 4
	var before int64
	var waited time.Duration
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(tick):
		}
		read := in.n.Load()
		now := read
		if info, err := out.Stat(); err == nil {
			now += info.Size()
		}
		if waited += tick; now != before {
			before, waited = now, 0
		}
		if waited > patience+time.Duration(min(read, held))*perHeld {
			waited = waited.Round(time.Second)
			cancel(fmt.Errorf("%s neither reads nor writes for %v; replace it, or remove it from PATH", path, waited))
		}
	}
}
