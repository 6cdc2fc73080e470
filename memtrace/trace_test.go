package memtrace

import (
	"slices"
	"strings"
	"testing"
)

// TestTraceColumns: the columns are those that mrm-trace's users know, in their order, then ours.
func TestTraceColumns(t *testing.T) {
	const want = "ts_ns phase op addr size region_id region_type layer token_index seq_id kv_block tid device " +
		"collector graph_seq op_seq time_source ctx " +
		"cache_level latency_cycles symbol weight buffer_id offset ggml_op operand pieces stride flags count " +
		"window_ns pid data_symbol step cpu"
	var names []string
	for _, c := range TraceColumns() {
		names = append(names, c.Name)
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	all := TraceColumns()
	if len(all) != int(traceColumns) || all[TraceWindow].Name != "window_ns" || all[TraceBuffer].Name != "buffer_id" ||
		all[TraceAddr].Kind != ColumnUint64 {
		t.Errorf("%+v", all)
	}
}

func TestTraceNames(t *testing.T) {
	for p := range phases {
		if back, err := ParsePhase(p.String()); err != nil || back != p {
			t.Errorf("%v: %v, %v", p, back, err)
		}
	}
	if _, err := ParsePhase("prefill"); err == nil {
		t.Error("prefill is no phase of a trace")
	}
	var names []string
	for s := range timeSources + 1 {
		names = append(names, s.String())
	}
	if !slices.Equal(names, []string{"", "op", "range", "graph", "copy", "time_source(5)"}) ||
		phases.String() != "phase(5)" {
		t.Errorf("%q, %v", names, phases)
	}
	if TraceFusible != 1 || TracePadded != 2 || TraceRepacked != 4 || TraceUnknown != 32 || TraceCopied != 128 {
		t.Error("flags have other numbers")
	}
}
