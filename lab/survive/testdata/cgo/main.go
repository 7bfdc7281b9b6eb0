// The Go subject with C code, which the C compiler links.
package main

/*
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void sort(int *numbers, int n) { qsort(numbers, n, sizeof *numbers, compare); }
*/
import "C"

import (
	"fmt"
	"runtime"
)

func main() {
	numbers := []C.int{3, 1, 2}
	C.sort(&numbers[0], C.int(len(numbers)))
	runtime.GC()
	fmt.Println(numbers, C.strlen(C.CString("from C")))
}
