package manual

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A page has what the help of a program does not say.
type page struct {
	name, purpose string
	environment   []entry
	seeAlso       []string
}

var productPage = page{"cfi2sframe", "adds SFrame sections to ELF files", environment,
	[]string{"as(1)", "cfi-step(1)", "ld(1)", "objcopy(1)", "objdump(1)", "perf(1)", "readelf(1)", "elf(5)"}}

var stepPage = page{"cfi-step", "finds call frame information that contradicts the processor", nil,
	[]string{"cfi2sframe(1)", "gdb(1)", "readelf(1)", "ptrace(2)", "elf(5)"}}

// environment are variables of cfi2sframe and its libraries.
var environment = []entry{
	{"CFI2SFRAME_FLAGS", "flags for what \"cfi2sframe ld\" converts, divided by blanks"},
	{"CFI2SFRAME_LD", "path or name of the linker that \"cfi2sframe ld\" runs"},
	{"XDG_CACHE_HOME", "where \"cfi2sframe ld --print-dir\" makes its directory if none was installed; ~/.cache by default"},
	{"GOMEMLIMIT", "memory that garbage may use, such as 200MiB, instead of a limit that fits the file"},
	{"GOGC", "garbage as a percentage of used memory; see the documentation of Go's package runtime"},
	{"TMPDIR", "directory for copies of pipes; /tmp by default"},
}

// A pageWriter writes roff.
type pageWriter struct{ strings.Builder }

func (p *pageWriter) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// man returns the manual page of the given date.
func (h *help) man(about *page, verbs []*help, date time.Time) string {
	p := &pageWriter{}
	p.line(`.\" Made by lab/manual from --help.`)
	p.line(`.TH %s 1 %s cfi2sframe "User Commands"`, roff(strings.ToUpper(about.name)), date.Format(time.DateOnly))
	p.line(".SH NAME\n%s \\- %s\n.SH SYNOPSIS", roff(about.name), about.purpose)
	for i, v := range append([]*help{h}, verbs...) {
		for j, form := range v.usage {
			if i+j > 0 {
				p.line(".br")
			}
			name, rest, _ := strings.Cut(form, " ")
			p.line(".B %s\n%s", roff(name), roff(rest))
		}
	}
	p.line(".SH DESCRIPTION")
	p.paragraphs(h.text)
	p.line(".SH OPTIONS")
	for _, g := range h.groups {
		if len(h.groups) > 1 {
			p.line(".SS %s", g.title)
		}
		p.entries(g.flags)
	}
	if verbs != nil {
		p.line(".SH VERBS")
	}
	examples := h.examples
	for _, v := range verbs {
		p.line(".SS %s", roff(strings.TrimPrefix(v.usage[0], "cfi2sframe ")))
		p.paragraphs(v.text)
		for _, g := range v.groups {
			p.entries(slices.DeleteFunc(g.flags, func(e entry) bool { return e.name == "-h, --help" }))
		}
		examples = append(examples, v.examples...)
	}
	p.line(".SH EXIT STATUS")
	p.entries(h.statuses)
	if about.environment != nil {
		p.line(".SH ENVIRONMENT")
		p.entries(about.environment)
		p.line(".SH FILES\n.TP\n.I /usr/lib/debug")
		p.line("%s", filled("Where --debug-file auto looks for debug information that was split off."))
	}
	p.line(".SH EXAMPLES")
	p.entries(examples)
	p.line(".SH SEE ALSO")
	for i, s := range about.seeAlso {
		name, section, _ := strings.Cut(s, "(")
		end := ","
		if i == len(about.seeAlso)-1 {
			end = ""
		}
		p.line(".BR %s (%s%s", roff(name), section, end)
	}
	return p.String()
}

// paragraphs writes text. Lines that begin with blanks stay lines.
func (p *pageWriter) paragraphs(text []string) {
	for i, s := range text {
		if i > 0 {
			p.line(".PP")
		}
		if strings.HasPrefix(s, "  ") || strings.Contains(s, "\n  ") {
			p.line(".nf\n%s\n.fi", roff(s))
		} else {
			p.line("%s", filled(s))
		}
	}
}

// entries writes names and their texts.
func (p *pageWriter) entries(all []entry) {
	for _, e := range all {
		if e.text == "" { // an example that needs no words
			p.line(".PP\n.B %s", roff(e.name))
			continue
		}
		p.line(".TP\n.B %s\n%s", roff(e.name), filled(sentence(e.text)))
	}
}

// roff escapes text for the formatter.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
}

// filled divides text into short lines, none of which is a request.
func filled(s string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && len(line)+len(word) > 75 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+roff(word), " ")
	}
	lines = append(lines, line)
	for i, l := range lines {
		if strings.HasPrefix(l, ".") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// sentence adds a capital letter and a full stop.
func sentence(s string) string {
	if len(s) > 1 && s[1] >= 'a' { // not a name such as TMPDIR
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.TrimSuffix(s, ".") + "."
}
