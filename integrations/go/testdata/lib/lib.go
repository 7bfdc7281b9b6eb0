// Package lib doubles.
package lib

// Double returns twice x.
func Double(x int) int { return 2 * x }
