// Command toolchains compiles real programs by compilers of several versions with the flags that change stack
// frames, converts what comes out, and judges it. It is run by scripts/lab toolchains.
package toolchains

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/pflag"
)

// Main runs the subcommand.
func Main() {
	var d folders
	pflag.StringVar(&d.peers, "peers", "/var/cache/cfi2sframe-peers", "`FOLDER` of scripts/peers")
	pflag.StringVar(&d.toolchains, "toolchains", "/var/cache/cfi2sframe-toolchains", "`FOLDER` of the other suites, and of what is kept")
	pflag.StringVar(&d.sources, "sources", "", "`FOLDER` with a folder of sources for each program")
	minutes := pflag.Float64("minutes", 0, "begin no case after so many `MINUTES`; 0 stands for all of them")
	match := pflag.String("match", "", "only cases whose name this `REGEXP` matches")
	list := pflag.Bool("list", false, "print the names of the cases")
	table := pflag.String("markdown", "", "write tables of all that is known to `FILE`")
	tableOnly := pflag.Bool("table-only", false, "judge nothing")
	pflag.Parse()
	ok, err := run(&d, *minutes, *match, *list, *tableOnly, *table)
	if err != nil {
		fmt.Fprintln(os.Stderr, "toolchains:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// run returns whether nothing is wrong.
func run(d *folders, minutes float64, match string, list, tableOnly bool, markdown string) (bool, error) {
	only, err := regexp.Compile(match)
	if err != nil {
		return false, err
	}
	tool, err := ownHash()
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(filepath.Join(d.toolchains, "results"), 0o777); err != nil {
		return false, err
	}
	begin := time.Now()
	ok, left := true, 0
	var cases []judged
	for _, c := range matrix() {
		name := c.id()
		if !only.MatchString(name) {
			continue
		}
		if list {
			fmt.Println(name)
			continue
		}
		path := filepath.Join(d.toolchains, "results", name+".json")
		var r result
		err := readJSON(path, &r)
		if err != nil || r.Tool != tool && !tableOnly {
			if tableOnly || minutes > 0 && time.Since(begin).Minutes() > minutes {
				left++
				continue
			}
			made, err := d.judgeCase(&c, tool)
			if err != nil {
				ok = false
				fmt.Printf("%s: failed: %v\n", name, err)
				continue
			}
			r = *made
			if err := writeJSON(path, &r); err != nil {
				return false, err
			}
			fmt.Println(r.line(name))
		}
		for _, f := range r.Failures {
			ok = false
			fmt.Printf("%s: wrong: %s\n", name, f)
		}
		cases = append(cases, judged{c, r})
	}
	if list {
		return true, nil
	}
	fmt.Printf("%d cases, %d left for another time\n", len(cases), left)
	if markdown != "" {
		err = d.markdown(markdown, cases, left)
	}
	return ok, err
}

// judgeCase builds a case and judges it.
func (d *folders) judgeCase(c *testCase, tool string) (*result, error) {
	b, err := d.build(c)
	if err != nil {
		return nil, err
	}
	return d.judge(c, b, tool)
}

// ownHash tells this program from others: results of another one do not count.
func ownHash() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(b)), err
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o666)
}
