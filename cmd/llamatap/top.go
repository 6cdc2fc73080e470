package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/inspect/server"
	"github.com/llamatap/llamatap/internal/cli"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/rundir"
)

func topCommand() *cli.Command {
	return &cli.Command{
		Name: "top", Summary: "watch a live run in the terminal", Max: 1,
		Usage: "[RUN|PID] [--interval DURATION] [--by component|layer|op] [--count N] [--json]",
		Text: `Shows what a run does now: tokens and how fast they come, their text, time by component, layer or op, KV
cells, experts, memory, power, pressure and losses, as far as they are recorded; it names the flag that records what is
missing. RUN is a run, or a folder of runs, of which the newest live one is shown; PID is the process that records, or
its model's. Without either it is the newest live run. Into a file or a pipe it writes a line per interval. A run that
has ended is shown once. docs/SERVE.md describes the figures.

  llamatap run -p Hello -n 500 --tap-resource-level DETAILED --tap-kv &
  llamatap top
  llamatap top --json | jq .speed
`,
		Define: func(f *cli.Flags) func([]string) error {
			t := topping{by: resources.ViewBy[0], interval: time.Second}
			f.Add("--interval DURATION", &t.interval, "time between two updates")
			f.Add("--by "+strings.Join(resources.ViewBy, "|"), choice(&t.by, resources.ViewBy...),
				"what time is shown by").Default = t.by
			f.Add("--count N", &t.count, "end after N updates; 0: when the run ends")
			f.Add("--json", &t.json, "an object per update and line")
			return func(args []string) error {
				switch {
				case t.interval < 100*time.Millisecond || t.interval > time.Hour:
					return cli.Wrongf("--interval %v: give 100ms to 1h", t.interval)
				case t.count < 0:
					return cli.Wrongf("--count %d: give a number from 0", t.count)
				}
				dir, err := topRun(args...)
				if err != nil {
					return err
				}
				return t.watch(dir)
			}
		},
	}
}

// topRun finds the run that an argument names: a run, the newest live run of a folder or else its newest, or the run
// that a process records.
func topRun(args ...string) (string, error) {
	name, folder := strings.Join(args, ""), defaultOut()
	if pid, err := strconv.Atoi(name); err == nil {
		if run := runOfProcess(pid); run != "" {
			return run, nil
		}
	}
	if name != "" {
		path, err := resolveAny(name)
		if err != nil || server.IsRun(path) {
			return path, err
		}
		folder = path
	}
	runs := rundir.Find(folder)
	if i := slices.IndexFunc(runs, func(run string) bool {
		return resources.StateOf(run) == resources.StateRunning
	}); i >= 0 {
		return runs[i], nil
	}
	switch info, err := os.Stat(folder); {
	case len(runs) > 0:
		return runs[0], nil
	case name == "":
		return "", cli.Wrongf("there is no run below %s: record one, or give a run directory, a folder of runs, or "+
			"the process that records one", folder)
	case err == nil && info.IsDir():
		return folder, nil // a live run that has no file yet, perhaps
	}
	return "", fmt.Errorf("%s: %w: give a run directory, a folder of runs, or the process that records one", name,
		fs.ErrNotExist)
}

// topping is how a run is watched.
type topping struct {
	interval time.Duration
	by       string
	count    int
	json     bool

	live *resources.Live
	last *resources.Snapshot
	help bool
}

// watch shows a run until it ends or the user does.
func (t *topping) watch(dir string) (err error) {
	if t.live, err = resources.OpenLive(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: give a run directory, a folder of runs, or the process that records one", err)
		}
		return err
	}
	defer t.live.Close()
	t.live.Ask = func() (json.RawMessage, error) { return controlRun(dir, server.Command{Command: "status"}) }
	stepBack(0)
	ctx, stop := untilInterrupt(syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	live := resources.StateOf(dir) == resources.StateRunning
	t.live.Skim = live
	switch {
	case live && !t.json && term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb":
		err = t.onScreen(ctx)
	case live:
		err = t.inLines(ctx)
	}
	switch {
	case err != nil || ctx.Err() != nil || live && (t.json || t.last.State == resources.StateRunning):
		return err
	}
	return t.final(ctx, dir)
}

// update reads what is new for at most an interval.
func (t *topping) update(ctx context.Context) (ended bool, err error) {
	step, cancel := context.WithTimeout(ctx, t.interval)
	defer cancel()
	ended, err = t.live.Update(step)
	t.last = t.live.Snapshot(time.Now())
	return ended, err
}

// inLines writes a line per interval.
func (t *topping) inLines(ctx context.Context) error {
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		ended, err := t.update(ctx)
		if err == nil && t.json {
			err = jsonLines(present.Out).Encode(t.last)
		} else if err == nil {
			_, err = present.Println(present.Line(t.last.Summary()))
		}
		if err != nil || ended || n == t.count {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// final writes the last state of a run that has ended.
func (t *topping) final(ctx context.Context, dir string) error {
	bar := present.NewProgress(progressTerminal(true), "reading")
	total := t.live.Tail.Unread()
	for ended := false; !ended && ctx.Err() == nil; {
		var err error
		if ended, err = t.update(ctx); err != nil {
			bar.Done()
			return err
		}
		bar.Of(total-t.last.Unread, total)
	}
	bar.Done()
	switch {
	case ctx.Err() != nil:
		return nil
	case t.json:
		return jsonLines(present.Out).Encode(t.last)
	}
	_, err := present.Printf("%s\n\nThis run is %s. 'llamatap report %s' reads it.\n",
		strings.Join(t.last.Screen(resources.View{Width: present.Columns(100), By: t.by}), "\n"), t.last.State, dir)
	return err
}

// Sequences that prepare the terminal for a screen, and restore it: the alternate screen, the cursor, the wrapping of
// lines.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// onScreen draws the run until it ends or a key ends it, and restores the terminal, also after a panic.
func (t *topping) onScreen(ctx context.Context) (err error) {
	keys := make(chan byte)
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		before, err := term.MakeRaw(in)
		if err != nil {
			return fmt.Errorf("prepare the terminal: %w: write lines instead, as in 'llamatap top | cat'", err)
		}
		defer term.Restore(in, before)
		go readKeys(keys)
	}
	defer func() {
		_, failed := os.Stdout.WriteString(leaveScreen)
		err = errors.Join(err, failed)
	}()
	if _, err := os.Stdout.WriteString(enterScreen); err != nil {
		return err
	}
	resized := make(chan os.Signal, 1)
	notifyResize(resized)
	defer signal.Stop(resized)
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for n := 1; ; n++ {
		ended, err := t.update(ctx)
		if err == nil {
			err = t.draw()
		}
		if err != nil || ended || n == t.count {
			return err
		}
		for redrawn := true; redrawn; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				redrawn = false
			case <-resized:
				err = t.draw()
			case key := <-keys:
				if !t.handleKey(key) {
					return nil
				}
				err = t.draw()
			}
			if err != nil {
				return err
			}
		}
	}
}

// readKeys sends what is typed. It ends with the process: nothing else ends a read of a terminal.
func readKeys(keys chan<- byte) {
	for key := make([]byte, 1); ; {
		if n, err := os.Stdin.Read(key); n == 0 || err != nil {
			return
		}
		keys <- key[0]
	}
}

// handleKey handles a key; it returns false for the keys that end the program. In raw mode Ctrl-C is a key.
func (t *topping) handleKey(key byte) bool {
	wasHelp := t.help
	t.help = false
	switch key {
	case 'q', 'Q', 'c' & 0x1f, 'd' & 0x1f:
		return false
	case 'c':
		t.by = "component"
	case 'l':
		t.by = "layer"
	case 'o':
		t.by = "op"
	case '?', 'h':
		t.help = !wasHelp
	}
	return true
}

const (
	topKeys = "q quit  c component  l layer  o op  ? help"
	topHelp = `q, Ctrl-C  quit
c, l, o    time by component, layer or op, the longest in the last %d s first
?          this help; any key returns

of the run: share of the time in graphs, as in 'llamatap resource summary'
last %d s:  share of the time in the graphs of the last seconds, of those
            that were timed inside
tokens/s:   generated in the last seconds by the clock; of the whole run
            by the time in graphs

%s`
)

// draw draws the newest snapshot.
func (t *topping) draw() error {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	lines := strings.Split(fmt.Sprintf(topHelp, resources.RecentSeconds, resources.RecentSeconds, topKeys), "\n")
	if !t.help {
		lines = t.last.Screen(resources.View{Width: width, Height: height, By: t.by, Keys: topKeys})
	}
	lines = lines[:min(len(lines), height)]
	lines[0] = "\x1b[1m" + lines[0] + "\x1b[m"
	_, err = os.Stdout.WriteString("\x1b[H" + strings.Join(lines, "\x1b[K\r\n") + "\x1b[K\x1b[J")
	return err
}
