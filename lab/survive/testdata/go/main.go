// The Go subjects: threads, the garbage collector, and the runtime's own stack traces.
package main

import (
	"fmt"
	"runtime"
	"sort"
	"sync"
)

func main() {
	var wg sync.WaitGroup
	sums := make([]int, 8)
	for i := range sums {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			for _, b := range make([]byte, 1<<16) {
				sums[i] += int(b) + i
			}
			runtime.GC()
		}(i)
	}
	wg.Wait()
	sort.Sort(sort.Reverse(sort.IntSlice(sums)))
	fmt.Println(sums, caught())
}

func caught() (message string) {
	defer func() {
		pc, _, _, _ := runtime.Caller(2)
		message = fmt.Sprint(recover(), " in ", runtime.FuncForPC(pc).Name())
	}()
	var empty []int
	return fmt.Sprint(empty[len(message)])
}
