//go:build portable

package main

const portable = true
