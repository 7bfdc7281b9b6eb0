package manual

import (
	"fmt"
	"strings"
	"time"
)

// environment are variables that the program and its libraries look at.
var environment = [][2]string{
	{"GOMEMLIMIT", "memory that garbage may take the program to, such as 200MiB, instead of what fits the file at hand"},
	{"GOGC", "how much garbage there may be for what is in use, in percent; see the documentation of Go's package runtime"},
	{"TMPDIR", "where there is room for what comes through a pipe, and goes into one; /tmp by default"},
}

// linkerVariables are those of "cfi2sframe ld".
var linkerVariables = [][2]string{
	{"CFI2SFRAME_FLAGS", "flags for what \"cfi2sframe ld\" converts, divided by blanks"},
	{"CFI2SFRAME_LD", "the linker that it runs, by its path or name, if not the one that it finds"},
	{"XDG_CACHE_HOME", "where --print-linker-dir makes its folder if none was installed; ~/.cache by default"},
}

// seeAlso are other pages.
var seeAlso = []string{"as(1)", "ld(1)", "objcopy(1)", "objdump(1)", "perf(1)", "readelf(1)", "elf(5)"}

// man returns the manual page of the given date.
func (p *page) man(date time.Time) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.\" Made by lab/manual from the program's flags.`)
	line(`.TH CFI2SFRAME 1 %s cfi2sframe "User Commands"`, date.Format(time.DateOnly))
	line(".SH NAME")
	line(`cfi2sframe \- adds SFrame sections to ELF files`)
	line(".SH SYNOPSIS")
	for i, s := range p.Synopsis {
		if i > 0 {
			line(".br")
		}
		name, rest, _ := strings.Cut(s, " ")
		line(`.B %s`, roff(name))
		line("%s", roff(rest))
	}
	line(".SH DESCRIPTION")
	for i, s := range p.Description {
		if i > 0 {
			line(".PP")
		}
		line("%s", filled(s))
	}
	line(".SH OPTIONS")
	for _, f := range p.Flags {
		name := `\fB\-\-` + roff(f.Name) + `\fR`
		if f.Short != "" {
			name = `\fB\-` + f.Short + `\fR, ` + name
		}
		if f.Value != "" {
			name += ` \fI` + roff(f.Value) + `\fR`
		}
		usage := sentence(f.Usage)
		if f.Default != "" && f.Default != "0" {
			usage += " The default is " + f.Default + "."
		}
		line(".TP\n%s\n%s", name, filled(usage))
	}
	line(".SH EXIT STATUS")
	for _, s := range strings.Split(strings.TrimSuffix(p.Exit, "."), "; ") {
		if status, what, _ := strings.Cut(s, " "); status[0] >= '0' && status[0] <= '9' && !strings.HasSuffix(status, ",") {
			line(".TP\n.B %s\n%s", status, filled(sentence(what)))
		} else {
			line(".PP\n%s", filled(sentence(s)))
		}
	}
	line(".SH ENVIRONMENT")
	variables := environment
	if strings.Contains(strings.Join(p.Synopsis, "\n"), "cfi2sframe ld ") {
		variables = append(variables[:len(variables):len(variables)], linkerVariables...)
	}
	for _, v := range variables {
		line(".TP\n.B %s\n%s", v[0], filled(sentence(v[1])))
	}
	line(".SH FILES\n.TP\n.I /usr/lib/debug\n%s", filled("Where --debug-file auto looks for debug information that was split off."))
	line(".SH EXAMPLES")
	for _, e := range p.Examples {
		line(".TP\n.B %s\n%s", roff(e[0]), filled(sentence(e[1])))
	}
	line(".SH SEE ALSO")
	for i, s := range seeAlso {
		name, section, _ := strings.Cut(s, "(")
		end := ","
		if i == len(seeAlso)-1 {
			end = ""
		}
		line(".BR %s (%s%s", name, section, end)
	}
	return b.String()
}

// roff is text as the formatter has to see it.
func roff(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(s)
}

// filled is text in lines that are not too long, none of which is a request.
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

// sentence makes one of words without a point.
func sentence(s string) string {
	if s == "" {
		return s
	}
	if len(s) > 1 && s[1] >= 'a' { // no name such as TMPDIR
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.TrimSuffix(s, ".") + "."
}
