// The library cshared is for C.
package main

import "C"

import "sample/lib"

//export double_it
func double_it(x C.int) C.int { return C.int(lib.Double(int(x))) }

func main() {}
