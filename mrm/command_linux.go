package mrm

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/runner/memory"
	"github.com/llamatap/llamatap/store/rundir"
)

// The names of what the passes of a program leave beside their logs.
const (
	promptName  = "prompt.txt"
	plainOutput = "baseline.out"
	ownOutput   = "tapped.out"
)

// commandPasses runs any program, and records it as llamatap memory record does: in this process, which is all the
// observer that there is.
type commandPasses struct {
	*work
	result memory.Result
}

// writePrompt writes the file of the prompt, and returns the words of the command.
func (w *commandPasses) writePrompt() ([]string, error) {
	err := os.WriteFile(w.path(promptName), []byte(w.cell.Input.Text), 0o600)
	return argv(w.Config, w.cell, w.path(promptName)), err
}

func (w *commandPasses) baseline(ctx context.Context, o *observation) error {
	argv, err := w.writePrompt()
	if err != nil {
		return err
	}
	child, err := w.child(ctx, "baseline", argv, nil)
	if child.pid > 0 {
		endGroup(child.pid)
	}
	o.baseline.WallNS, o.baseline.PeakRSSBytes, o.isCommand = int64(child.wall), child.peak, true
	return err
}

func (w *commandPasses) tapped(ctx context.Context, o *observation) error {
	argv, err := w.writePrompt()
	if err != nil {
		return err
	}
	cmd, release, err := w.command(ctx, "tapped", argv, true)
	if err != nil {
		return err
	}
	defer release()
	debug.FreeOSMemory() // what was needed before is none of the observer's
	own, watch, began := ownCPU(), newWatch(os.DirFS("/")), time.Now()
	looked := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		o.memory, o.busiest = watch.follow(began, stop)
		close(looked)
	}()
	state, err := w.record(ctx, cmd)
	close(stop)
	<-looked
	if err != nil {
		return err
	}
	o.cpu.MRM, o.tapped.WallNS = ownCPU()-own, int64(time.Since(began))
	o.throttle = watch.throttle()
	o.others = watch.otherProcessesPercent(int64(state.UserTime()+state.SystemTime())+o.cpu.MRM, clockTicks)
	return nil
}

// follow looks at the machine and at what this process has, until stop is closed. It returns the most memory that
// it had, and the largest share of a processor that it used in a second.
func (w *watch) follow(began time.Time, stop <-chan struct{}) (most int64, busiest float64) {
	var used peakCPU
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	for {
		ended := false
		select {
		case <-stop:
			ended = true
		case <-tick.C:
		}
		w.sample(int64(time.Since(began)))
		used.add(int64(time.Since(began)), ownCPU())
		if most = max(most, ownMemory()+process.StatusBytes(os.Getpid(), "RssShmem")); ended {
			return most, used.most
		}
	}
}

// record samples a program until it ends. What it leaves running is killed.
func (w *commandPasses) record(ctx context.Context, cmd *exec.Cmd) (state *os.ProcessState, err error) {
	runtime.LockOSThread() // whose end is taken for this process's by the kernel
	defer runtime.UnlockOSThread()
	k := w.Config.Collector
	choice := []string{sampleFlags[k.Primary]}
	if other := sampleFlags[k.Fallback]; other != "" {
		choice = append(choice, other)
	}
	w.result, err = memory.Record(ctx, memory.Options{
		Choices: [][]string{choice}, Command: cmd, Out: w.path("out"), Interval: sampling, Period: uint64(k.Period),
		Tap:     w.tap,
		Version: w.Version, Echo: append([]string{"llamatap", "memory", "record", "--"}, cmd.Args...),
	})
	if w.result.Ended != nil {
		<-w.result.Ended
		state = w.result.Exit()
		endGroup(state.Pid())
	}
	switch {
	case ctx.Err() != nil:
		return state, context.Cause(ctx)
	case err != nil:
		return state, fmt.Errorf("recorded run: %w", err)
	case !state.Success():
		return state, fmt.Errorf("recorded run: %v: %s", state, lastLine(w.path("tapped.log")))
	}
	return state, nil
}

// endGroup kills what a program has left running of its process group: each pass begins on the same machine.
func endGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

func (w *commandPasses) recorded(o *observation) (r recording, err error) {
	r.dir, r.raw = w.result.Dir, []string{promptName, plainOutput, ownOutput}
	if u := w.result.Use; len(u.Missing) > 0 || u.Error != "" {
		return r, fmt.Errorf("%w: %s: %s; choose another collector (collector.primary)", errLossy, u.Words(),
			strings.Join(append(u.Missing, u.Error), " "))
	}
	if r.metadata, err = rundir.ReadMetadata(r.dir); err != nil {
		return r, fmt.Errorf("%w: %w", errLossy, err)
	}
	r.metadata.Model.ID = w.cell.ModelID
	same, err := sameFiles(w.path(plainOutput), w.path(ownOutput))
	o.sameOutput = &same
	return r, err
}

// sameFiles reports whether two files hold the same bytes.
func sameFiles(paths ...string) (bool, error) {
	var sums [2][sha256.Size]byte
	for i, path := range paths {
		sum := sha256.New()
		if err := copyFile(path)(sum); err != nil {
			return false, err
		}
		sums[i] = [sha256.Size]byte(sum.Sum(nil))
	}
	return sums[0] == sums[1], nil
}
