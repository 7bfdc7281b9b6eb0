package amounts

import (
	"reflect"
	"testing"
)

// fill sets each field of a struct to a different number, times n.
func fill(v any, n uint64) {
	s := reflect.ValueOf(v).Elem()
	for i := range s.NumField() {
		s.Field(i).SetUint(n * uint64(i+1))
	}
}

// TestAdd expects all fields to be added.
func TestAdd(t *testing.T) {
	var a, b, sum Amounts
	fill(&a, 1)
	fill(&b, 10)
	fill(&sum, 11)
	if a.Add(&b); a != sum {
		t.Errorf("%+v; want %+v", a, sum)
	}
	var r, s, total Restricted
	fill(&r, 1)
	fill(&s, 10)
	fill(&total, 11)
	if r.Add(&s); r != total {
		t.Errorf("%+v; want %+v", r, total)
	}
}
