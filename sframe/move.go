package sframe

// Move adjusts the FDE start addresses in data, which holds a section, for a new section address.
func Move(data []byte, from, to uint64) error {
	s, err := Decode(data, from)
	if err != nil {
		return err
	}
	for i := range s.Len() {
		at := s.fdes + i*s.codec.layout.FDESize
		field, order := data[at:], s.codec.order
		if s.codec.layout.StartSize == 8 {
			order.PutUint64(field, order.Uint64(field)+from-to)
			continue
		}
		v := int64(int32(order.Uint32(field))) + int64(from-to)
		if v != int64(int32(v)) {
			return errorf(at, "FDE %d starts more than 2 GiB from a section at %#x", i, to)
		}
		order.PutUint32(field, uint32(v))
	}
	return nil
}
