package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"

	"cfi2sframe/report"
)

// expected says what values flags take that do not take every one.
var expected = map[string]string{
	"format":       "1, 2 or 3",
	"jobs":         "a number, 0 or more,",
	"min-coverage": "a number from 0 to 100",
}

// expectedOf is the same by the type of a flag's values.
var expectedOf = map[string]string{
	"bool":    "true or false",
	"float64": "a number",
	"int":     "a whole number",
}

// usageError says in the words of this program what is wrong with a command line.
func usageError(err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var without *pflag.ValueRequiredError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		return fmt.Errorf("--%s %s: %s was expected", f.Name, shown(invalid.GetValue()), valuesOf(f))
	case errors.As(err, &without):
		f := without.GetFlag()
		return fmt.Errorf("--%s needs a value: %s was expected", f.Name, valuesOf(f))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag: -%s", unknown.GetSpecifiedName())
	case errors.As(err, &syntax):
		return fmt.Errorf("%s is no flag; -- goes before a file of such a name", syntax.GetSpecifiedFlag())
	}
	return err
}

// shown is a value as a message has it.
func shown(value string) string {
	if value == "" {
		return `""`
	}
	if q := strconv.Quote(value); q != `"`+value+`"` {
		return q
	}
	return value
}

// valuesOf says what values a flag takes.
func valuesOf(f *pflag.Flag) string {
	if s, ok := expected[f.Name]; ok {
		return s
	}
	if s, ok := expectedOf[f.Value.Type()]; ok {
		return s
	}
	if name, _ := pflag.UnquoteUsage(f); name != "string" {
		return name
	}
	return "a word"
}

// A caught is the end of a context by a signal.
type caught syscall.Signal

func (c caught) Error() string { return "interrupted" }

// Is makes errors.Is find it as the end of a context.
func (c caught) Is(err error) bool { return err == context.Canceled }

// interruptedStatus returns the exit status of a run that was ended by a signal: as shells have it for a program
// that does not catch it.
func interruptedStatus(ctx context.Context) int {
	var c caught
	if errors.As(context.Cause(ctx), &c) {
		return 128 + int(c)
	}
	return exitError
}

// complain prints what is wrong with a file or a part of the run.
func complain(w io.Writer, about string, err error) {
	fmt.Fprintf(w, "cfi2sframe: %s: %s\n", report.Printable(about), printable(err.Error()))
}

// interrupted says of files that a signal came before them, and returns the exit status.
func interrupted(ctx context.Context, stderr io.Writer, files []string, what string) int {
	for _, f := range files {
		complain(stderr, f, errors.New("interrupted, "+what))
	}
	return interruptedStatus(ctx)
}
