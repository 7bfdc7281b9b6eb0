// Package panics turns a panic, which is a bug, into an error of the file that caused it.
package panics

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// An Error is a panic.
type Error struct {
	Value any
	Where string // function and line
}

func (e *Error) Error() string {
	return fmt.Sprintf("internal error in %s: %v; please report it, with this file", e.Where, e.Value)
}

// Recover must be deferred. It sets the error if the function panics.
func Recover(err *error) {
	if v := recover(); v != nil {
		*err = errorOf(v)
	}
}

// errorOf returns the error for a panic, which has not been unwound yet.
func errorOf(v any) *Error {
	if e, ok := v.(*Error); ok { // of a Group
		return e
	}
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)]) // without Callers, errorOf and its caller
	e := &Error{Value: v, Where: "an unknown function"}
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") {
			e.Where = fmt.Sprintf("%s (%s:%d)", path.Base(f.Function), path.Base(f.File), f.Line)
			break
		}
	}
	return e
}

// A Group is a sync.WaitGroup for functions that may panic. Wait continues the first panic in its caller.
type Group struct {
	functions sync.WaitGroup
	lock      sync.Mutex
	first     *Error
}

// Go calls f in a goroutine.
func (g *Group) Go(f func()) {
	g.functions.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				e := errorOf(v)
				g.lock.Lock()
				defer g.lock.Unlock()
				if g.first == nil {
					g.first = e
				}
			}
		}()
		f()
	})
}

// Wait waits for all functions.
func (g *Group) Wait() {
	g.functions.Wait()
	if g.first != nil {
		panic(g.first)
	}
}
