package present

import (
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// patience is how long something must take before it gets a bar.
const patience = 300 * time.Millisecond

// Progress is a bar for one piece of work that takes longer than a moment. Without a writer, and when it is nil, it
// does nothing. It may be used by several goroutines.
type Progress struct {
	out   io.Writer
	what  string
	timer *time.Timer

	mu       sync.Mutex
	bar      *progressbar.ProgressBar
	fraction float64
	ended    bool
}

// NewProgress returns a bar that is drawn on out once the work has taken 300 ms, whether or not Set was called by
// then. Done ends it.
func NewProgress(out io.Writer, what string) *Progress {
	if out == nil {
		return nil
	}
	p := &Progress{out: out, what: what}
	p.timer = time.AfterFunc(patience, p.show)
	return p
}

func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.bar = progressbar.NewOptions(1000,
		progressbar.OptionSetWriter(p.out), progressbar.OptionSetDescription(p.what), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true),
		progressbar.OptionThrottle(100*time.Millisecond))
	_ = p.bar.RenderBlank() // a bar that cannot be drawn is not a failure of the work
	_ = p.bar.Set(int(p.fraction * 1000))
}

// Set shows that a fraction of the work, from 0 to 1, is done.
func (p *Progress) Set(fraction float64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fraction = fraction
	if p.bar != nil {
		_ = p.bar.Set(int(fraction * 1000))
	}
}

// Of is Set for done of total.
func (p *Progress) Of(done, total int64) {
	if total > 0 {
		p.Set(float64(done) / float64(total))
	}
}

// Describe sets the text before the bar.
func (p *Progress) Describe(what string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what = what
	if p.bar != nil {
		p.bar.Describe(what)
	}
}

// Done removes the bar.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}
