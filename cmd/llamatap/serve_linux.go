package main

import (
	"encoding/json"
	"errors"

	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/runner/session/control"
)

// controlRun gives a run a command through its socket.
func controlRun(dir string, c server.Command) (json.RawMessage, error) {
	answer, err := control.Ask(dir, control.Request{Command: c.Command, Level: c.Level})
	if err != nil {
		return nil, err
	}
	if !answer.OK {
		return nil, errors.New(answer.Error)
	}
	return json.Marshal(answer.Status)
}
