package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/runner/session"
)

// attachView prints what the calls of an interval come to.
type attachView struct {
	*process.Calls
	ctx    context.Context // when it has ended, requests that are under way are written too
	text   bool
	warned bool // that tokens are not counted
}

// Snapshot returns the line of an interval.
func (v *attachView) Snapshot(now time.Time) (any, error) {
	line, err := v.Line(now, v.ctx.Err() != nil)
	if err == nil && v.text {
		v.print(line)
	}
	return line, err
}

func (v *attachView) print(l *process.CallLine) {
	rate := func(n int) string { return fmt.Sprintf("%.1f tokens/s", float64(n)/l.ActualS) }
	for _, f := range l.Contexts {
		name, tokens := "", fmt.Sprintf("prompt %s, generated %s; ", rate(f.Prompt), rate(f.Generated))
		if f.Context > 0 {
			name = fmt.Sprintf("context %d  ", f.Context)
		}
		if l.RowsUnwatched && f.Prompt+f.Generated == 0 {
			tokens = ""
		}
		present.Printf("%s  %s%s%s of %s (99 %%: %s), computing %s, %s, overhead %.2f %%\n",
			l.ISO[11:19],
			name, tokens, present.Plural(f.Calls, "call"), present.Nanoseconds(f.CallP50NS),
			present.Nanoseconds(f.CallP99NS), present.Percent(float64(f.ComputingNS)/1e9/l.ActualS),
			present.Plural(f.Sequences, "sequence"), 100*l.Overhead)
	}
	if l.RowsUnwatched && !v.warned {
		v.warned = true
		present.Printf("%s  tokens are counted no more: that cost %.1f %% of the process's time; see --max-overhead\n",
			l.ISO[11:19], 100*l.Overhead)
	}
	for i := range l.Requests {
		r := &l.Requests[i]
		cached, partial := "", ""
		if r.Cached != nil {
			cached = fmt.Sprintf(" after %d cached", *r.Cached)
		}
		if r.Partial {
			partial = "; it may have begun before"
		}
		gaps := ""
		if r.GapP99NS > 0 {
			gaps = fmt.Sprintf(", between tokens %s (99 %%: %s)", present.Nanoseconds(r.GapP50NS),
				present.Nanoseconds(r.GapP99NS))
		}
		name := ""
		if r.Context > 0 {
			name = fmt.Sprintf("context %d, ", r.Context)
		}
		present.Printf("%s  %ssequence %d, request %d: prompt %d tokens%s in %s, generated %d%s%s\n", l.ISO[11:19],
			name, r.Sequence, r.Number, r.Prompt, cached, present.Nanoseconds(r.PromptNS), r.Generated, gaps, partial)
	}
	if l.Lost > 0 {
		present.Printf("%s  %s got lost: shorten --interval\n", l.ISO[11:19], present.Plural(l.Lost, "event"))
	}
}

// echoedLines are appended to a file and printed.
type echoedLines struct{ *lineFile }

// Append prints and appends a line.
func (e echoedLines) Append(line []byte) error {
	return errors.Join(linePrinter{present.Out}.Append(line), e.lineFile.Append(line))
}

// runAttach watches a process until it ends, or this is asked to.
func runAttach(o attachOptions) (err error) {
	warn := func(err error) { fmt.Fprintf(present.Err, "llamatap: %v\n", err) }
	pidfd, err := unix.PidfdOpen(o.pid, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w: give the id of a process that runs", o.pid, err)
	}
	defer unix.Close(pidfd)
	if dir := bpf.MountTracefs(); dir != "" {
		warn(fmt.Errorf("mounted tracefs at %s", dir))
	}
	collector, err := process.OpenCalls(o.pid, o.interval, o.most)
	if err != nil {
		return err
	}
	ctx, stop := untilInterrupt(unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if o.duration > 0 {
		ctx, stop = context.WithTimeout(ctx, o.duration)
		defer stop()
	}
	ctx, ended := context.WithCancel(ctx)
	defer ended()
	go func() {
		poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		for ctx.Err() == nil {
			if n, _ := unix.Poll(poll, 200); n > 0 {
				ended()
			}
		}
	}()
	var lines bpf.Lines = linePrinter{io.Discard}
	if o.json {
		lines = linePrinter{present.Out}
	}
	var sources []bpf.Source
	if o.folder != "" {
		file, err := attachFile(o.folder, "llama_calls.jsonl")
		if err != nil {
			return errors.Join(err, collector.Close())
		}
		if lines = file; o.json {
			lines = echoedLines{file}
		}
		sources = attachHost(o, warn)
	}
	view := &attachView{Calls: collector, ctx: ctx, text: !o.json}
	sources = append(sources, bpf.Source{Name: "calls", Collector: view, Lines: lines})
	fmt.Fprintf(present.Err, "llamatap: watching %s of process %d; Ctrl-C ends that, and not the process\n",
		collector.Library, o.pid)
	w := bpf.NewWatch(o.interval, time.Now(), sources...)
	err = w.Run(ctx, 0, warn)
	return errors.Join(err, w.Close())
}

// attachFile opens a file of the folder.
func attachFile(folder, name string) (*lineFile, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("%w: choose another place with -o", err)
	}
	return appendLines(filepath.Join(folder, name), 1, false)
}

// attachHost opens the host collectors. One that cannot be is left out.
func attachHost(o attachOptions, warn func(error)) (sources []bpf.Source) {
	for _, opened := range session.OpenCollectors(o.host, session.CollectorOptions{
		Interval: o.interval, Target: bpf.Target{PIDs: []int{o.pid}}, SampleReadWrite: 1,
		Only: profDefault, Run: "attach" + strconv.Itoa(os.Getpid()),
	}) {
		if opened.Err != nil {
			warn(fmt.Errorf("host %s: %w", opened.Name, opened.Err))
			continue
		}
		for _, missing := range opened.Missing {
			warn(errors.New(missing))
		}
		file, err := attachFile(o.folder, collectorFiles[opened.Name])
		if err != nil {
			warn(errors.Join(err, opened.Collector.Close()))
			continue
		}
		sources = append(sources, bpf.Source{Name: opened.Name, Collector: opened.Collector, Lines: file})
	}
	return sources
}
