package dwline

// A form is that of an attribute's value (DWARF 5, section 7.5.6; those from 0x1f00 on are GNU's).
type form uint64

const (
	formAddr          form = 0x01
	formBlock2        form = 0x03
	formBlock4        form = 0x04
	formData2         form = 0x05
	formData4         form = 0x06
	formData8         form = 0x07
	formString        form = 0x08
	formBlock         form = 0x09
	formBlock1        form = 0x0a
	formData1         form = 0x0b
	formFlag          form = 0x0c
	formSdata         form = 0x0d
	formStrp          form = 0x0e
	formUdata         form = 0x0f
	formRefAddr       form = 0x10
	formRef1          form = 0x11
	formRef2          form = 0x12
	formRef4          form = 0x13
	formRef8          form = 0x14
	formRefUdata      form = 0x15
	formIndirect      form = 0x16
	formSecOffset     form = 0x17
	formExprloc       form = 0x18
	formFlagPresent   form = 0x19
	formStrx          form = 0x1a
	formAddrx         form = 0x1b
	formRefSup4       form = 0x1c
	formStrpSup       form = 0x1d
	formData16        form = 0x1e
	formLineStrp      form = 0x1f
	formRefSig8       form = 0x20
	formImplicitConst form = 0x21
	formLoclistx      form = 0x22
	formRnglistx      form = 0x23
	formRefSup8       form = 0x24
	formStrx1         form = 0x25
	formStrx2         form = 0x26
	formStrx3         form = 0x27
	formStrx4         form = 0x28
	formAddrx1        form = 0x29
	formAddrx2        form = 0x2a
	formAddrx3        form = 0x2b
	formAddrx4        form = 0x2c
	formGNUAddrIndex  form = 0x1f01
	formGNUStrIndex   form = 0x1f02
	formGNURefAlt     form = 0x1f20
	formGNUStrpAlt    form = 0x1f21
)

// isIndex reports whether the value is an index of an address.
func (f form) isIndex() bool {
	return f == formAddrx || f >= formAddrx1 && f <= formAddrx4 || f == formGNUAddrIndex
}

// isAddress reports whether the value is an address, and not a distance.
func (f form) isAddress() bool { return f == formAddr || f.isIndex() }

// sizes are those of forms that always have the same, in bytes.
var sizes = map[form]int{
	formData1: 1, formFlag: 1, formRef1: 1, formStrx1: 1, formAddrx1: 1,
	formData2: 2, formRef2: 2, formStrx2: 2, formAddrx2: 2,
	formStrx3: 3, formAddrx3: 3,
	formData4: 4, formRef4: 4, formRefSup4: 4, formStrx4: 4, formAddrx4: 4,
	formData8: 8, formRef8: 8, formRefSig8: 8, formRefSup8: 8,
}

// value reads a value of a form. Of blocks nothing is kept.
func (r *reader) value(version, addrSize int, f form, implicit int64) value {
	v := value{form: f}
	if n, ok := sizes[f]; ok {
		v.n = r.uint(n)
		return v
	}
	switch f {
	case formAddr:
		v.n = r.uint(addrSize)
	case formStrp, formSecOffset, formStrpSup, formLineStrp, formGNURefAlt, formGNUStrpAlt:
		v.n = r.offset()
	case formRefAddr:
		if version < 3 {
			v.n = r.uint(addrSize)
		} else {
			v.n = r.offset()
		}
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		v.n = r.uleb()
	case formSdata:
		v.n = uint64(r.sleb())
	case formImplicitConst:
		v.n = uint64(implicit)
	case formFlagPresent:
		v.n = 1
	case formString:
		v.inline = r.text()
	case formData16:
		r.skip(16)
	case formBlock1:
		r.skip(r.uint(1))
	case formBlock2:
		r.skip(r.uint(2))
	case formBlock4:
		r.skip(r.uint(4))
	case formBlock, formExprloc:
		r.skip(r.uleb())
	case formIndirect:
		f := form(r.uleb())
		if f == formIndirect || f == formImplicitConst {
			r.fail("form %#x of an indirect value", uint64(f))
			break
		}
		return r.value(version, addrSize, f, 0)
	default:
		r.fail("form %#x is not known", uint64(f))
	}
	return v
}

// text returns a value that is a string.
func (x *finder) text(u *unit, v value) (string, error) {
	switch v.form {
	case formString:
		return v.inline, nil
	case formStrp:
		return x.textAt(x.str, v.n)
	case formLineStrp:
		return x.textAt(x.lineStr, v.n)
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4:
		size := 4
		if u.wide {
			size = 8
		}
		off, err := x.entry(x.strOffsets, u.attrs[attrStrOffsetsBase].n, v.n, size)
		if err != nil {
			return "", err
		}
		return x.textAt(x.str, off)
	}
	return "", nil // it is in another file
}
