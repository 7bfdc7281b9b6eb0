package vector

// A Hello is the first line that an adapter writes: who it stands for, and what that claims to read.
type Hello struct {
	Reader  string   `json:"reader"`
	Formats []string `json:"formats"`
	ABIs    []string `json:"abis"`
	// Cannot lists what the reader has no words for: signed, key, signal. Answers are compared without it.
	Cannot []string `json:"cannot,omitempty"`
}

// A Question is a line that an adapter reads. The section's bytes are there, and in the file, too.
type Question struct {
	ID      int    `json:"id"`
	ABI     string `json:"abi"`
	Address Hex    `json:"address"`
	PCs     []Hex  `json:"pcs"`
	File    string `json:"file"`
	Section Bytes  `json:"section"`
}

// A Reply is the line that it writes for that: why the section is refused, or an answer for each pc, which is null
// if there is none, or that the reader ended by a signal.
type Reply struct {
	ID      int    `json:"id"`
	Refused string `json:"refused,omitempty"`
	Ended   string `json:"ended,omitempty"` // by which signal, if the reader did not come so far
	Answers []*Row `json:"answers,omitempty"`
}
