package vector

// A Hello is an adapter's first line: the name of its reader, and what it claims to support.
type Hello struct {
	Reader  string   `json:"reader"`
	Formats []string `json:"formats"`
	ABIs    []string `json:"abis"`
	// Properties that the reader cannot express: signed, key, signal. Answers are compared without them.
	Cannot []string `json:"cannot,omitempty"`
}

// A Question is a line of an adapter's input. File names a file with the same bytes as Section.
type Question struct {
	ID      int    `json:"id"`
	ABI     string `json:"abi"`
	Address Hex    `json:"address"`
	PCs     []Hex  `json:"pcs"`
	File    string `json:"file"`
	Section Bytes  `json:"section"`
}

// A Reply is a line of an adapter's output: the reason why the reader refuses the section, a row or null for each pc,
// or the signal that killed the reader.
type Reply struct {
	ID      int    `json:"id"`
	Refused string `json:"refused,omitempty"`
	Ended   string `json:"ended,omitempty"` // the signal that killed the reader
	Answers []*Row `json:"answers,omitempty"`
}
