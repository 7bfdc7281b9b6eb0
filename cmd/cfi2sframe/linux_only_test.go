//go:build !portable

package main

const portable = false
