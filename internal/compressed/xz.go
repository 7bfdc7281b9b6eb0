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

// maxWorkers is how many there are at most, as each takes 130 MB for the usual dictionary.
const maxWorkers = 4

// An xzWriter compresses a stream, and has it decompressed again.
type xzWriter struct {
	ctx     context.Context
	packed  io.WriteCloser // what compresses
	wait    func() error   // for what compresses to end
	sum     hash.Hash      // of what is to be compressed
	copy    *io.PipeWriter // of what comes out, for whom decompresses
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
	w := &xzWriter{ctx: ctx, sum: sha256.New(), copy: in, checked: make(chan checked, 1)}
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
		w.wait = func() error { return nil }
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
	err error
}

func (k *keeper) Write(p []byte) (int, error) {
	n, err := k.Writer.Write(p)
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
	cmd := exec.CommandContext(ctx, path, "--compress", "--stdout", "--format=xz", "--check="+xzChecks[f.check],
		fmt.Sprintf("--lzma2=preset=6,dict=%d", f.dictionary), fmt.Sprintf("--threads=%d", min(max(workers, xzThreads), maxWorkers)))
	cmd.Env = append(os.Environ(), "XZ_DEFAULTS=", "XZ_OPT=")
	kept := &keeper{Writer: to}
	cmd.Stdout = io.MultiWriter(kept, w.copy)
	var message bytes.Buffer
	cmd.Stderr = &message
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	w.packed = in
	w.wait = func() error {
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
		return fmt.Errorf("cannot run %s: %w", path, cmp.Or(errors.Unwrap(err), err))
	}
	return nil
}

func (w *xzWriter) Write(p []byte) (int, error) {
	n, err := w.packed.Write(p)
	w.sum.Write(p[:n])
	if w.ctx.Err() != nil {
		err = w.ctx.Err()
	}
	return n, err
}

// Close ends the stream. The error is errEncoder if it is not what was written.
func (w *xzWriter) Close() error {
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
	case w.ctx.Err() != nil:
		return w.ctx.Err()
	case c.err != nil:
		return fmt.Errorf("%w: %w", errEncoder, c.err)
	case err != nil:
		return err
	case c.sum != [sha256.Size]byte(w.sum.Sum(nil)):
		return errEncoder
	}
	return nil
}
