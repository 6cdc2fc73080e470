//go:build linux

package collect

import (
	"testing"
	"unsafe"

	"github.com/llamatap/llamatap/cgo/tap"
)

// TestLayout compares Go's mirror of the shared structures with the C compiler's.
func TestLayout(t *testing.T) {
	want := tap.Layout()
	if want == nil {
		t.Log("built without llama.cpp: nothing to compare with; make test builds with it")
		return
	}
	var h shmHeader
	got := []uintptr{
		unsafe.Sizeof(h), unsafe.Sizeof(h.Config), unsafe.Sizeof(h.Stats),
		unsafe.Offsetof(h.Config), unsafe.Offsetof(h.QueueHead), unsafe.Offsetof(h.QueueTail),
		unsafe.Offsetof(h.RingHead), unsafe.Offsetof(h.RingTail), unsafe.Offsetof(h.Taken),
		unsafe.Offsetof(h.Room), unsafe.Offsetof(h.Waiting), unsafe.Offsetof(h.Sleeps), unsafe.Offsetof(h.Work),
		unsafe.Offsetof(h.Attached),
		unsafe.Offsetof(h.GlobHits), unsafe.Offsetof(h.Matched), unsafe.Offsetof(h.Stats), unsafe.Offsetof(h.Missing),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Start.LayersSet),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Start.Globs),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Overflow),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Backends),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.OnFailure),
		unsafe.Offsetof(h.Stats) + unsafe.Offsetof(h.Stats.Loss),
		unsafe.Offsetof(h.Stats) + unsafe.Offsetof(h.Stats.WaitNS),
		unsafe.Offsetof(h.Stats) + unsafe.Offsetof(h.Stats.Unrecorded),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Start.Window), unsafe.Offsetof(h.Selection),
		unsafe.Offsetof(h.Selections), unsafe.Sizeof(h.Config.Start),
		unsafe.Offsetof(h.LlamaVersion), unsafe.Offsetof(h.Seen), unsafe.Offsetof(h.PID), unsafe.Offsetof(h.Layouts),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Start.Looking),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Exact),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Cold),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.InStep),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.KeepBytes),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Turns),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Judge),
		unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.NoLogits), unsafe.Offsetof(h.NTurns),
		unsafe.Offsetof(h.TurnNS), unsafe.Offsetof(h.Config) + unsafe.Offsetof(h.Config.Start.Points),
		unsafe.Offsetof(h.Points), unsafe.Offsetof(h.PointsOf),
		unsafe.Offsetof(h.SteerOffset), unsafe.Offsetof(h.Steer), unsafe.Offsetof(h.SteerNS),
		unsafe.Offsetof(h.SteerFound),
		unsafe.Offsetof(h.SteerSeqs), unsafe.Sizeof(shmVectors{}), unsafe.Offsetof(shmVectors{}.Of),
	}
	if len(got) != len(want) {
		t.Fatalf("%d values to compare with %d", len(got), len(want))
	}
	for i := range got {
		if int(got[i]) != want[i] {
			t.Errorf("value %d of tap_layout: Go has %d, C has %d", i, got[i], want[i])
		}
	}
}
