//go:build !(linux && amd64)

package main

import (
	"context"
	"errors"

	"cfi2sframe/lab/step"
)

func trace(context.Context, []string, step.Options) (*step.Report, int, error) {
	return nil, 0, errors.New("cfi-step needs Linux on amd64")
}
