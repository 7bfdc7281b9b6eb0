package survey

import (
	"testing"
)

// TestRow expects each figure of a file to be in the column of that name.
func TestRow(t *testing.T) {
	r := Record{
		File: "/usr/bin/x", ABI: "amd64", Functions: 10, Described: 1000, WithoutCFI: 87, Code: 1097,
		Formats: []Format{{Format: 2, Covered: 960}, {Format: 3, Unwindable: 770}},
		Gaps:    []Gap{{Reason: "drap", Functions: 1, Ranges: 2, Bytes: 250}},
	}
	want := map[string]string{
		// 70.19 % is 770 of 1097 bytes.
		"File": "/usr/bin/x", "ABI": "amd64", "Code": "1097", "Unwindable": "70.19 %", "Not unwindable": "327",
		"Not covered": "250", "Main reason": "drap", "In format 2": "40", "Remarks": "",
	}
	row := r.cells()
	if len(row) != len(fileColumns) || len(fileColumns) != len(want) {
		t.Errorf("%d cells below %d names: %q", len(row), len(fileColumns), row)
	}
	for i, c := range fileColumns {
		if row[i] != want[c.Name] {
			t.Errorf("%s: %q; want %q", c.Name, row[i], want[c.Name])
		}
	}
}
