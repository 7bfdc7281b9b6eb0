package survey

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed survey.html
var page string

// HTML writes the survey as a page that needs nothing else.
func (s *Survey) HTML(w io.Writer) error {
	return template.Must(template.New("survey").Parse(page)).Execute(w, struct {
		Title  string
		Tables []table
	}{s.title(), s.tables()})
}
