// Package flags reads command lines as GNU getopt_long does: flags before, between and after files, of one
// letter (-q, -qv, -j4, -o FILE) or by name (--quiet, --jobs=4, --output FILE), and none after "--".
//
// It is what the command needs of github.com/spf13/pflag, and does and says the same. That package imports net, and
// with that a program is linked with the C library and started by the dynamic linker, which takes time.
package flags

import (
	"fmt"
	"strconv"
	"strings"
)

// A Set is the flags that a program has.
type Set struct {
	flags []*flag // in the order of the help
	args  []string
}

// A flag is one of them.
type flag struct {
	letter, name string // without the dashes; letter may be ""
	usage        string
	value        string // what the help calls its value, or "" for one that has none
	initial      string // its value if it is not given, as the help says it, or ""
	set          func(string) error
}

func (s *Set) add(f flag) {
	if before, rest, ok := strings.Cut(f.usage, "`"); ok {
		name, after, _ := strings.Cut(rest, "`")
		f.value, f.usage = name, before+name+after
	}
	s.flags = append(s.flags, &f)
}

// Bool adds a flag that is given or not. All flags have a name, and a letter or none (""). In the
// usage, back quotes are around what the help calls a flag's value, unless that is its type.
func (s *Set) Bool(p *bool, letter, name, usage string) {
	s.add(flag{letter, name, usage, "", "", func(v string) (err error) {
		*p, err = strconv.ParseBool(v)
		return err
	}})
}

// String adds a flag with a value. What p points to is its value if it is not given, here and for all
// flags.
func (s *Set) String(p *string, letter, name, usage string) {
	initial := ""
	if *p != "" {
		initial = strconv.Quote(*p)
	}
	s.add(flag{letter, name, usage, "string", initial, func(v string) error {
		*p = v
		return nil
	}})
}

// Int adds a flag that has a number.
func (s *Set) Int(p *int, letter, name, usage string) {
	initial := ""
	if *p != 0 {
		initial = strconv.Itoa(*p)
	}
	s.add(flag{letter, name, usage, "int", initial, func(v string) error {
		n, err := strconv.ParseInt(v, 0, strconv.IntSize)
		*p = int(n)
		return err
	}})
}

// Float adds a flag that has a number, which is 0 if it is not given.
func (s *Set) Float(p *float64, letter, name, usage string) {
	s.add(flag{letter, name, usage, "float", "", func(v string) (err error) {
		*p, err = strconv.ParseFloat(v, 64)
		return err
	}})
}

// Usage says what flags there are, in a line for each.
func (s *Set) Usage() string {
	width := 0
	heads := make([]string, len(s.flags))
	for i, f := range s.flags {
		heads[i] = "      --" + f.name
		if f.letter != "" {
			heads[i] = "  -" + f.letter + ", --" + f.name
		}
		if f.value != "" {
			heads[i] += " " + f.value
		}
		width = max(width, len(heads[i]))
	}
	var b strings.Builder
	for i, f := range s.flags {
		fmt.Fprintf(&b, "%-*s   %s", width, heads[i], f.usage)
		if f.initial != "" {
			fmt.Fprintf(&b, " (default %s)", f.initial)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Parse reads a command line without the name of the program.
func (s *Set) Parse(args []string) error {
	s.args = nil
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case arg == "--":
			s.args = append(s.args, args...)
			return nil
		case strings.HasPrefix(arg, "--"):
			args, err = s.long(arg, args)
		case strings.HasPrefix(arg, "-") && arg != "-":
			args, err = s.short(arg[1:], args)
		default:
			s.args = append(s.args, arg)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Args returns what of the command line is no flag.
func (s *Set) Args() []string { return s.args }

// find returns a flag by its name or its letter.
func (s *Set) find(is func(*flag) bool) *flag {
	for _, f := range s.flags {
		if is(f) {
			return f
		}
	}
	return nil
}

// long reads a flag by its name, and returns the arguments after it.
func (s *Set) long(arg string, args []string) ([]string, error) {
	name, value, given := strings.Cut(arg[2:], "=")
	if name == "" || name[0] == '-' {
		return nil, fmt.Errorf("bad flag syntax: %s", arg)
	}
	f := s.find(func(f *flag) bool { return f.name == name })
	switch {
	case f == nil:
		return nil, fmt.Errorf("unknown flag: --%s", name)
	case given:
	case f.value == "":
		value = "true"
	case len(args) == 0:
		return nil, fmt.Errorf("flag needs an argument: --%s", name)
	default:
		value, args = args[0], args[1:]
	}
	return args, f.take(value)
}

// short reads flags by their letters, of which the last may have a value, and returns the arguments after
// them.
func (s *Set) short(letters string, args []string) ([]string, error) {
	for letters != "" {
		letter, rest := letters[:1], letters[1:]
		f := s.find(func(f *flag) bool { return f.letter == letter })
		if f == nil {
			return nil, fmt.Errorf("unknown shorthand flag: %q in -%s", rune(letter[0]), letters)
		}
		value := ""
		switch {
		case len(rest) > 1 && rest[0] == '=':
			value, rest = rest[1:], ""
		case f.value == "":
			value = "true"
		case rest != "":
			value, rest = rest, ""
		case len(args) == 0:
			return nil, fmt.Errorf("flag needs an argument: %q in -%s", rune(letter[0]), letters)
		default:
			value, args = args[0], args[1:]
		}
		if err := f.take(value); err != nil {
			return nil, err
		}
		letters = rest
	}
	return args, nil
}

// take gives a flag its value.
func (f *flag) take(value string) error {
	err := f.set(value)
	if err == nil {
		return nil
	}
	name := "--" + f.name
	if f.letter != "" {
		name = "-" + f.letter + ", " + name
	}
	return fmt.Errorf("invalid argument %q for %q flag: %w", value, name, err)
}
