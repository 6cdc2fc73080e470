package watch

import (
	"context"
	"errors"
	"time"
)

// ErrNone says that no source is left to be asked.
var ErrNone = errors.New("no collector is left")

// Run asks the sources once an interval until ctx ends or count snapshots were taken (0: no end), and once more at
// the end, so that nothing is lost of the last, shorter interval. tell gets the errors of sources that failed; the
// rest goes on.
func (w *Watch) Run(ctx context.Context, count uint64, tell func(error)) error {
	timer := time.NewTimer(time.Until(w.next))
	defer timer.Stop()
	for w.Running() > 0 {
		select {
		case <-ctx.Done():
			if err := w.Ask(time.Now()); err != nil {
				tell(err)
			}
			return nil
		case <-timer.C:
		}
		if err := w.Ask(time.Now()); err != nil {
			tell(err)
		}
		if count > 0 && w.Snapshots >= count {
			return nil
		}
		timer.Reset(time.Until(w.next))
	}
	return ErrNone
}
