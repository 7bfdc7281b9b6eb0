// The command prog prints a result of its library.
package main

import (
	"fmt"

	"sample/lib"
)

func main() {
	fmt.Println(lib.Double(21))
}
