package oracle

import (
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
)

// TestBuffersEnd: at the end of a program no buffer is left, nor one of the context with which llama.cpp fits the model
// into memory, and which never computes.
func TestBuffersEnd(t *testing.T) {
	o := llamatap(t, "llama-completion", "--tap-resource-level", "VERBOSE", "-m", testenv.Model(t), "-p", prompt,
		"-n", "1", "-c", "512", "-no-cnv").good(t)
	events := eventsOf(t, filepath.Join(o.dirs[0], "resource.jsonl"))
	ended := map[uint64]uint64{} // what was left then
	for _, e := range of[resource.Deallocation](events) {
		ended[e.BufferID] = e.LiveBytes
	}
	if len(ended) < 5 {
		t.Errorf("%d buffers ended", len(ended))
	}
	for _, e := range of[resource.Allocation](events) {
		if left, ok := ended[e.BufferID]; !ok || e.BufferID == 1 && left != 0 {
			t.Errorf("buffer %d ended: %v, with %d bytes left", e.BufferID, ok, left)
		}
	}
}
