package tensors

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

func TestMatchName(t *testing.T) {
	for _, c := range []struct {
		glob, name, node string
		want             bool
	}{
		{"l_out", "l_out-3", "l_out-3", true},
		{"l_out-3", "l_out-3", "l_out-3", true},
		{"l_out-*", "l_out-3", "l_out-3", true},
		{"l_out", "ffn_out-3", "ffn_out-3", false},
		{"Qcur", "Qcur-0#2", "Qcur-0", true},
		{"Qcur-0", "Qcur-0#2", "Qcur-0", true},
		{"Qcur-0#2", "Qcur-0#2", "Qcur-0", true},
		{"Qcur-0#3", "Qcur-0#2", "Qcur-0", false},
		{"Qcur-0#1", "Qcur-0#2", "Qcur-0", false},
		{"Qcur-0#1", "Qcur-0", "Qcur-0", true},
		{"Qcur#2", "Qcur-0#2", "Qcur-0", true},
		{"Qcur#1", "Qcur-0", "Qcur-0", true},
		{"kqv_out-0#1", "kqv_out-0", "node_24", true},
		{"kqv_out", "kqv_out-0", "node_24", true},
		{"kqv_out", "kqv_out-0#2", "node_24", true},
		{"kqv_out-0", "kqv_out-0#2", "node_24", true},
		{"ffn_*", "ffn_gate-11", "ffn_gate-11", true},
		{"result_output", "result_output", "result_output", true},
		{"result", "result-", "result-", false},
		{"[a-c]*", "b", "b", true},
	} {
		if got := matchName(c.glob, c.name, c.node); got != c.want {
			t.Errorf("%s on %s: %v", c.glob, c.name, got)
		}
	}
}

// TestUnknownLayers: an index that was made from the stream knows no layers; the error says what to select by.
func TestUnknownLayers(t *testing.T) {
	dir := sealed(t)
	remove(t, dir, rundir.StreamName+stream.IndexSuffix)
	_, err := Repair(dir, "test")
	check(t, err)
	r, err := Open(dir)
	check(t, err)
	defer r.Close()
	layer := 0
	if err := r.Unknown(Filter{Layer: &layer}); !strings.HasSuffix(err.Error(),
		"choose them by name, such as l_out-0") {
		t.Error(err)
	}
}
