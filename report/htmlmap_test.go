package report

import (
	"fmt"
	"strings"
	"testing"
)

// TestCodeMap checks places and sizes of marks in a section, and that gaps come to theirs.
func TestCodeMap(t *testing.T) {
	c := &Coverage{
		Reasons: []Reason{{Name: "drap", Loss: true}, {Name: "sp-rule", Loss: true}, {Name: "outermost"}},
		Gaps: []Gap{
			{Begin: 0x1040, End: 0x1048, Reason: "outermost", Text: "covered"},
			{Begin: 0x1100, End: 0x1140, Reason: "drap", Text: "first"},
			{Begin: 0x1000, End: 0x1001, Reason: "sp-rule", Text: "second"},
			{Begin: 0x11ff, End: 0x1200, Reason: "drap", Text: "first"},
			{Begin: 0x2000, End: 0x2100, Reason: "drap", Text: "first"},
			{Begin: 0x9000, End: 0x9100, Reason: "drap", Text: "in no section"},
		},
		Uncovered: Uncovered{Sections: []UncoveredSection{
			{Name: ".text", Begin: 0x1000, Size: 0x200, Bytes: 48, Ranges: []UncoveredRange{{0x1080, 0x1090, 16},
				{0x1180, 0x11c0, 32}}},
			{Name: ".more", Begin: 0x2000, Size: 0x100},
		}},
	}
	strips, missing := codeMap(c)
	if len(strips) != 2 || missing != 0 {
		t.Fatalf("%d strips, %d missing", len(strips), missing)
	}
	text, more := strips[0], strips[1]
	if text.LeftOut != 0x42 || more.LeftOut != 0x100 {
		t.Errorf("%d and %d bytes left out", text.LeftOut, more.LeftOut)
	}
	want := []mark{
		{"without", "25.000%", "0.000%", "3.125%", "100.000%", "0x1080-0x1090: 16 bytes, code without CFI, or padding"},
		{"without", "75.000%", "50.000%", "12.500%", "50.000%",
			"0x1180-0x11c0: 32 of 64 bytes, code without CFI, or padding"},
		{"gap r-drap", "50.000%", "0.000%", "12.500%", "100.000%", "0x1100-0x1140: 64 bytes, first"},
		{"gap r-drap", "99.805%", "0.000%", "0.195%", "100.000%", "0x11ff-0x1200: 1 byte, first"},
		{"gap r-sp-rule", "0.000%", "0.000%", "0.195%", "100.000%", "0x1000-0x1001: 1 byte, second"},
	}
	if got := fmt.Sprintf("%v", text.Marks); got != fmt.Sprintf("%v", want) {
		t.Errorf("marks\n%v\nexpected\n%v", strings.ReplaceAll(got, "} {", "}\n{"), want)
	}
	var many []*Gap
	for i := range uint64(3000) {
		many = append(many, &Gap{Begin: i * 100, End: i*100 + 50, Reason: "drap"},
			&Gap{Begin: i*100 + 50, End: i*100 + 51, Reason: "sp-rule"})
	}
	s := strip{UncoveredSection: UncoveredSection{Name: ".text", Size: 300000}, gaps: many}
	s.draw()
	if drap, sp := s.Lanes[0].Marks[1], s.Lanes[1].Marks[1]; s.Lanes[0].Reason != "drap" || drap.Height < "45" ||
		sp.Height < "19" || sp.Height > "21" {
		t.Errorf("gaps that are half of the code, and few: %+v, %+v", drap, sp)
	}
	if len(text.Lanes) != 2 || len(text.Lanes[0].Marks) != 2 || text.Lanes[0].Bytes != 65 ||
		text.Lanes[1].Text != "second" {
		t.Errorf("lanes %+v", text.Lanes)
	}
}

// TestCodeMapObject checks that sections of an object, which all begin at 0, get their own
// gaps, and that the map of one with very many is bounded.
func TestCodeMapObject(t *testing.T) {
	c := &Coverage{Reasons: []Reason{{Name: "drap", Loss: true}}, Gaps: []Gap{
		{Section: ".text.f7", Begin: 4, End: 8, Reason: "drap", base: 8000},
		{Section: ".text", Begin: 20, End: 28, Reason: "drap", base: 200_000},
		{Section: ".text", Begin: 30, End: 34, Reason: "past the end", base: 200_000},
	}}
	for i := range 100 {
		c.Uncovered.Sections = append(c.Uncovered.Sections, UncoveredSection{Name: fmt.Sprintf(".text.f%d", i),
			Size: uint64(10 + i), base: uint64(1000 + 1000*i)})
	}
	c.Uncovered.Sections = append(c.Uncovered.Sections, UncoveredSection{Name: ".text", Size: 64, base: 150_000},
		UncoveredSection{Name: ".text", Size: 32, base: 200_000}, UncoveredSection{Name: ".empty", base: 200_000})
	strips, missing := codeMap(c)
	if len(strips) != maxStrips || missing != 103-maxStrips {
		t.Errorf("%d strips, %d missing", len(strips), missing)
	}
	var with []string
	for i := range strips {
		if s := &strips[i]; s.LeftOut > 0 {
			with = append(with, fmt.Sprint(s.Name, " ", s.LeftOut, "; ", s.Marks[0].Title))
		}
	}
	want := []string{
		".text.f7 4; .text.f7+0x4-0x8: 4 bytes, ",
		".text 8; .text+0x14-0x1c: 8 bytes, ",
	}
	if strings.Join(with, "\n") != strings.Join(want, "\n") {
		t.Errorf("sections with gaps:\n%s", strings.Join(with, "\n"))
	}
}
