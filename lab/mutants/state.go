package mutants

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// A state is what is known from earlier runs.
type state struct {
	path string
	mu   sync.Mutex

	Paces    map[string]pace
	Outcomes map[string]outcome // by the key of the mutant
}

func openState(path string) (*state, error) {
	s := &state{path: path, Paces: make(map[string]pace), Outcomes: make(map[string]outcome)}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which holds what earlier runs found and can be removed: %w", path, err)
	}
	return s, nil
}

func (s *state) outcome(m *mutant) outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Outcomes[m.key()]
}

// change changes the state, and stores it.
func (s *state) change(fn func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path+".new", s.path)
}

// A listed package is what go list says of it.
type listed struct {
	Dir, ImportPath, Export            string
	ForTest                            string
	GoFiles, TestGoFiles, XTestGoFiles []string
	EmbedFiles, TestEmbedFiles         []string
	Module                             *struct{ Main bool }
}

// list runs go list.
func (b *bench) list(args ...string) ([]listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-json"}, args...)...)
	cmd.Dir, cmd.Env, cmd.Stderr = b.root, b.env, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(args, " "), err)
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// sources returns a sum of all that the outcome of a package's tests may depend on: its files and tests, the files
// of what they import from this module, other modules by their versions, and test data.
func (b *bench) sources(pkg string) (string, error) {
	all, err := b.list("-deps", "-test", "./"+pkg)
	if err != nil {
		return "", err
	}
	files := []string{filepath.Join(b.root, "go.mod"), filepath.Join(b.root, "go.sum")}
	for _, p := range all {
		if p.Module == nil || !p.Module.Main || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		names := slices.Concat(p.GoFiles, p.EmbedFiles)
		if p.Dir == filepath.Join(b.root, pkg) {
			names = slices.Concat(names, p.TestGoFiles, p.XTestGoFiles, p.TestEmbedFiles)
		}
		for _, name := range names {
			files = append(files, filepath.Join(p.Dir, name))
		}
	}
	for _, dir := range []string{filepath.Join(b.root, "testdata"), filepath.Join(b.root, pkg, "testdata")} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, f := range slices.Compact(files) {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(b.root, f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %x\n", rel, sha256.Sum256(text))
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:12]), nil
}
