package sframe

// This file says which rows an FDE can hold. The rules of a row are written down as
// data words; their order and meaning depend on the ABI and on the type of the FDE.

// EncodeCFA returns the data word for an offset of the CFA from its base, and
// whether there is one (section "s390x": the offset is adjusted and scaled).
func (a ABI) EncodeCFA(offset int32) (int32, bool) {
	i := a.info()
	v := int64(offset) - int64(i.cfaBias)
	if i.cfaScale == 0 || v%int64(i.cfaScale) != 0 {
		return 0, false
	}
	v /= int64(i.cfaScale)
	return int32(v), v == int64(int32(v))
}

// decodeCFA is the inverse. It reports whether the offset fits.
func (a ABI) decodeCFA(word int32) (int32, bool) {
	i := a.info()
	v := int64(word)*int64(i.cfaScale) + int64(i.cfaBias)
	return int32(v), v == int64(int32(v))
}

// Words are the data words of a row.
type Words struct {
	SP    bool // the CFA's base is SP, not FP (default FDEs)
	Count int
	// Word are the words; those marked in Unsigned are control words.
	Word     [6]int32
	Unsigned [6]bool
}

func (w *Words) add(v int32) {
	w.Word[w.Count] = v
	w.Count++
}

// Default returns the words of a row in a default FDE, and whether it has that form.
func (v Version) Default(a ABI, e *FRE) (w Words, ok bool) {
	if e.Outermost {
		return w, true
	}
	i, l := a.info(), v.layout()
	if e.CFA.Deref || e.CFA.Base != SP && e.CFA.Base != FP {
		return w, false
	}
	w.SP = e.CFA.Base == SP
	cfa, ok := a.EncodeCFA(e.CFA.Offset)
	w.add(cfa)
	slot := func(r Rule) bool {
		switch {
		case r.Base == CFA && r.Deref:
			// Where odd words are register numbers, offsets have to be even.
			if i.regWords && l.RegWords && r.Offset&1 != 0 {
				return false
			}
			w.add(r.Offset)
		case r.Base == Register && !r.Deref && r.Offset == 0 && i.regWords && l.RegWords:
			w.add(int32(r.Reg)<<1 | 1)
		default:
			return false
		}
		return true
	}
	switch {
	case e.RA.Base != None:
		// A word of 0 reads as no rule.
		ok = ok && i.fixedRA == 0 && slot(e.RA) && w.Word[1] != 0
	case e.FP.Base != None && i.fixedRA == 0:
		ok = ok && i.padRA
		w.add(0)
	}
	if e.FP.Base != None {
		ok = ok && slot(e.FP)
	}
	return w, ok
}

// Flexible returns the words of a row in a flexible FDE, and whether it has that
// form.
func (v Version) Flexible(a ABI, e *FRE) (w Words, ok bool) {
	if !v.layout().Flexible {
		return w, false
	}
	if e.Outermost {
		return w, true
	}
	rule := func(r Rule, offset int32) bool {
		c := a.control(r)
		if c == 0 {
			return false // reads as no rule
		}
		w.Unsigned[w.Count] = true
		w.add(c)
		w.add(offset)
		return true
	}
	cfa, ok := a.EncodeCFA(e.CFA.Offset)
	if !ok || e.CFA.Base == None || e.CFA.Base == CFA || !rule(e.CFA, cfa) {
		return w, false
	}
	if e.RA.Base != None {
		ok = rule(e.RA, e.RA.Offset)
	} else if e.FP.Base != None {
		w.Unsigned[w.Count] = true
		w.add(0)
	}
	if e.FP.Base != None {
		ok = ok && rule(e.FP, e.FP.Offset)
	}
	return w, ok
}

// control returns the control word of a rule.
func (a ABI) control(r Rule) int32 {
	c := int32(0)
	switch r.Base {
	case SP:
		c = int32(a.info().sp)<<ControlRegShift | ControlReg
	case FP:
		c = int32(a.info().fp)<<ControlRegShift | ControlReg
	case Register:
		c = int32(r.Reg)<<ControlRegShift | ControlReg
	}
	if r.Deref {
		c |= ControlDeref
	}
	return c
}
