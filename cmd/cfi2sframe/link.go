package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

const linkLong = `Links, and adds an .sframe section to the output. The first form runs PROGRAM,
a linker or a compiler that links; the second runs the linker ld. If cfi2sframe
has the name of a linker (ld, ld.bfd, ld.gold, ld.lld, ld.mold), as in the
directory that cfi2sframe ld --print-dir prints, it runs the linker of that name
that the compiler would have run otherwise:

  gcc -B$(cfi2sframe ld --print-dir) main.o -o prog
  clang -fuse-ld=lld -B$(cfi2sframe ld --print-dir) main.o -o prog
  cargo build --config \
    target.x86_64-unknown-linux-gnu.linker=\"$(cfi2sframe ld --print-dir)/cc\"
  cmake -DCMAKE_C_LINKER_LAUNCHER='cfi2sframe;ld' \
    -DCMAKE_CXX_LINKER_LAUNCHER='cfi2sframe;ld' ...

Programs and shared libraries are converted; objects (-r) and unsupported files
are unchanged. If a program cannot be converted, it is unchanged, and a warning
says why; with --min-coverage in CFI2SFRAME_FLAGS the link fails, and the
program is removed. Otherwise the exit status is that of PROGRAM.

Environment:
  CFI2SFRAME_FLAGS  flags of cfi2sframe, such as '--format 3 --min-coverage 99';
                    without --report or -v nothing is reported
  CFI2SFRAME_LD     path or name of the linker to run`

// linkCommand returns the verb ld. runLinker handles most of its command lines before.
func (c *call) linkCommand() *cobra.Command {
	cmd := newCommand("ld PROGRAM ARG...\nld -- ARG...\nld --print-dir", "link, then convert")
	cmd.Long = linkLong
	cmd.DisableFlagParsing = true
	cmd.Flags().Bool("print-dir", false, "print the directory with linkers that convert their output, for the -B of compilers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return errors.New("ld requires a program, or -- and the arguments of ld")
		case len(args) > 1 && args[0] == "--print-dir":
			return errors.New("--print-dir takes no argument")
		case args[0] == "--print-dir":
			return c.printLinkerDir()
		case len(args) == 1 && (args[0] == "--help" || args[0] == "-h"):
			c.printHelp(cmd, args[0] == "--help")
			return nil
		}
		c.status, _ = runLinker(append([]string{"cfi2sframe", "ld"}, args...), c.stdout, c.stderr)
		return nil
	}
	return cmd
}

// printLinkerDir prints the directory for the -B of compilers.
func (c *call) printLinkerDir() error {
	dir, err := linkersDir()
	if err == nil {
		fmt.Fprintln(c.out, dir)
		return nil
	}
	complain(c.stderr, "--print-dir", err)
	c.status = exitError
	return nil
}
