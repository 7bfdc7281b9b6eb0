package chrome

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWatch checks that Open would notice errors.
func TestWatch(t *testing.T) {
	browser := Start(t)
	path := filepath.Join(t.TempDir(), "page.html")
	page := `<!DOCTYPE html><meta http-equiv="Content-Security-Policy" content="default-src 'none'"><title>page</title>`
	if err := os.WriteFile(path, []byte(page), 0o666); err != nil {
		t.Fatal(err)
	}
	b := Open(t, browser, path)
	Eval[any](b, `console.error("on purpose"), document.body.append(Object.assign(new Image(), {src: "https://localhost/x.png"})), setTimeout(() => { throw "on purpose" }), 1`)
	for range 100 {
		b.mu.Lock()
		n := len(b.wrong)
		b.mu.Unlock()
		if n >= 3 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := strings.Join(b.wrong, "\n"); !strings.Contains(s, "console:") || !strings.Contains(s, "exception:") ||
		!strings.Contains(s, "Content Security Policy") {
		t.Errorf("noticed:\n%s", s)
	}
	if len(b.asked) != 2 {
		t.Errorf("loaded: %q", b.asked)
	}
	b.wrong, b.asked = nil, b.asked[:1]
}
