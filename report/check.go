package report

// A Check is the result of comparing an .sframe with the CFI.
type Check struct {
	Schema     int        `json:"schema"`
	File       string     `json:"file"`
	ABI        string     `json:"abi"`
	Format     int        `json:"format"`
	FDEs       int        `json:"fdes"`
	FREs       uint64     `json:"fres"`
	Sorted     bool       `json:"sorted"`
	Described  uint64     `json:"described"` // bytes of code
	Covered    uint64     `json:"covered"`
	Outermost  uint64     `json:"outermost"`
	PLT        uint64     `json:"plt"`
	Padding    uint64     `json:"padding,omitempty"` // padding after functions that has their last rows
	Mismatches []Mismatch `json:"mismatches"`
}

// A Mismatch is a range of code for which the rows differ.
type Mismatch struct {
	Begin    uint64 `json:"begin"`
	End      uint64 `json:"end"`
	Function string `json:"function,omitempty"`
	Offset   uint64 `json:"offset"`
	What     string `json:"what"`
}

// A Removed is a file whose .sframe was removed.
type Removed struct {
	Schema  int    `json:"schema"`
	File    string `json:"file"`
	Output  string `json:"output,omitempty"`
	Removed bool   `json:"removed"` // always true

	Unsigned bool `json:"signature_removed,omitempty"`
}
