package runner

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// patience is how long something must take before it gets a bar.
const patience = 300 * time.Millisecond

// progress is a bar for one piece of work. Without a writer it does nothing. It belongs to one goroutine at a time.
type progress struct {
	out   io.Writer
	what  string
	begin time.Time
	bar   *progressbar.ProgressBar
}

func newProgress(out io.Writer, what string) *progress {
	return &progress{out: out, what: what, begin: time.Now()}
}

// set shows that a fraction of the work is done.
func (p *progress) set(fraction float64) {
	if p.out == nil {
		return
	}
	if p.bar == nil {
		if time.Since(p.begin) < patience {
			return
		}
		p.bar = progressbar.NewOptions(1000,
			progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(p.what), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond))
	}
	_ = p.bar.Set(int(fraction * 1000)) // a bar that cannot be drawn is no failure of the run
}

// done takes the bar away.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}
