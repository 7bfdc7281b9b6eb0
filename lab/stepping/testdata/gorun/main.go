// Command gorun keeps Go's runtime busy, N times: goroutines whose stacks grow, channels, panics, garbage.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
)

func grow(n int) int {
	var b [200]byte
	b[n%200] = 1
	if n == 0 {
		return 0
	}
	return grow(n-1) + int(b[n%200])
}

func fail(p *int) (err any) {
	defer func() { err = recover() }()
	return *p
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	total := 0
	for range n {
		var wg sync.WaitGroup
		ch := make(chan int, 3)
		for i := range 8 {
			wg.Go(func() { ch <- grow(i * 40) })
		}
		go func() { wg.Wait(); close(ch) }()
		var all []int
		for v := range ch {
			all = append(all, v)
		}
		sort.Ints(all)
		runtime.GC()
		m := make(map[string]int)
		for i := range 100 {
			m[strings.Repeat("x", i%10)+strconv.Itoa(i)] = i
		}
		total += len(fmt.Sprint(all, fail(nil), len(m)))
	}
	fmt.Println(total)
}
