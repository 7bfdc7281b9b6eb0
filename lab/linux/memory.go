package linux

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
)

// compareMemory compares the .sframe of modules in a directory, with relocations applied, with the bytes in the memory
// of a kernel. Lines are "section MODULE NAME ADDRESS" and then "memory MODULE BYTES", as scripts/lab modules has them.
func compareMemory(r io.Reader, dir string) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<26)
	addrs := make(map[string]uint64) // of the sections of the current module
	equal, relocations := 0, 0
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 4 && words[0] == "section":
			addr, err := strconv.ParseUint(words[3], 0, 64)
			if err != nil {
				return err
			}
			addrs[words[2]] = addr
		case len(words) == 3 && words[0] == "memory":
			n, err := compareModule(filepath.Join(dir, words[1]+".ko"), addrs, words[2])
			if err != nil {
				return fmt.Errorf("%s: %w", words[1], err)
			}
			equal, relocations = equal+1, relocations+n
			clear(addrs)
		}
	}
	fmt.Printf("%d modules in memory: their .sframe is equal, with %d relocations\n", equal, relocations)
	if equal == 0 {
		return errors.New("no module was loaded")
	}
	return lines.Err()
}

// compareModule compares one module, and returns the number of its relocations.
func compareModule(path string, addrs map[string]uint64, memory string) (int, error) {
	got, err := hex.DecodeString(memory)
	if err != nil {
		return 0, err
	}
	e, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	m := &module{File: e, addrs: make([]uint64, len(e.Sections))}
	for i, s := range e.Sections {
		m.addrs[i] = addrs[s.Name]
	}
	want, _, err := m.relocated(".sframe", true)
	if err == nil && !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		err = fmt.Errorf(".sframe differs at %#x", at)
	}
	return int(e.Section(".rela.sframe").Size / 24), err
}
