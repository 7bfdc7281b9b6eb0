package toolchains

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cfi2sframe/lab/kit"
	"cfi2sframe/report"
)

func (r *result) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.conversions)) {
		c := r.conversions[name]
		parts = append(parts, fmt.Sprintf("%s %s", name, report.Share(c.covered, c.described)))
	}
	if r.peer != nil {
		parts = append(parts, r.peer.String())
	}
	if r.noPeer != "" {
		parts = append(parts, "its assembler: "+first(r.noPeer))
	}
	return fmt.Sprintf("%v: %s", r.testCase, strings.Join(parts, "; "))
}

func (p *peerResult) String() string {
	if p.unreadable != "" {
		return fmt.Sprintf("peer V%d cannot be read: %s", p.version, p.unreadable)
	}
	return fmt.Sprintf("peer V%d: %d bytes, %d equal, %d wrong in %d functions, %d missing in ours, %d only in ours",
		p.version, p.covered, p.equal, sum(p.wrong), len(p.wrong), sum(p.missing), p.ours)
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// gaps lists the bytes that are not covered, by reason.
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

// table returns the sums, and a line for each program or object in each version.
func table(cases []*result, left int) string {
	var s strings.Builder
	wrong, bytes, rows, converted := 0, uint64(0), 0, 0
	for _, r := range cases {
		wrong += len(r.failures)
		for _, c := range r.conversions {
			bytes += c.covered
			rows += c.rows
			converted++
		}
	}
	fmt.Fprintf(&s, "%d cases (%d not run), %d conversions, %s bytes of code covered, %s rows read back: %d wrong.\n\n",
		len(cases), left, converted, report.Digits(bytes), report.Digits(uint64(rows)), wrong)
	t := kit.NewTable(&s, "program", "compiler", "ABI", "flags", "version", ">described", ">covered", "not covered", "peer")
	for _, r := range cases {
		for _, name := range slices.Sorted(maps.Keys(r.conversions)) {
			c, peer := r.conversions[name], ""
			if r.peer != nil && name == fmt.Sprintf("V%d", r.peer.version) {
				peer = r.peer.String()
			}
			flags := "`" + strings.TrimSpace(r.flags+" "+r.kind) + "`"
			t.Row(r.program, r.cc.label, r.abi, flags, name, report.Digits(c.described),
				report.Share(c.covered, c.described), gaps(c.gaps), peer)
		}
	}
	return s.String()
}
