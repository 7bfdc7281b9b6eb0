// Package amounts defines how code is counted. All packages and reports use these names and definitions.
package amounts

// Amounts says how much code can be unwound, in bytes.
type Amounts struct {
	Code       uint64 `json:"code"`       // excluding padding, and start-up code without rows; 0 if not counted
	Unwindable uint64 `json:"unwindable"` // part of Code: Covered and PLT
	Described  uint64 `json:"described"`  // code with CFI or inferred rows
	Covered    uint64 `json:"covered"`    // part of Described with rows, or without a caller (Outermost)
	Outermost  uint64 `json:"outermost"`  // part of Covered without rows, where stack traces end
	PLT        uint64 `json:"plt"`        // PLT stubs without CFI that have rows
	// Part of Covered whose rows are inferred from instructions.
	Inferred uint64 `json:"inferred,omitempty"`
	Padding  uint64 `json:"padding,omitempty"` // padding after functions that has their last rows
}

// Add adds other amounts.
func (a *Amounts) Add(b *Amounts) {
	a.Code += b.Code
	a.Unwindable += b.Unwindable
	a.Described += b.Described
	a.Covered += b.Covered
	a.Outermost += b.Outermost
	a.PLT += b.PLT
	a.Inferred += b.Inferred
	a.Padding += b.Padding
}

// Rows returns the part of Covered with rows.
func (a *Amounts) Rows() uint64 { return a.Covered - a.Outermost }

// SetCode sets Code and Unwindable.
func (a *Amounts) SetCode(code uint64) {
	a.Code = code
	a.Unwindable = min(a.Covered+a.PLT, code) // other tools may write rows for padding
}

// UnwindablePercent returns the unwindable code as a percentage of all code.
func (a *Amounts) UnwindablePercent() float64 { return Percent(a.Unwindable, a.Code) }

// CoveredPercent returns the covered code as a percentage of the described code.
func (a *Amounts) CoveredPercent() float64 { return Percent(a.Covered, a.Described) }

// Percent returns part/whole as a percentage, or 100 if whole is 0.
func Percent(part, whole uint64) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// Restricted counts parts of Amounts.Covered whose rows not all readers can use in all frames.
type Restricted struct {
	Topmost uint64 `json:"topmost"` // rules name registers other than SP and FP, which only the topmost frame has
	// Topmost, and code whose RA or FP is relative to SP or FP instead of the CFA: the patch series for Linux
	// (kernel/unwind/user.c) applies such rules only in the topmost frame.
	TopmostLinux uint64 `json:"topmost_linux"`
	OnlyV3       uint64 `json:"only_v3"` // V1 and V2 cannot express the rows
}

// Add adds other amounts.
func (r *Restricted) Add(s *Restricted) {
	r.Topmost += s.Topmost
	r.TopmostLinux += s.TopmostLinux
	r.OnlyV3 += s.OnlyV3
}
