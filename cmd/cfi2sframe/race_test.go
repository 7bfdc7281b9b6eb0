//go:build race

package main

// racing says that the race detector is on, which takes time and memory.
const racing = true
