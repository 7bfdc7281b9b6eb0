package compressed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/ulikunitz/xz"
)

// An xzForm is how an xz stream was made.
type xzForm struct {
	check      byte // the type of its checksums, by the number that the format has for it
	dictionary int  // of the first block, in bytes, or 0 without blocks
}

// xzChecks are the checksums by their numbers, as xz calls them.
var xzChecks = map[byte]string{xz.None: "none", xz.CRC32: "crc32", xz.CRC64: "crc64", xz.SHA256: "sha256"}

// xzThreads is the least number of threads: the output of one differs from that of several, which does not depend on their number.
const xzThreads = 2

// The threads of xz may take anyThreads bytes of memory, and perPackage more for each byte of the package. Each takes perThread
// times as much as its dictionary (130 MB for the usual one).
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

// xz is stuck if it neither reads nor writes for this time, and perHeld more for each byte that it may hold. xz -6 takes 0.3 µs for
// a byte, emulated 4 µs (2026-11).
var (
	patience = 20 * time.Second
	perHeld  = 8 * time.Microsecond
)

// blockSize is the size of the blocks that the threads of xz fill, in dictionaries (xz(1), --block-size).
const blockSize = 3

// xzWriter returns what compresses to a file: the program xz, whose results are a sixth smaller, or without it the library.
func (f *Form) xzWriter(ctx context.Context, cancel context.CancelCauseFunc, to *os.File, workers int) (io.WriteCloser, error) {
	dictionary := f.dictionary(cmp.Or(f.xz.dictionary, anyDictionary))
	path, err := exec.LookPath("xz")
	if err != nil {
		config := xz.WriterConfig{DictCap: dictionary, CheckSum: f.xz.check, NoCheckSum: f.xz.check == xz.None}
		return config.NewWriter(output{file: to})
	}
	threads := max(min(workers, f.xzWorkers()), xzThreads)
	w := &xzProgram{to: to, most: int64(blockSize * threads * dictionary)}
	w.cmd = exec.CommandContext(ctx, path, "--compress", "--stdout", "--format=xz", "--check="+xzChecks[f.xz.check],
		fmt.Sprintf("--lzma2=preset=6,dict=%d", dictionary), fmt.Sprintf("--threads=%d", threads))
	w.cmd.Env = append(os.Environ(), "XZ_DEFAULTS=", "XZ_OPT=")
	w.cmd.WaitDelay = time.Second // programs that it has started may keep its pipes
	w.cmd.Stdout, w.cmd.Stderr = to, &w.message
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", path, cmp.Or(errors.Unwrap(err), err))
	}
	context.AfterFunc(ctx, func() { w.in.Close() }) // which ends a Write if other programs keep the other end
	go w.watch(ctx, cancel, patience, perHeld)
	return w, nil
}

// An xzProgram is xz while it compresses.
type xzProgram struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	to      *os.File
	message bytes.Buffer
	most    int64        // bytes that xz holds at most
	read    atomic.Int64 // bytes that it has read
	waiting atomic.Bool  // for xz
}

// watch cancels when xz is stuck. It counts ticks, because the time in which this process is stopped does not count.
func (w *xzProgram) watch(ctx context.Context, cancel context.CancelCauseFunc, patience, perHeld time.Duration) {
	const tick = time.Second / 4
	var before int64
	var waited time.Duration
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(tick):
		}
		now := w.read.Load()
		if info, err := w.to.Stat(); err == nil {
			now += info.Size()
		}
		if now != before || !w.waiting.Load() {
			before, waited = now, 0
			continue
		}
		if waited += tick; waited > patience+time.Duration(min(w.read.Load(), w.most))*perHeld {
			cancel(fmt.Errorf("%s neither reads nor writes for %v; replace it, or remove it from PATH", w.cmd.Path, waited.Round(time.Second)))
		}
	}
}

func (w *xzProgram) Write(p []byte) (n int, err error) {
	w.waiting.Store(true)
	defer w.waiting.Store(false)
	for n < len(p) && err == nil {
		var part int
		part, err = w.in.Write(p[n:min(len(p), n+bufferSize)])
		n += part
		w.read.Add(int64(part))
	}
	return n, err
}

// Close waits for the end of xz.
func (w *xzProgram) Close() error {
	w.waiting.Store(true)
	w.in.Close()
	err := w.cmd.Wait()
	if err == nil {
		return nil
	}
	if message := bytes.TrimSpace(w.message.Bytes()); len(message) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.ReplaceAll(message, []byte("\n"), []byte("; ")))
	}
	return fmt.Errorf("%s: %w", w.cmd.Path, err)
}
