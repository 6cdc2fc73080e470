package resource

import (
	"encoding/json"
	"slices"
	"testing"
)

func ns(v int64) *int64    { return &v }
func n64(v uint64) *uint64 { return &v }

// systemLine is a snapshot of two seconds of two processes.
func systemLine() *SystemLine {
	var h Histogram
	for range 99 {
		h.Add(3)
	}
	h.Add(900)
	l := &SystemLine{
		Faults: map[string]uint64{"10": 7, "20": 5},
		Pressure: map[string]HostStall{"cpu": {"some": {1.5, 2, 3, 400}, "full": {0, 0.5, 0, 9}},
			"io": {"some": {4, 5, 6, 7}}},
		Processes: []ProcessLine{
			{PID: 10, RSSBytes: n64(8192), Faults: 7, Major: n64(2)},
			{PID: 20, RSSBytes: n64(1024), Faults: 5, Major: n64(1)}, {PID: 30},
		},
		Threads: []ThreadLine{
			{TID: 10, TGID: 10, Comm: "main", LivedNS: 2e9, OnCPUNS: 1e9, RunnableWaitNS: 1e8, BlockedDiskNS: ns(2e8),
				BlockedLockNS: ns(3e8), BlockedOtherNS: ns(0),
				IdleNS: ns(4e8), Voluntary: 3, Involuntary: 4, RunQueue: NewWaitFigure(&h, 850_000), Faults: 2},
			{TID: 11, TGID: 10, Comm: "worker", LivedNS: 1e9, RunnableWaitNS: 9e8, SleepNS: ns(1e8), Faults: 5,
				Major: n64(2)},
			{TID: 20, TGID: 20, Comm: "quiet", LivedNS: 1e9, OnCPUNS: 1, IdleNS: ns(1e9 - 1)},
		},
	}
	l.ActualS, l.Origin = 2, OriginBPF
	return l
}

func TestMemOfSnapshot(t *testing.T) {
	m := systemLine().Mem()
	if m.FaultsTotal != 12 || *m.RSSKB != 9 || m.RSSByPID["10"] != 8 || *m.MajorFaults != 3 || m.Origin != OriginBPF ||
		m.Type != ProfTypeMem {
		t.Errorf("%+v", m)
	}
	if len(m.TopThreads) != 2 || m.TopThreads[0].TID != 11 || *m.TopThreads[0].Major != 2 || m.TopThreads[1].TID != 10 {
		t.Errorf("top %+v", m.TopThreads)
	}
	cpu := m.PSI["cpu"]
	if cpu.Avg10 != 1.5 || cpu.Some.TotalUS != 400 || cpu.Full.Avg60 != 0.5 || m.PSI["io"].Full != nil {
		t.Errorf("pressure %+v", m.PSI)
	}
	empty, err := json.Marshal((&SystemLine{}).Mem())
	if err != nil || !json.Valid(empty) {
		t.Fatal(err)
	}
	var got map[string]any
	if json.Unmarshal(empty, &got); got["page_faults_by_pid"] == nil || got["top_faulting_threads"] == nil ||
		got["rss_kb"] != nil {
		t.Errorf("%s", empty)
	}
}

func TestSchedOfSnapshot(t *testing.T) {
	s := systemLine().Sched()
	if s.TotalOffCPUPct != 100*1.5e9/4e9 || s.ThreadCount != 3 || len(s.Threads) != 2 { // the third did not wait
		t.Errorf("%+v", s)
	}
	worker, main := s.Threads[0], s.Threads[1]
	if worker.TID != 11 || worker.OffCPUPct != 45 || worker.RQMaxUS != nil {
		t.Errorf("%+v", worker)
	}
	if main.OffCPUNS != 6e8 || main.OffCPUPct != 30 || main.Switches != 7 || *main.RQP95US != 3 || *main.RQP99US != 3 ||
		*main.RQMaxUS != 850 {
		t.Errorf("%+v p95 %v p99 %v max %v", main, *main.RQP95US, *main.RQP99US, *main.RQMaxUS)
	}
	many := &SystemLine{Threads: slices.Repeat([]ThreadLine{{RunnableWaitNS: 1}}, 50)}
	if s := many.Sched(); len(s.Threads) != profTopThreads || s.ThreadCount != 50 {
		t.Errorf("%d of %d threads", len(s.Threads), s.ThreadCount)
	}
}

// No percentile exceeds the longest wait, though it is an upper bound of a slot.
func TestWaitFigure(t *testing.T) {
	var h Histogram
	if NewWaitFigure(&h, 0) != nil {
		t.Error("figures of nothing")
	}
	h.Add(600)
	if f := NewWaitFigure(&h, 600_000); f.P50 != 600 || f.P99 != 600 || f.Max != 600 || f.Count != 1 ||
		len(f.Buckets) != 1 {
		t.Errorf("%+v", f)
	}
}
