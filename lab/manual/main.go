// Command manual writes the manual pages of cfi2sframe and cfi-step, from what they print with --help, and the
// completions that cfi2sframe prints for bash, zsh and fish.
//
// Usage: manual PROGRAM STEP DIR
//
// PROGRAM and STEP are a cfi2sframe and a cfi-step that run on this machine. The files in DIR are cfi2sframe.1,
// cfi-step.1, cfi2sframe.bash, _cfi2sframe (zsh) and cfi2sframe.fish. The pages have the date of SOURCE_DATE_EPOCH (in
// seconds), or today's.
package manual

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"cfi2sframe/lab/kit"
)

// A help is what --help prints for a command, in its parts.
type help struct {
	usage    []string // its forms
	text     []string // paragraphs
	groups   []group  // of flags
	verbs    []string // of the main command
	statuses []entry
	examples []entry
}

// A group is flags under a heading.
type group struct {
	title string
	flags []entry
}

// An entry is a flag, an exit status or an example, and what it does.
type entry struct{ name, text string }

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("manual", "PROGRAM STEP DIR", 3, 3)
	c.Run = func(args []string) error { return write(args[0], args[1], args[2]) }
	return c
}

// completions are the names of completion files, by their shells.
var completions = map[string]string{"bash": "cfi2sframe.bash", "zsh": "_cfi2sframe", "fish": "cfi2sframe.fish"}

// write writes all files.
func write(program, step, dir string) error {
	printed := func(program string, args ...string) (string, error) {
		out, err := exec.Command(program, args...).Output()
		if err != nil {
			err = fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
		}
		return string(out), err
	}
	for shell, name := range completions {
		script, err := printed(program, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o644); err != nil {
			return err
		}
	}
	text, err := printed(program, "--help")
	if err != nil {
		return err
	}
	root, err := parse(text)
	if err != nil {
		return err
	}
	var verbs []*help
	for _, v := range root.verbs {
		if text, err = printed(program, "help", v); err != nil {
			return err
		}
		h, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		verbs = append(verbs, h)
	}
	date := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		date = time.Unix(seconds, 0)
	}
	if text, err = printed(step, "--help"); err != nil {
		return err
	}
	stepping, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	for name, p := range map[string]string{
		"cfi2sframe.1": root.man(&productPage, verbs, date.UTC()),
		"cfi-step.1":   stepping.man(&stepPage, nil, date.UTC()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(p), 0o644); err != nil {
			return err
		}
	}
	return nil
}

var (
	flagLine = regexp.MustCompile(`^ +((?:-\w, )?--[\w-]+(?: \S+)?)(?:  +(.*))?$`)
	title    = regexp.MustCompile(`^(\w[\w ]*):$`)
)

// parse divides a help into its parts. They begin with a line such as "Output:".
func parse(text string) (*help, error) {
	h := &help{}
	for _, block := range strings.Split(strings.TrimRight(text, "\n"), "\n\n") {
		lines := strings.Split(block, "\n")
		heading := title.FindStringSubmatch(lines[0])
		var err error
		switch {
		case strings.HasPrefix(block, "Usage:"):
			for _, line := range lines {
				h.usage = append(h.usage, strings.TrimSpace(strings.TrimPrefix(line, "Usage:")))
			}
		case heading == nil || heading[1] == "Environment":
			h.text = append(h.text, block)
		case heading[1] == "Verbs":
			err = h.parseVerbs(lines[1:])
		case heading[1] == "Exit status":
			h.statuses = entries(lines[1:], 7)
		case heading[1] == "Examples":
			h.examples = entries(lines[1:], 10)
		default:
			g := group{title: heading[1]}
			g.flags, err = flags(lines[1:])
			h.groups = append(h.groups, g)
		}
		if err != nil {
			return nil, err
		}
	}
	if h.usage == nil || h.statuses == nil {
		return nil, fmt.Errorf("the help has no usage or no exit status")
	}
	return h, nil
}

// parseVerbs reads the list of verbs. Its last line has several.
func (h *help) parseVerbs(lines []string) error {
	for _, line := range lines {
		forms := []string{line}
		if strings.Contains(line, ", help") {
			forms = strings.Split(line, ",")
		}
		for _, f := range forms {
			name := strings.Fields(f)
			if len(name) == 0 {
				return fmt.Errorf("not the line of a verb: %q", line)
			}
			h.verbs = append(h.verbs, name[0])
		}
	}
	return nil
}

// flags reads a group of flags. Lines that are not the first of a flag go on with its text.
func flags(lines []string) ([]entry, error) {
	var all []entry
	for _, line := range lines {
		m := flagLine.FindStringSubmatch(line)
		switch {
		case m != nil:
			all = append(all, entry{m[1], m[2]})
		case len(all) > 0 && strings.HasPrefix(line, "        "):
			all[len(all)-1].text += " " + strings.TrimSpace(line)
		default:
			return nil, fmt.Errorf("not the line of a flag: %q", line)
		}
	}
	return all, nil
}

// entries reads a list of names and texts. A line with this many blanks first goes on with the text.
func entries(lines []string, blanks int) []entry {
	var all []entry
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, strings.Repeat(" ", blanks)); ok && len(all) > 0 {
			last := &all[len(all)-1]
			last.text = strings.TrimSpace(last.text + " " + strings.TrimSpace(text))
			continue
		}
		name, text, _ := strings.Cut(strings.TrimSpace(line), "  ")
		all = append(all, entry{name, strings.TrimSpace(text)})
	}
	return all
}
