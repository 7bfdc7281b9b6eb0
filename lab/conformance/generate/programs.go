package generate

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/readback"
	"cfi2sframe/lab/conformance"
	"cfi2sframe/lab/conformance/vector"
	"cfi2sframe/sframe"
)

// fixtures are programs below testdata/bin, by format and machine.
var fixtures = []struct {
	form
	names string
}{
	{form{"1", amd64}, "prologue remember bigframe plt"},
	{form{"1", aarch64}, "prologue pac"},
	{form{"1", aarch64BE}, "prologue"},
	{form{"2", amd64}, "padding alloca bigframe cold drap1 fprules plt plt-ibt prologue racolumn remember repeat " +
		"restored signal undefra"},
	{form{"2", aarch64}, "bigframe expr fponly pac prologue racolumn"},
	{form{"2", aarch64BE}, "pac"},
	{form{"2e1", amd64}, "padding plt prologue"},
	{form{"2e1", aarch64}, "pac"},
	{form{"2e1", s390x}, "offsets plt prologue stackclash"},
	{form{"2e2", amd64}, "undefra"},
	{form{"3", amd64}, "padding bigframe drap1 drap2.so drap3 far.so fprules plt plt-ibt prologue racolumn rareg.so " +
		"rbxcfa.so remember repeat signal undefra"},
	{form{"3", aarch64}, "expr fponly pac racolumn"},
	{form{"3", aarch64BE}, "expr pac"},
	{form{"3", s390x}, "offsets plt prologue stackclash"},
}

// fixturePadding is how many bytes of padding follow functions of testdata/bin/amd64/padding, as nm and objdump print
// them. Other functions may be followed by code.
var fixturePadding = map[string]uint64{
	"same": 15, "back": 13, "call": 10, "jump": 12, "method": 10, "zeros": 10, "int3": 10, "most": 63, "last": 10,
}

// pads returns the padding by where it begins.
func pads(f *elffile.File) (map[uint64]uint64, error) {
	out := make(map[uint64]uint64)
	err := f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
		if size := fixturePadding[f.SymbolName(table, s.Name)]; size > 0 {
			out[s.Value+s.Size] = size
		}
	})
	return out, err
}

// programs returns the vectors of converted programs.
func programs(top string) (map[string][]vector.Vector, error) {
	out := make(map[string][]vector.Vector)
	for _, x := range fixtures {
		for _, name := range strings.Fields(x.names) {
			path := filepath.Join("testdata/bin", x.name, name)
			opt := convert.Options{
				Version: sframe.Version(x.version()), PCRel: x.format == "2e1" && x.name != "s390x",
				Outermost: x.format == "2e2", NoPadding: name != "padding",
			}
			f, err := converted(filepath.Join(top, path), opt)
			if err != nil {
				return nil, err
			}
			about := "what cfi2sframe makes of a program, and what its call frame information says"
			v, err := x.vector("programs", "program-"+strings.TrimSuffix(name, ".so"), about, path, f)
			if err != nil {
				return nil, err
			}
			var padded map[uint64]uint64
			if name == "padding" {
				v.Name, v.Feature = x.String()+"/padding-program", "padding"
				v.About += ", with the padding after functions, which has their last rows"
				if padded, err = pads(f); err != nil {
					return nil, err
				}
			}
			if v.Expect, err = x.fromCFI(f, padded); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if len(v.Expect) == 0 {
				return nil, fmt.Errorf("%s: its call frame information says nothing", path)
			}
			out["program-v"+x.format] = append(out["program-v"+x.format], *v)
		}
	}
	return out, nil
}

// converted returns the result of converting a file.
func converted(path string, opt convert.Options) (*elffile.File, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var result bytes.Buffer
	if _, err := convert.Convert(context.Background(), bytes.NewReader(b), int64(len(b)), &result, opt); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return elffile.New(bytes.NewReader(result.Bytes()), int64(result.Len()))
}

// vector returns a vector of the section of a file, without answers.
func (f form) vector(feature, name, about, source string, from *elffile.File) (*vector.Vector, error) {
	s := from.Section(sframe.SectionName)
	if s == nil {
		return nil, fmt.Errorf("%s: no %s", source, sframe.SectionName)
	}
	data, err := from.ReadSection(s)
	return &vector.Vector{
		Name: f.String() + "/" + name, Feature: feature, Format: f.format, ABI: f.name,
		About: about, Source: source, Address: vector.Hex(s.Addr), Section: data,
	}, err
}

// A span is a range of addresses.
type span struct {
	Begin vector.Hex `json:"begin"`
	End   vector.Hex `json:"end"`
}

// stubs returns the sections of PLT stubs: SFrame describes more of them than CFI.
func stubs(f *elffile.File) (out []span) {
	for _, s := range f.Sections {
		if strings.Contains(s.Name, "plt") && elf.SectionFlag(s.Flags)&elf.SHF_EXECINSTR != 0 {
			out = append(out, span{vector.Hex(s.Addr), vector.Hex(s.Addr + s.Size)})
		}
	}
	return out
}

// fromCFI is answers for a file.
func (f form) fromCFI(file *elffile.File, padded map[uint64]uint64) (vector.Expects, error) {
	table, err := cfi.Load(file, cfi.Auto, nil)
	if err != nil {
		return nil, err
	}
	return f.answers(table, stubs(file), padded)
}

// answers returns the answers for every pc by CFI, as far as the form can have them. Padding has the row before it.
func (f form) answers(table *cfi.Table, plts []span, padded map[uint64]uint64) (vector.Expects, error) {
	known, err := readback.New(table.Machine, f.order, nil)
	if err != nil {
		return nil, err
	}
	var out vector.Expects
	end := uint64(0)
	for fn := range table.Functions() {
		if end != 0 && !overlaps(plts, end, fn.Begin) {
			out.Add(end, fn.Begin, nil)
		}
		end = fn.End
		for r := range fn.Rows() {
			if r.End == fn.End {
				r.End += padded[fn.End]
				end = r.End
			}
			for pc := r.Begin; pc < r.End; {
				next := r.End
				row, said := f.answer(known, fn, r.Rules, pc)
				if r.CFA.Rule == cfi.RuleExpression {
					next = pc + 1 // the expression may depend on the pc
				}
				if said {
					out.Add(pc, next, row)
				}
				pc = next
			}
		}
	}
	return out, nil
}

// overlaps reports whether a range overlaps one of the spans.
func overlaps(spans []span, begin, end uint64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return uint64(s.Begin) < end && begin < uint64(s.End) })
}

// answer returns the row for rules at a pc, or nil if the form cannot have it; ok is false if the rules say nothing.
func (f form) answer(known *readback.Reader, fn *cfi.Function, r *cfi.Rules, pc uint64) (row *vector.Row, ok bool) {
	ra := uint64(map[string]int{"amd64": 16, "aarch64": 30, "aarch64_be": 30, "s390x": 14}[f.name])
	row = &vector.Row{Signal: fn.Signal()}
	// At the end of functions with a realigned stack, GCC's CFI is wrong: rbp, saved where it points, is restored.
	if f.version() == 3 && f.name == "amd64" && r.CFA.Rule == cfi.RuleCFA && r.FP.Rule == cfi.RuleExpression &&
		slices.Equal(r.FP.Expression, []byte{0x76, 0}) {
		return nil, false
	}
	if r.RA.Rule == cfi.RuleUndefined {
		if f.version() == 3 || f.format == "2e2" {
			return &vector.Row{Outermost: true, Signal: fn.Signal()}, true
		}
		return nil, true
	}
	switch r.CFA.Rule {
	case cfi.RuleCFA:
		row.CFA = &vector.Rule{Base: f.register(fmt.Sprint("r", r.CFA.Reg)), Offset: r.CFA.Offset}
	case cfi.RuleExpression:
		if row.CFA, ok = f.evaluate(known, r.CFA.Expression, pc, false); !ok {
			return nil, true
		}
	default:
		return nil, true
	}
	// The caller's stack pointer is the CFA in all forms, on s390x 160 bytes below.
	switch r.SP.Rule {
	case cfi.RuleArchitectural, cfi.RuleSameVal:
	case cfi.RuleValOffset:
		if r.SP.Offset != -f.bias {
			return nil, true
		}
	case cfi.RuleExpression:
		if e, ok := f.evaluate(known, r.SP.Expression, pc, true); !ok || e.String() != row.CFA.String() {
			return nil, true
		}
	default:
		if f.name != "s390x" { // functions of s390x save it, but the CFA gives it
			return nil, true
		}
	}
	if row.RA, ok = f.saved(known, &r.RA, pc); !ok {
		return nil, true
	}
	switch {
	case row.RA != nil:
		if f.tracksRA && row.RA.String() == fmt.Sprintf("r%d+0", ra) {
			row.RA = nil
		}
	case r.RAReg == uint64(f.sp):
		return nil, false // no address
	case r.RAReg != ra:
		row.RA = &vector.Rule{Base: f.register(fmt.Sprint("r", r.RAReg))}
	case !f.tracksRA:
		return nil, false // unknown return address
	}
	if row.FP, ok = f.saved(known, &r.FP, pc); !ok || r.FP.Rule == cfi.RuleUndefined {
		return nil, true
	}
	if row.FP != nil && row.FP.String() == "fp+0" {
		row.FP = nil
	}
	switch r.Sign {
	case cfi.Signed:
		row.Signed = "A"
		if fn.KeyB() {
			row.Signed = "B"
		}
	case cfi.Unsigned:
	default:
		return nil, true
	}
	row = row.Normal()
	if !f.has(row) {
		return nil, true
	}
	return row, true
}

// register returns a base by its DWARF name.
func (f form) register(name string) string {
	switch name {
	case fmt.Sprint("r", f.sp):
		return "sp"
	case fmt.Sprint("r", f.fp):
		return "fp"
	}
	return name
}

// saved returns the rule of a register, or nil if it is unchanged, and whether a form can have it.
func (f form) saved(known *readback.Reader, r *cfi.Rule, pc uint64) (*vector.Rule, bool) {
	cfa := readback.Value{Base: "cfa"} // on the stack when an expression begins
	switch r.Rule {
	case cfi.RuleArchitectural, cfi.RuleSameVal, cfi.RuleUndefined:
		return nil, true
	case cfi.RuleOffset:
		return &vector.Rule{Base: "cfa", Offset: r.Offset, Deref: true}, true
	case cfi.RuleRegister:
		return &vector.Rule{Base: f.register(fmt.Sprint("r", r.Reg))}, true
	case cfi.RuleValOffset:
		return &vector.Rule{Base: "cfa", Offset: r.Offset}, true
	case cfi.RuleExpression:
		return f.evaluate(known, r.Expression, pc, true, cfa)
	case cfi.RuleValExpression:
		return f.evaluate(known, r.Expression, pc, false, cfa)
	}
	return nil, false
}

var (
	sum  = regexp.MustCompile(`^(cfa|r\d+)$`)
	load = regexp.MustCompile(`^\[(cfa|r\d+)([+-]\d+)\]$`)
)

// evaluate returns the rule of an expression: a register or the CFA plus an offset, or the memory there. With memory,
// the expression is the address of the value.
func (f form) evaluate(
	known *readback.Reader, e []byte, pc uint64, memory bool, initial ...readback.Value,
) (*vector.Rule, bool) {
	v, err := known.Evaluate(e, pc, initial...)
	if err != nil {
		return nil, false
	}
	if sum.MatchString(v.Base) {
		return &vector.Rule{Base: f.register(v.Base), Offset: int64(v.N), Deref: memory}, true
	}
	m := load.FindStringSubmatch(v.Base)
	if m == nil || v.N != 0 || memory {
		return nil, false
	}
	offset, err := strconv.ParseInt(m[2], 10, 64)
	return &vector.Rule{Base: f.register(m[1]), Offset: offset, Deref: true}, err == nil
}

// has reports whether the form can have a row.
func (f form) has(r *vector.Row) bool {
	fits := func(rule *vector.Rule) bool {
		return rule == nil || rule.Offset >= math.MinInt32 && rule.Offset <= math.MaxInt32
	}
	slot := func(rule *vector.Rule) bool { return rule == nil || rule.Base == "cfa" && rule.Deref }
	if !fits(r.CFA) || !fits(r.RA) || !fits(r.FP) || (r.CFA.Offset-f.bias)%f.scale != 0 {
		return false
	}
	if f.version() == 3 {
		// A control word of 0 is no rule. The CFA's register can stand for it, if there is one.
		zero := func(rule *vector.Rule) bool { return rule != nil && rule.Base == "cfa" && !rule.Deref && r.CFA.Deref }
		return !zero(r.RA) && !zero(r.FP)
	}
	if r.Signal || r.CFA.Deref || r.CFA.Base != "sp" && r.CFA.Base != "fp" {
		return false
	}
	switch f.name {
	case "amd64":
		return r.RA.String() == "*(cfa-8)" && slot(r.FP)
	case "s390x":
		word := func(rule *vector.Rule) bool {
			register := func() bool { return rule.Base != "cfa" && !rule.Deref && rule.Offset == 0 }
			return rule == nil || slot(rule) && rule.Offset%2 == 0 || register()
		}
		return word(r.RA) && word(r.FP) && r.RA.String() != "*(cfa+0)"
	}
	return slot(r.RA) && slot(r.FP) && (r.FP == nil || r.RA != nil) && r.RA.String() != "*(cfa+0)"
}

// A Linked is a section of GNU as and ld, and its source.
type Linked struct {
	Writer  string       `json:"writer"`
	Source  string       `json:"source"`
	ABI     string       `json:"abi"`
	Machine elf.Machine  `json:"machine"`
	Address vector.Hex   `json:"address"`
	Section vector.Bytes `json:"section"`
	EHAddr  vector.Hex   `json:"eh_address"`
	EHFrame vector.Bytes `json:"eh_frame"`
	Stubs   []span       `json:"stubs,omitempty"`
}

// A Mistake is a range where the section of a writer contradicts the CFI.
type Mistake struct {
	Writer string     `json:"writer"`
	Source string     `json:"source"`
	From   vector.Hex `json:"from"`
	To     vector.Hex `json:"to"`
	Said   string     `json:"said"`
	CFI    string     `json:"cfi"`
}

// linkedFile has the sections of GNU as and ld.
const linkedFile = "lab/conformance/generate/testdata/gnu.json"

// gnuVectors returns the vectors of sections of GNU as and ld. Where they contradict the CFI, nothing is expected of
// readers: these are mistakes of the writer.
func gnuVectors(top string) (vectors []vector.Vector, mistakes []Mistake, err error) {
	b, err := os.ReadFile(filepath.Join(top, linkedFile))
	if err != nil {
		return nil, nil, err
	}
	var all []Linked
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, nil, err
	}
	machines := map[string]machine{"amd64": amd64, "aarch64": aarch64, "s390x": s390x}
	for _, l := range all {
		f := form{fmt.Sprint(l.Section[2]), machines[l.ABI]}
		v := vector.Vector{
			Name:    fmt.Sprintf("%v/gnu-%s-%s", f, l.Writer, strings.TrimSuffix(filepath.Base(l.Source), ".s")),
			Feature: "gnu", Format: f.format, ABI: l.ABI,
			About: "what as and ld of binutils " + l.Writer +
				" make of a source, and what its call frame information says",
			Source: l.Source, Address: l.Address, Section: l.Section,
		}
		table, err := cfi.Parse(l.Machine, f.order, cfi.Section{
			Source: cfi.EHFrame, Data: l.EHFrame, Addr: uint64(l.EHAddr),
		})
		if err != nil {
			return nil, nil, err
		}
		expect, err := f.answers(table, l.Stubs, nil)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range expect {
			for _, part := range split(e, &v) {
				switch part.said {
				case "":
					v.Expect = append(v.Expect, part.Expect)
					continue
				case "none":
					continue // a missing row is no mistake
				}
				m := Mistake{l.Writer, l.Source, part.From, part.To, part.said, part.Row.String()}
				mistakes = append(mistakes, m)
			}
		}
		if len(v.Expect) > 0 {
			vectors = append(vectors, v)
		}
	}
	return vectors, mistakes, nil
}

// A part is a part of an Expect; said is the section's answer if it differs.
type part struct {
	vector.Expect
	said string
}

// split divides what is expected by the answers of our own reader.
func split(e vector.Expect, v *vector.Vector) (out []part) {
	q := vector.Question{ABI: v.ABI, Address: v.Address, Section: v.Section}
	for pc := e.From; pc < e.To; pc++ {
		q.PCs = append(q.PCs, pc)
	}
	reply := conformance.Own(&q)
	for i, pc := range q.PCs {
		said := ""
		if reply.Refused != "" {
			said = "refused: " + reply.Refused
		} else if a := reply.Answers[i]; !vector.Same(a, e.Row) {
			said = a.String()
		}
		if n := len(out); n > 0 && out[n-1].said == said {
			out[n-1].To = pc + 1
			continue
		}
		out = append(out, part{vector.Expect{From: pc, To: pc + 1, Row: e.Row}, said})
	}
	return out
}
