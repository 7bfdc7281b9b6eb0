//go:build !(linux && amd64)

package step

import (
	"context"
	"errors"
	"os/exec"
)

// Trace returns an error on this system.
func Trace(context.Context, *exec.Cmd, Options) (*Report, int, error) {
	return nil, 0, errors.New("cfi-step needs Linux on amd64")
}
