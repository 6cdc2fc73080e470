package watch

import (
	"context"
	"errors"
	"time"
)

// ErrNone says that no source is left to be asked.
var ErrNone = errors.New("no collector is left")

// Run asks the sources once an interval until ctx ends or count snapshots were taken (0: no end), and once more at the
// end, so that nothing is lost of the last, shorter interval. warn is called with the errors of sources that failed;
// the others continue.
func (w *Watch) Run(ctx context.Context, count uint64, warn func(error)) error {
	timer := time.NewTimer(time.Until(w.next))
	defer timer.Stop()
	for w.Running() > 0 {
		select {
		case <-ctx.Done():
			if err := w.Ask(time.Now()); err != nil {
				warn(err)
			}
			return nil
		case <-timer.C:
		}
		if err := w.Ask(time.Now()); err != nil {
			warn(err)
		}
		if count > 0 && w.Snapshots >= count {
			return nil
		}
		timer.Reset(time.Until(w.next))
	}
	return ErrNone
}
