package toolchains

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"cfi2sframe/report"
)

// A judged case is one with its result.
type judged struct {
	testCase
	result
}

// line says in one line what became of a case.
func (r *result) line(name string) string {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(r.Versions)) {
		c := r.Versions[v]
		parts = append(parts, fmt.Sprintf("%s %s", v, report.Share(c.Covered, c.Described)))
	}
	for _, o := range slices.Sorted(maps.Keys(r.Objects)) {
		c := r.Objects[o]
		parts = append(parts, fmt.Sprintf("%s %s", o, report.Share(c.Covered, c.Described)))
	}
	if p := r.Peer; p != nil {
		parts = append(parts, p.String())
	}
	if r.NoPeer != "" {
		parts = append(parts, "its assembler: "+first(r.NoPeer))
	}
	return fmt.Sprintf("%s: %.0f s; %s", name, r.Seconds, strings.Join(parts, "; "))
}

func (p *peerResult) String() string {
	if p.Unreadable != "" {
		return fmt.Sprintf("peer V%d cannot be read: %s", p.Version, p.Unreadable)
	}
	return fmt.Sprintf("peer V%d: %d bytes, %d equal, %d wrong in %d functions, %d missing in ours, %d only in ours",
		p.Version, p.Covered, p.Equal, sum(p.Wrong), len(p.Wrong), sum(p.Missing), p.Ours)
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// gaps lists what is left out, by reason.
func gaps(m map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %s", name, report.Digits(m[name])))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// markdown writes the tables.
func (d *folders) markdown(path string, cases []judged, left int) error {
	var s strings.Builder
	wrong, bytes, rows, converted := 0, uint64(0), 0, 0
	for _, c := range cases {
		wrong += len(c.Failures)
		for _, group := range []map[string]coverage{c.Versions, c.Objects} {
			for _, v := range group {
				bytes += v.Covered
				rows += v.Rows
				converted++
			}
		}
	}
	fmt.Fprintf(&s, "%d cases (%d not run), %d conversions, %s bytes of code covered, %s rows read back: %d wrong.\n\n",
		len(cases), left, converted, report.Digits(bytes), report.Digits(uint64(rows)), wrong)
	for _, program := range []string{"sqlite", "angelscript", "lua", "zlib", "user"} {
		if !slices.ContainsFunc(cases, func(c judged) bool { return c.program == program }) {
			continue
		}
		n, err := d.lines(program)
		if err != nil {
			return err
		}
		fmt.Fprintf(&s, "%s (%s lines):\n\n", program, report.Digits(uint64(n)))
		s.WriteString("| compiler | ABI | flags | described | V1 % | V2 % | V3 % | left out in V3 | peer: equal | wrong | missing in ours | only in ours |\n")
		s.WriteString("| --- | --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: |\n")
		for _, c := range cases {
			if c.program != program {
				continue
			}
			if len(c.Versions) == 0 {
				for _, o := range slices.Sorted(maps.Keys(c.Objects)) {
					v := c.Objects[o]
					fmt.Fprintf(&s, "| %s | %s | `%s` | %s | | | %s (%s) | %s | | | | |\n",
						c.cc.label, c.abi, c.flags, report.Digits(v.Described), report.Share(v.Covered, v.Described), o, gaps(v.Gaps))
				}
				continue
			}
			var shares [3]string
			for i := range shares {
				if v, ok := c.Versions[fmt.Sprint("V", i+1)]; ok {
					shares[i] = report.Share(v.Covered, v.Described)
				} else {
					shares[i] = "no such ABI"
				}
			}
			newest := c.Versions["V3"]
			peer := "| | | "
			switch p := c.Peer; {
			case p == nil && c.NoPeer != "":
				peer = "the assembler fails | | | "
			case p == nil:
				peer = "none | | | "
			case p.Unreadable != "":
				peer = fmt.Sprintf("V%d, unreadable | | | ", p.Version)
			default:
				peer = fmt.Sprintf("V%d: %s | %s | %s | %s", p.Version, report.Digits(p.Equal), report.Digits(sum(p.Wrong)), report.Digits(sum(p.Missing)), report.Digits(p.Ours))
			}
			flags := c.flags
			if c.kind == kindPGO {
				flags += " (with a profile)"
			}
			fmt.Fprintf(&s, "| %s | %s | `%s` | %s | %s | %s | %s | %s | %s |\n", c.cc.label, c.abi, flags,
				report.Digits(newest.Described), shares[0], shares[1], shares[2], gaps(newest.Gaps), peer)
		}
		s.WriteString("\n")
	}
	return os.WriteFile(path, []byte(s.String()), 0o666)
}
