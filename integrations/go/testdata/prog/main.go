// The command prog says what its library does.
package main

import (
	"fmt"

	"sample/lib"
)

func main() {
	fmt.Println(lib.Double(21))
}
