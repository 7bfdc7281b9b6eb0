package vector

// A Hello is the first line that an adapter writes: its reader, and what that claims to read.
type Hello struct {
	Reader  string   `json:"reader"`
	Formats []string `json:"formats"`
	ABIs    []string `json:"abis"`
	// Cannot lists what the reader cannot say: signed, key, signal. Answers are compared without it.
	Cannot []string `json:"cannot,omitempty"`
}

// A Question is a line that an adapter reads. The section's bytes are also in the file.
type Question struct {
	ID      int    `json:"id"`
	ABI     string `json:"abi"`
	Address Hex    `json:"address"`
	PCs     []Hex  `json:"pcs"`
	File    string `json:"file"`
	Section Bytes  `json:"section"`
}

// A Reply is the line that the adapter writes: why the section is refused, or a row or null for each pc, or that the
// reader ended by a signal.
type Reply struct {
	ID      int    `json:"id"`
	Refused string `json:"refused,omitempty"`
	Ended   string `json:"ended,omitempty"` // the signal that ended the reader
	Answers []*Row `json:"answers,omitempty"`
}
