package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"sort"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// readCaptured sets what was captured of each step: the bytes of tensors that were copied between its begin and
// its end. Both clocks are the machine's monotonic one. A run in segments, or with losses, sets nothing.
func (v *Visit) readCaptured(out string) error {
	if v.Recorded.LostPackets > 0 {
		return nil
	}
	streams, err := filepath.Glob(filepath.Join(out, "*", "run_*", rundir.StreamName))
	if err != nil || len(streams) != 1 {
		return err
	}
	reader, err := stream.Open(streams[0])
	if err != nil {
		return fmt.Errorf("read what was captured: %w", err)
	}
	for i := range v.Repetitions {
		r := &v.Repetitions[i]
		for k := range r.Steps {
			if r.MonoNS != 0 {
				r.Steps[k].Captured = new(int64)
			}
		}
	}
	for _, p := range reader.Packets() {
		if s := v.stepAt(p.MonoNS); s != nil {
			*s.Captured += p.SrcBytes
		}
	}
	return errors.Join(reader.Err(), reader.Close())
}

// stepAt finds the step that ran at a time of the monotonic clock; nil: none did.
func (v *Visit) stepAt(ns int64) *Step {
	for i := range v.Repetitions {
		r := &v.Repetitions[i]
		at := ns - r.MonoNS
		if r.MonoNS == 0 || at < 0 || at > r.NS {
			continue
		}
		k := sort.Search(len(r.Steps), func(k int) bool { return r.Steps[k].AtNS > at }) - 1
		if k >= 0 && at <= r.Steps[k].AtNS+r.Steps[k].NS {
			return &r.Steps[k]
		}
	}
	return nil
}
