package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/memtrace/sample/perf"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/runner/doctor"
	"github.com/llamatap/llamatap/runner/session"
)

// runHostCollector runs a collector until it is asked to end.
func runHostCollector(o hostOptions) (err error) {
	warn := func(err error) { fmt.Fprintf(present.Err, "llamatap: %v\n", err) }
	for _, pid := range o.pids {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("--pid %d: no such process: give the id of one that runs", pid)
		}
	}
	source := bpf.Source{Name: o.name, Lines: linePrinter{present.Out}}
	if !o.noOutput { // before the programs are loaded: a wrong path is reported at once
		file, err := appendLines(o.output, o.flushEvery, o.fsync)
		if err != nil {
			return err
		}
		source.Lines = file
	}
	if o.cost {
		counting, err := bpf.EnableStats()
		if err != nil {
			return err
		}
		defer counting.Close()
	}
	if dir := bpf.MountTracefs(); dir != "" {
		warn(fmt.Errorf("mounted tracefs at %s: the tracepoints of a kernel without BTF need it", dir))
	}
	opened := session.OpenCollectors([]string{o.name}, session.CollectorOptions{
		Interval: o.interval, Target: bpf.Target{PIDs: o.pids, Comm: o.comm, Cgroup: o.cgroup,
			Later: len(o.program) > 0}, Devices: o.devices,
		StrapBuckets: o.strap, Only: o.only, SampleReadWrite: o.sample, Labels: o.labels, NoCorrelation: o.noIDs,
		Run: "run" + strconv.Itoa(os.Getpid()),
	})[0]
	if opened.Err != nil {
		return fmt.Errorf("host %s: %w", o.name, opened.Err)
	}
	for _, missing := range opened.Missing {
		warn(errors.New(missing))
	}
	source.Collector = opened.Collector
	ctx, stop := signal.NotifyContext(context.Background(), enders(len(o.program) > 0)...)
	defer stop()
	status := func() error { return nil }
	if len(o.program) > 0 {
		if ctx, status, err = startWatched(ctx, o.program, source.Collector); err != nil {
			return errors.Join(err, source.Collector.Close())
		}
	}
	w := bpf.NewWatch(o.interval, time.Now(), source)
	stepBack(0)
	err = w.Run(ctx, o.count, warn)
	if costed, ok := source.Collector.(bpf.Costed); ok && o.cost && w.Running() > 0 {
		printCost(costed, w)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return status()
}

// printCost prints what a collector cost.
func printCost(c bpf.Costed, w *bpf.Watch) {
	programs, err := c.Programs()
	if err != nil {
		fmt.Fprintf(present.Err, "llamatap: %v\n", err)
	}
	for _, p := range programs {
		if p.Runs > 0 {
			fmt.Fprintf(present.Err, "%-28s %12d runs %10.0f ns each\n", p.Name, p.Runs, p.PerNS)
		}
	}
	fmt.Fprintf(present.Err, "%-28s %12d times %9.2f ms each, %d late\n", "snapshots", w.Snapshots,
		float64(w.Cost.Microseconds())/1e3/float64(max(w.Snapshots, 1)), w.Late)
}

// enders are the signals that end a collector. Ctrl-C is the program's where there is one, and the collector ends
// with it.
func enders(program bool) []os.Signal {
	if program {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt) // not ignored: the program would inherit that
		return []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
}

// startWatched starts a program as the target of collectors. The context that it returns ends with the program;
// status waits for the program and says how it ended.
func startWatched(ctx context.Context, program []string, collectors ...bpf.Collector) (context.Context, func() error,
	error) {
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := perf.StartHeld(cmd, func(pid int) error { // before it can have started others
		for _, c := range collectors {
			if follower, ok := c.(bpf.Follower); ok {
				if err := follower.AddPID(pid); err != nil {
					return err
				}
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, nil, exitStatus{Code: 127, Err: err}
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, exitStatus{Code: 126, Err: err}
	case err != nil:
		return nil, nil, err
	}
	ended, cancel := context.WithCancel(context.Background())
	var result error
	go func() {
		result = cmd.Wait()
		cancel()
	}()
	go func() {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
		case <-ended.Done():
		}
	}()
	status := func() error {
		<-ended.Done()
		var exit *exec.ExitError
		switch {
		case result == nil:
			return nil
		case errors.As(result, &exit) && exit.ExitCode() >= 0:
			return exitStatus{Code: exit.ExitCode()}
		case errors.As(result, &exit):
			return exitStatus{Code: 128 + int(exit.Sys().(syscall.WaitStatus).Signal())}
		}
		return result
	}
	return ended, status, nil
}

// tryHost opens and closes each collector of --tap-host. It mounts nothing.
func tryHost() []doctor.HostCollector {
	var tried []doctor.HostCollector
	for _, name := range config.HostCollectors {
		o := session.OpenCollectors([]string{name}, session.CollectorOptions{Interval: time.Second})[0]
		c := doctor.HostCollector{Name: name, Origin: o.Origin, Missing: o.Missing, Err: o.Err}
		if o.Err == nil {
			c.Err = o.Collector.Close()
		}
		tried = append(tried, c)
	}
	return tried
}
