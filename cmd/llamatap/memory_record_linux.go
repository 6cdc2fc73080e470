package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/llamatap/llamatap/runner/memory"
)

// runMemoryRecord samples a program or a process.
func runMemoryRecord(o memoryRecording) (err error) {
	o.Version, o.Echo, o.Warn = version, append([]string{"llamatap", "memory", "record"}, o.flags.Raw...), tellMemory
	ctx, stop := signal.NotifyContext(context.Background(), enders(len(o.program) > 0)...)
	defer stop()
	if len(o.program) > 0 {
		o.Command = exec.Command(o.program[0], o.program[1:]...)
		o.Command.Stdin, o.Command.Stdout, o.Command.Stderr = os.Stdin, os.Stdout, os.Stderr
		if o.Tap, err = tapBeside(); err != nil {
			o.Tap = ""
		}
	}
	result, err := memory.Record(ctx, o.Options)
	switch {
	case errors.Is(err, memory.ErrStart) && errors.Is(err, fs.ErrNotExist):
		return exitStatus{Code: 127, Err: err}
	case errors.Is(err, memory.ErrStart):
		return exitStatus{Code: 126, Err: err}
	case err != nil && (result.Ended == nil || len(o.program) == 0):
		return err
	}
	var missing error = exitStatus{Code: statusLossy}
	if err != nil { // the program has run all the same
		tellMemory(err)
	} else {
		missing = endMemory(result)
	}
	if len(o.program) == 0 {
		return missing
	}
	if ctx.Err() != nil {
		_ = o.Command.Process.Signal(syscall.SIGTERM)
	}
	<-result.Ended
	return errors.Join(programStatus(result.Exit()), missing)
}

// programStatus is a program's status as this one's: of a program that ended well there is none.
func programStatus(state *os.ProcessState) error {
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		return exitStatus{Code: 128 + int(status.Signal())}
	case state.ExitCode() != 0:
		return exitStatus{Code: state.ExitCode()}
	}
	return nil
}
