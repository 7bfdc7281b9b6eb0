// Package toolchains compiles real programs by compilers of several versions with the flags that change stack frames,
// converts the results, and checks them. It is run by scripts/lab toolchains.
package toolchains

import (
	"fmt"
	"os"
	"regexp"
	"time"

	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("toolchains", "", 0, 0)
	var d directories
	c.StringVar(&d.peers, "peers", "/var/cache/cfi2sframe-peers", "`DIR` of scripts/peers")
	c.StringVar(&d.toolchains, "toolchains", "/var/cache/cfi2sframe-toolchains", "`DIR` of the other suites")
	c.StringVar(&d.sources, "sources", "", "`DIR` with a directory of sources for each program")
	minutes := c.Float64("minutes", 0, "begin no case after `N` minutes; 0 stands for all cases")
	match := c.String("match", "", "only cases whose name this `REGEXP` matches")
	list := c.Bool("list", false, "print the names of the cases")
	table := c.String("markdown", "", "write a table of all cases to `FILE`")
	c.Run = func([]string) error { return run(&d, *minutes, *match, *list, *table) }
	return c
}

func run(d *directories, minutes float64, match string, list bool, markdown string) error {
	only, err := regexp.Compile(match)
	if err != nil {
		return err
	}
	begin := time.Now()
	var found error
	left := 0
	var cases []*result
	for _, c := range matrix() {
		switch {
		case !only.MatchString(c.String()):
			continue
		case list:
			fmt.Println(&c)
			continue
		case minutes > 0 && time.Since(begin).Minutes() > minutes:
			left++
			continue
		}
		r, err := d.try(&c)
		if err != nil {
			found = kit.ErrFound
			fmt.Printf("%v: failed: %v\n", &c, err)
			continue
		}
		fmt.Println(r)
		for _, f := range r.failures {
			found = kit.ErrFound
			fmt.Printf("%v: wrong: %s\n", &c, f)
		}
		cases = append(cases, r)
	}
	if list {
		return nil
	}
	fmt.Printf("%d cases, %d not run\n", len(cases), left)
	if markdown != "" {
		if err := os.WriteFile(markdown, []byte(table(cases, left)), 0o666); err != nil {
			return err
		}
	}
	return found
}

// try builds a case and checks it.
func (d *directories) try(c *testCase) (*result, error) {
	b, err := d.build(c)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(b.dir)
	return d.check(c, b)
}
