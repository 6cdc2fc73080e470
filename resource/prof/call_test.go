package prof

import (
	"testing"
	"time"
)

func TestTheLongestCall(t *testing.T) {
	slot := func(ns uint64) int {
		for i := range latencySlots {
			if low, high := latencyBounds(i); low <= ns && ns <= high {
				return i
			}
		}
		panic("no slot")
	}
	for name, one := range map[string]struct {
		longest uint64 // as the programs report it
		calls   []uint64
		want    uint64
	}{
		"none":                         {want: 0},
		"of the interval":              {longest: 5000, calls: []uint64{100, 5000}, want: 5000},
		"in the first slot":            {longest: 5, calls: []uint64{5}, want: 5},
		"of the interval before":       {longest: 0, calls: []uint64{5000}, want: 5119},
		"longer one counted late":      {longest: 700, calls: []uint64{700, 5000}, want: 5119},
		"stale, and nothing was timed": {longest: 700, want: 0},
		"longer than all slots":        {longest: 0, calls: []uint64{1 << 50}, want: 7 << 28 << latencyUnit},
	} {
		before := tally{count: 3, timed: 3}
		before.latency[slot(80000)] = 3
		now := before
		now.longest = one.longest
		for _, ns := range one.calls {
			now.count++
			now.timed++
			now.ns += ns
			now.latency[slot(ns)]++
		}
		d := now.since(&before)
		if d.longest != one.want || d.count != uint64(len(one.calls)) {
			t.Errorf("%s: longest %d, want %d", name, d.longest, one.want)
		}
		e := d.event(call{name: "read"}, time.Second)
		if (e.LatMaxUS == nil) != (len(one.calls) == 0) || e.LatMaxUS != nil &&
			(*e.LatP99US > *e.LatMaxUS || *e.LatP50US > *e.LatP99US) {
			t.Errorf("%s: event %+v", name, e)
		}
	}
}

func TestScaledTotals(t *testing.T) {
	sampled := tally{count: 1000, timed: 100, ns: 50000}
	if got := sampled.caller(1, "x").LatTotalNS; got != 500000 {
		t.Errorf("100 calls of 1000 took 50000 ns: %d in all", got)
	}
	if got := (&tally{count: 5}).caller(1, "x"); got.LatTotalNS != 0 || got.LatMaxUS != nil {
		t.Errorf("of calls that were not timed: %+v", got)
	}
}
