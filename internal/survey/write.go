package survey

import (
	"fmt"
	"io"
	"strings"
)

// Forms are the names of the forms that Write knows.
var Forms = []string{"text", "json", "csv", "html"}

// Write writes the survey in the form of the given name.
func (s *Survey) Write(w io.Writer, form string) error {
	switch form {
	case "text":
		return s.Text(w)
	case "json":
		return s.JSON(w)
	case "csv":
		return s.CSV(w, nil)
	case "html":
		return s.HTML(w, nil)
	}
	return fmt.Errorf("form %q is not known; one of %s was expected", form, strings.Join(Forms, ", "))
}
