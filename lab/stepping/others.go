package stepping

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"cfi2sframe/lab/step"
	"cfi2sframe/sframe"
)

// An other is an ABI of another machine, whose programs QEMU runs.
type other struct {
	abi, qemu string
	cc, cxx   string // compilers of this machine; "" for none
	sysroot   string // where its libraries are
	ldso      string
	// clang is the target of a compiler in the peers' folder, for programs without a C library, if there is no cc.
	clang string
}

var otherABIs = []other{
	{"aarch64", "qemu-aarch64", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "/usr/aarch64-linux-gnu/lib", "ld-linux-aarch64.so.1", ""},
	{"s390x", "qemu-s390x", "s390x-linux-gnu-gcc", "", "/usr/s390x-linux-gnu/lib", "ld64.so.1", ""},
	{"aarch64_be", "qemu-aarch64_be", "", "", "", "", "aarch64_be-linux-gnu"},
}

// others follows programs for other machines.
func (w *workshop) others(ctx context.Context, opt options, note func(*result, string, bool)) {
	var wg sync.WaitGroup
	cpus := make(chan int, opt.jobs)
	for cpu := range opt.jobs {
		cpus <- cpu
	}
	for _, o := range otherABIs {
		qemu := filepath.Join(opt.peers, "sid/usr/bin", o.qemu)
		if _, err := os.Stat(qemu); err != nil {
			if qemu, err = exec.LookPath(o.qemu + "-static"); err != nil {
				note(nil, fmt.Sprintf("none  %s: %s is not installed", o.abi, o.qemu), !opt.strict)
				continue
			}
		}
		type job struct {
			name  string
			build func(out string) error
			libc  bool
			args  []string
			share uint64 // of ten
		}
		var jobs []job
		src := func(name string) string { return filepath.Join(w.testdata, name) }
		have := func(cc string) bool {
			_, err := exec.LookPath(cc)
			return cc != "" && err == nil
		}
		switch {
		case have(o.cc):
			free, jumps := uint64(2), uint64(8)
			if have(o.cxx) {
				jumps = 4
				jobs = append(jobs, job{"exceptions", func(out string) error { return build(o.cxx, "-O2", "-o", out, src("throws.cc")) }, true, []string{forever}, 4})
			}
			jobs = append(jobs,
				job{"jumps", func(out string) error { return build(o.cc, "-O2", "-DALONE", "-o", out, src("jumps.c"), "-pthread") }, true, []string{forever}, jumps},
				job{"free", func(out string) error {
					return build(o.cc, "-O2", "-ffreestanding", "-nostdlib", "-static", "-fasynchronous-unwind-tables", "-o", out, src("free.c"))
				}, false, nil, free})
		case o.clang != "":
			root := filepath.Join(opt.peers, "sid")
			if _, err := os.Stat(filepath.Join(root, "usr/bin/clang-23")); err == nil {
				jobs = append(jobs, job{"free", func(out string) error { return w.chroot(root, o.clang, out) }, false, nil, 10})
			}
		}
		if len(jobs) == 0 {
			note(nil, fmt.Sprintf("none  %s: no compiler", o.abi), !opt.strict)
		}
		for _, j := range jobs {
			if opt.only != "" && j.name != opt.only && o.abi != opt.only {
				continue
			}
			cpu := <-cpus
			wg.Go(func() {
				defer func() { cpus <- cpu }()
				start := time.Now()
				r, err := w.under(ctx, qemu, o, j.name, j.build, j.libc, j.args, opt.other*j.share/10, cpu)
				if err != nil {
					note(nil, fmt.Sprintf("FAIL  %s %s: %v", o.abi, j.name, err), false)
					return
				}
				r.Seconds = time.Since(start).Seconds()
				note(r, line(r), r.Faults() == 0)
			})
		}
	}
	wg.Wait()
}

// chroot builds the program that needs no C library in the system with clang.
func (w *workshop) chroot(root, target, out string) error {
	dir, err := os.MkdirTemp(filepath.Join(root, "tmp"), "step-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build("cp", filepath.Join(w.testdata, "free.c"), dir); err != nil {
		return err
	}
	inside := strings.TrimPrefix(dir, root)
	if err := build("chroot", root, "clang-23", "--target="+target, "-O2", "-ffreestanding", "-nostdlib", "-static", "-fuse-ld=lld",
		"-fasynchronous-unwind-tables", "-o", inside+"/free", inside+"/free.c"); err != nil {
		return err
	}
	return build("cp", filepath.Join(dir, "free"), out)
}

// under follows a program under QEMU.
func (w *workshop) under(ctx context.Context, qemu string, o other, name string, make func(string) error, libc bool, args []string, steps uint64, cpu int) (*result, error) {
	plain := filepath.Join(w.dir, o.abi+"-"+name)
	if err := make(plain); err != nil {
		return nil, err
	}
	bin := filepath.Join(w.dir, "bin", o.abi+"-"+name)
	if err := w.convert(plain, bin); err != nil {
		return nil, err
	}
	file, run := bin, []string{qemu, bin}
	if libc {
		lib := filepath.Join(w.dir, "lib", o.abi)
		if err := os.MkdirAll(lib, 0o700); err != nil {
			return nil, err
		}
		for _, l := range []string{o.ldso, "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"} {
			from, err := filepath.EvalSymlinks(filepath.Join(o.sysroot, l))
			if errors.Is(err, os.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, err
			}
			if err := w.convert(from, filepath.Join(lib, l)); err != nil {
				return nil, err
			}
		}
		file = filepath.Join(lib, o.ldso)
		run = []string{qemu, file, "--library-path", lib, bin}
	}
	rep, status, err := step.Remote(ctx, file, append(run, args...), step.Options{Made: []sframe.Version{2, 3}, Steps: steps, CPU: cpu})
	if err != nil {
		return nil, err
	}
	r := &result{Subject: name, ABI: o.abi, Version: "", Exit: status, Report: rep}
	if status != 0 {
		return nil, fmt.Errorf("exit status %d", status)
	}
	w.original(r)
	return r, nil
}
