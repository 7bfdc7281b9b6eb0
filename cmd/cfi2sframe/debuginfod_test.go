package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// TestDebuginfod expects debuginfod to serve a separate .sframe in addition to the program and its debug file, as
// docs/usage.md describes.
func TestDebuginfod(t *testing.T) {
	long.Test(t)
	server := peer.Look(t, "debuginfod")
	for _, tool := range []string{"gcc", "objcopy"} {
		peer.Look(t, tool)
	}
	t.Chdir(t.TempDir())
	const id = "abcdef0123456789"
	script := `mkdir files debug
echo 'int main(void) { return 0; }' >prog.c
gcc -g -O1 -Wl,--build-id=0x` + id + ` prog.c -o files/prog
objcopy --only-keep-debug files/prog debug/prog.debug
objcopy --strip-all files/prog`
	must.Run(t, exec.Command("sh", "-ec", script))
	expectRun(t, exitDone, "", io.Discard, "detach", "-q", "files/prog", "-o", "store/")
	separate := filepath.Join("store/.build-id", id[:2], id[2:]+".sframe")
	must.Do(t, os.Chtimes(separate, time.Unix(1, 0), time.Unix(1, 0)))
	e := must.Get(elf.Open(separate))(t)
	defer e.Close()
	section := must.Get(e.Section(".sframe").Data())(t)

	free := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	cmd := exec.Command(server, "-d", "index", "-p", fmt.Sprint(port), "-F", "files", "debug", "store")
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=")
	must.Do(t, cmd.Start())
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	get := func(what string) (int, []byte) {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", port, what))
		if err != nil {
			return 0, nil
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return 0, nil
		}
		return r.StatusCode, b
	}
	for range 120 { // debuginfod indexes the files first
		if _, b := get("metrics"); bytes.Contains(b, []byte(`scanned_files_total{source="file"} 3`)) {
			break
		}
		time.Sleep(250 * time.Millisecond)
	}
	for what, want := range map[string][]byte{
		"section/.sframe": section, "executable": testfile.Read(t, "files/prog"),
		"debuginfo": testfile.Read(t, "debug/prog.debug"),
	} {
		if status, got := get("buildid/" + id + "/" + what); status != http.StatusOK || !bytes.Equal(got, want) {
			t.Errorf("%s: status %d, %d bytes; want %d", what, status, len(got), len(want))
		}
	}
}
