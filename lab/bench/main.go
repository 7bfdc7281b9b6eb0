// Package bench measures alternating runs of commands, and prints medians. scripts/bench uses it.
package bench

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"cfi2sframe/lab/kit"
)

// Command returns the subcommand.
func Command() *kit.Command {
	c := kit.New("bench", "COMMAND...", 1, math.MaxInt)
	rounds := c.Int("rounds", 7, "number of runs of each command")
	out := c.String("out", "", "remove `FILE` before each run: replacing a large file takes time")
	c.Run = func(commands []string) error {
		var runs []func() ([]float64, error)
		for _, command := range commands {
			runs = append(runs, func() ([]float64, error) {
				_ = os.Remove(*out) // it may not exist
				return measure(strings.Fields(command))
			})
		}
		medians, err := kit.Turns(*rounds, runs)
		if err != nil {
			return err
		}
		t := kit.NewTable(os.Stdout, fmt.Sprint("medians of ", *rounds), ">wall, ms", ">CPU, ms", ">peak, MiB",
			">x the first")
		for i, m := range medians {
			t.Row(commands[i], fmt.Sprintf("%.2f", m[0]), fmt.Sprintf("%.2f", m[1]), fmt.Sprintf("%.0f", m[2]),
				fmt.Sprintf("%.2f", m[0]/medians[0][0]))
		}
		fmt.Println()
		return nil
	}
	return c
}

// measure runs a command. It returns wall time and CPU time in ms, and peak memory in MiB.
func measure(command []string) ([]float64, error) {
	cmd := exec.Command(command[0], command[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, errs.String())
	}
	wall, state := time.Since(start), cmd.ProcessState
	memory := float64(state.SysUsage().(*syscall.Rusage).Maxrss) / 1024
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return []float64{ms(wall), ms(state.UserTime() + state.SystemTime()), memory}, nil
}
