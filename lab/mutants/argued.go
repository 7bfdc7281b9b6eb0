package mutants

import (
	"fmt"
	"strings"
)

// arguments parses the list of equivalent mutants. A paragraph consists of a line with the file and the function, and
// two kinds of indented lines: the changed source line, and the argument. The result maps keys of mutants to arguments.
func arguments(text string) (map[string]string, error) {
	all := make(map[string]string)
	for block := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.SplitSeq(strings.Trim(block, "\n"), "\n") {
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
		if len(lines) == 0 || len(lines) == 1 && lines[0] == "" {
			continue
		}
		if len(lines) < 3 || !strings.HasPrefix(lines[1], "\t") || !strings.HasPrefix(lines[2], "\t") {
			return nil, fmt.Errorf("%q: the changed line and the argument must follow, indented", lines[0])
		}
		key := lines[0] + "\n" + strings.TrimPrefix(lines[1], "\t")
		if _, ok := all[key]; ok {
			return nil, fmt.Errorf("%q occurs twice", key)
		}
		var words []string
		for _, line := range lines[2:] {
			words = append(words, strings.TrimSpace(line))
		}
		all[key] = strings.Join(words, " ")
	}
	return all, nil
}
