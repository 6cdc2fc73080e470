//go:build !linux

package main

import (
	"encoding/json"
	"errors"

	"github.com/llamatap/llamatap/inspect/server"
)

// controlRun reaches no run where none is recorded.
func controlRun(string, server.Command) (json.RawMessage, error) { return nil, errors.ErrUnsupported }

// prepareServing does nothing where no model is recorded.
func prepareServing(*server.Options, string) error { return nil }
