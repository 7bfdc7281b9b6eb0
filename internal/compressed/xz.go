package compressed

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/ulikunitz/xz"

	"cfi2sframe/internal/unxz"
)

// An xzForm is how an xz stream was made.
type xzForm struct {
	check      byte // the type of its checksums, by the number that the format has for it
	dictionary int  // of the first block, in bytes
}

// xzChecks are the checksums by their numbers, as xz calls them.
var xzChecks = map[byte]string{xz.None: "none", xz.CRC32: "crc32", xz.CRC64: "crc64", xz.SHA256: "sha256"}

func newXZReader(in *bufio.Reader, form *xzForm) (io.ReadCloser, error) {
	head, err := in.Peek(unxz.MaxHead)
	if err != nil && err != io.EOF {
		return nil, err
	}
	check, dictionary, err := unxz.Form(head)
	if err != nil {
		return nil, err
	}
	*form = xzForm{check, int(min(dictionary, maxDictionary))}
	r, err := unxz.NewStream(in, maxDictionary)
	return io.NopCloser(r), err
}

// xzProgram is the program that compresses better than the library, if it is there.
const xzProgram = "xz"

// xzThreads is how many threads compress at least: what comes out of one differs from what comes out of several, which write as
// much into each block, however many they are.
const xzThreads = 2

// What the threads of xz may take of memory, in bytes: so much in any case, and more for each byte of the package. Each takes 17 times
// as much as its dictionary (130 MB for the usual one).
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

// How long xz may neither read nor write while it is waited for: so long, and some more for each byte that it may hold. xz -6 takes
// 0.3 µs for a byte, emulated 4 µs (2026-11).
var (
	patience = 20 * time.Second
	perHeld  = 8 * time.Microsecond
)

// blockSize is how many times as large as the dictionary the blocks are that the threads of xz fill (xz(1), --block-size).
const blockSize = 3

// An xzWriter compresses a stream, and has it decompressed again.
type xzWriter struct {
	caller  context.Context
	ctx     context.Context // made of it; its cause says that xz is stuck, if it is
	read    atomic.Int64    // bytes that xz has read
	written atomic.Int64    // bytes that it has written
	waiting atomic.Bool     // for xz
	packed  io.WriteCloser  // what compresses
	wait    func() error    // for what compresses to end
	stop    func()          // ends the wait for it
	sum     hash.Hash       // of what is to be compressed
	copy    *io.PipeWriter  // of what comes out, for whom decompresses
	checked chan checked
}

// A checked stream has been decompressed.
type checked struct {
	sum [sha256.Size]byte
	err error
}

// errEncoder is the error of a stream that is not what was to be compressed.
var errEncoder = errors.New("nothing was written, because what was compressed is read as something else")

// newXZWriter compresses for to: by xz, or by the library if there is no xz.
func newXZWriter(ctx context.Context, to io.Writer, f xzForm, workers int) (io.WriteCloser, error) {
	if f.dictionary == 0 { // a stream without blocks
		f.dictionary = 8 << 20
	}
	out, in := io.Pipe()
	w := &xzWriter{caller: ctx, ctx: ctx, sum: sha256.New(), copy: in, checked: make(chan checked, 1)}
	go func() {
		sum, err := sumOf(out)
		w.checked <- checked{sum, err}
		out.CloseWithError(err) // which ends what compresses
	}()
	var err error
	if path, none := exec.LookPath(xzProgram); none == nil {
		err = w.start(ctx, path, to, f, workers)
	} else {
		config := xz.WriterConfig{DictCap: f.dictionary, CheckSum: f.check, NoCheckSum: f.check == xz.None}
		w.packed, err = config.NewWriter(io.MultiWriter(to, in))
		w.wait, w.stop = func() error { return nil }, func() {}
	}
	if err != nil {
		in.CloseWithError(err)
		return nil, err
	}
	return w, nil
}

// A keeper keeps the error of a writer: all that xz sees of it is a broken pipe.
type keeper struct {
	io.Writer
	n   *atomic.Int64
	err error
}

func (k *keeper) Write(p []byte) (int, error) {
	n, err := k.Writer.Write(p)
	k.n.Add(int64(n))
	if err != nil {
		k.err = err
	}
	return n, err
}

// sumOf sums up what r decompresses to. It reads r to its end.
func sumOf(r io.Reader) (sum [sha256.Size]byte, err error) {
	z, err := unxz.NewStream(r, maxDictionary)
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	_, err = io.Copy(h, z)
	return [sha256.Size]byte(h.Sum(nil)), err
}

// start has xz compress.
func (w *xzWriter) start(ctx context.Context, path string, to io.Writer, f xzForm, workers int) error {
	threads := max(workers, xzThreads)
	ctx, cancel := context.WithCancelCause(ctx)
	w.ctx, w.stop = ctx, func() { cancel(nil) }
	cmd := exec.CommandContext(ctx, path, "--compress", "--stdout", "--format=xz", "--check="+xzChecks[f.check],
		fmt.Sprintf("--lzma2=preset=6,dict=%d", f.dictionary), fmt.Sprintf("--threads=%d", threads))
	cmd.Env = append(os.Environ(), "XZ_DEFAULTS=", "XZ_OPT=")
	cmd.WaitDelay = time.Second // for what it has started, which may keep its pipes
	kept := &keeper{Writer: to, n: &w.written}
	cmd.Stdout = io.MultiWriter(kept, w.copy)
	var message bytes.Buffer
	cmd.Stderr = &message
	in, err := cmd.StdinPipe()
	if err != nil {
		w.stop()
		return err
	}
	w.packed = in
	stuck := func(after time.Duration) {
		cancel(fmt.Errorf("%s neither reads nor writes for %v; replace it, or remove it from PATH", path, after.Round(time.Second)))
		in.Close() // what it has started may have it open
	}
	w.wait = func() error {
		w.waiting.Store(true)
		err := cmd.Wait()
		if kept.err != nil {
			return kept.err
		}
		if said := bytes.TrimSpace(message.Bytes()); err != nil && len(said) > 0 {
			err = fmt.Errorf("%w: %s", err, bytes.ReplaceAll(said, []byte("\n"), []byte("; ")))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return err
	}
	if err := cmd.Start(); err != nil {
		w.stop()
		return fmt.Errorf("cannot run %s: %w", path, cmp.Or(errors.Unwrap(err), err))
	}
	go w.watch(ctx, patience, perHeld, int64(blockSize*threads*f.dictionary), stuck)
	return nil
}

// watch calls stuck when xz makes no progress for a time: patience, and perHeld for each byte that it may hold, up to
// most. It counts ticks, as the time in which this process is stopped does not count.
func (w *xzWriter) watch(ctx context.Context, patience, perHeld time.Duration, most int64, stuck func(time.Duration)) {
	const tick = time.Second / 4
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var before int64
	var waited time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		read := w.read.Load()
		now := read + w.written.Load()
		if now != before || !w.waiting.Load() {
			before, waited = now, 0
			continue
		}
		if waited += tick; waited > patience+time.Duration(min(read, most))*perHeld {
			stuck(waited)
			return
		}
	}
}

func (w *xzWriter) Write(p []byte) (n int, err error) {
	w.waiting.Store(true)
	defer w.waiting.Store(false)
	for n < len(p) && err == nil {
		var part int
		part, err = w.packed.Write(p[n:min(len(p), n+bufferSize)])
		n += part
		w.read.Add(int64(part))
	}
	w.sum.Write(p[:n])
	return n, cmp.Or(w.ended(), err)
}

// ended returns why the work ended early, if it did.
func (w *xzWriter) ended() error {
	if w.ctx.Err() == nil {
		return nil
	}
	return cmp.Or(w.caller.Err(), context.Cause(w.ctx))
}

// Close ends the stream. The error is errEncoder if it is not what was written.
func (w *xzWriter) Close() error {
	defer w.stop()
	err := w.packed.Close()
	if ended := w.wait(); ended != nil {
		err = ended // which is why xz did not read on
	}
	var c checked
	select {
	case c = <-w.checked: // before the end, which ended the others
	default:
		w.copy.CloseWithError(err)
		if c = <-w.checked; err != nil {
			c.err = nil
		}
	}
	switch {
	case w.ended() != nil:
		return w.ended()
	case c.err != nil:
		return fmt.Errorf("%w: %w", errEncoder, c.err)
	case err != nil:
		return err
	case c.sum != [sha256.Size]byte(w.sum.Sum(nil)):
		return errEncoder
	}
	return nil
}
