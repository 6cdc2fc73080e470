package main

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/runner/session/control"
)

// stepBack gives this process but one thread nice 19, which threads that are started later inherit: who looks at a
// run must not cost the model that is recorded. Where a sandbox forbids it, it stays as it is.
func stepBack(but int) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil && tid != but {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 19)
		}
	}
}

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

// prepareServing prepares to serve: it lets prompts be run where there is a folder for their runs, and lowers its
// priority below models that are recorded.
func prepareServing(o *server.Options, model string) error {
	if model != "" {
		if _, err := os.Stat(model); err != nil {
			return cli.Wrongf("-m %s: %w: give a GGUF file", model, errors.Unwrap(err))
		}
	}
	thread := 0
	if o.Dir != "" && o.Stored == nil && !o.Live && !server.IsRun(o.Dir) {
		g := newGenerator(o.Dir, model)
		o.Generate, thread = g.generate, g.thread
	}
	stepBack(thread)
	return nil
}
