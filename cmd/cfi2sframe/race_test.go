//go:build race

package main

// racing says that the race detector is enabled, which costs time and memory.
const racing = true
