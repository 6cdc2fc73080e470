package export

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/llamatap/llamatap/store/rundir"
)

// The formats.
const (
	Perfetto   = "perfetto"   // a protobuf trace for ui.perfetto.dev and trace_processor
	Chrome     = "chrome"     // the JSON of chrome://tracing
	Speedscope = "speedscope" // JSON for speedscope.app, a profile per context
	PProf      = "pprof"      // a profile for go tool pprof: time, FLOPs and bytes by op, component and layer
)

// TimelineFormats lists them, and the ending of a file of each.
var TimelineFormats = []struct{ Name, Suffix string }{
	{Perfetto, ".pftrace"}, {Chrome, ".trace.json"}, {Speedscope, ".speedscope.json"}, {PProf, ".pb.gz"},
}

// TimelineSuffix is the ending of a file of a format; false where there is no such format.
func TimelineSuffix(format string) (string, bool) {
	for _, f := range TimelineFormats {
		if f.Name == format {
			return f.Suffix, true
		}
	}
	return "", false
}

// TimelineOptions is how a timeline is written.
type TimelineOptions struct {
	Format string
	// MaxBytes bounds the file: where it would become larger, ops are left out, evenly over the run, and counted. 0: 10
	// MB for 1,000 tokens, at least 1 MB. A pprof profile is not bounded, since it holds sums.
	MaxBytes int64
	Progress func(done, total int64) // bytes of the log; nil: not called

	length int64 // of the run in nanoseconds, for the spacing of samples
}

// bytesPerToken is the default bound of a file, and leastBytes that of a short run's.
const (
	bytesPerToken = 10_000
	leastBytes    = 1_000_000
)

// WriteTimeline writes the timeline of a run directory, or of a file of events. It stops early when ctx is done.
func WriteTimeline(ctx context.Context, path string, w io.Writer, o TimelineOptions) (*TimelineResult, error) {
	about := aboutRun(path)
	if o.MaxBytes == 0 {
		o.MaxBytes = max(leastBytes, about.tokens*bytesPerToken)
	}
	o.length = about.length
	out := &counted{to: bufio.NewWriterSize(w, 1<<18)}
	r := &reader{o: o, caches: map[string]*kv{}, values: map[string]*run{}, written: &out.n}
	r.clear()
	r.result.GivenBack = about.givenBack
	switch o.Format {
	case Perfetto:
		r.to = newPerfetto(out, about)
	case Chrome:
		r.to = newChrome(out, about)
	case Speedscope:
		r.to = newSpeedscope(out, about)
	case PProf:
		r.o.MaxBytes = 0
		r.to = newProfile(out, about)
	default:
		return nil, fmt.Errorf("unsupported format %q: use perfetto, chrome, speedscope or pprof", o.Format)
	}
	if err := r.readEvents(ctx, path); err != nil {
		return nil, err
	}
	if err := (beside{r}).read(ctx, path); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.to.close(&r.result); err != nil {
		return nil, err
	}
	if err := out.to.Flush(); err != nil {
		return nil, err
	}
	r.result.Bytes = out.n
	return &r.result, nil
}

// about is what the metadata say of a run; zero where they are not there.
type about struct {
	title      string
	model      string
	tokens     int64
	length     int64  // ns
	unix, mono int64  // one reading of both clocks
	givenBack  string // what of the log is not there
}

// aboutRun reads the metadata of a run.
func aboutRun(path string) about {
	a := about{title: path}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return a
	}
	m, err := rundir.ReadMetadata(path)
	if err != nil {
		return a
	}
	a.title, a.model, a.unix, a.mono = m.RunID, m.Model.Name, m.Clock.UnixNS, m.Clock.MonoNS
	a.givenBack = m.EventsGivenBack(path)
	if m.Tokens != nil {
		a.tokens = m.Tokens.Computed()
	}
	if !m.Ended.IsZero() {
		a.length = m.Ended.Sub(m.Created).Nanoseconds()
	}
	return a
}

// counted counts what is written.
type counted struct {
	to *bufio.Writer
	n  int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.to.Write(b)
	c.n += int64(n)
	return n, err
}
