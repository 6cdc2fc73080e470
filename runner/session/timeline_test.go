//go:build linux

package session

import (
	"math"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// TestTimeline: what was computed at a time is labelled by phase and tokens, as far as it is known by then.
func TestTimeline(t *testing.T) {
	var g timeline
	a := ggmlhooks.NewAssembler(0, &closing{&g})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	call := uint64(0)
	exec := func(number uint64, first int64, provisional bool, tokens ...int32) {
		call++
		c := ggmlhooks.Call{Number: call, Ctx: 1, Read: true, Accepts: number > 2}
		e := ggmlhooks.Exec{Number: number, Call: call, Ctx: 1, MonoNS: int64(number) * 100, TokenFirst: first,
			Provisional: provisional, Tokens: tokens}
		for i, token := range tokens {
			c.Rows = append(c.Rows, ggmlhooks.CallRow{Token: token, Pos: int32(first) + int32(i), Seqs: []int32{0},
				Output: i == len(tokens)-1})
			e.Pos = append(e.Pos, int32(first)+int32(i))
		}
		must(a.Call(&c))
		must(a.Exec(&e))
	}
	end := func(number uint64) {
		must(a.ExecEnd(ggmlhooks.ExecEnd{Number: number, MonoNS: int64(number)*100 + 50}))
	}
	must(a.Context(&ggmlhooks.Context{Number: 1, NUBatch: 512}))
	must(a.Graph(&ggmlhooks.Graph{Ctx: 1}))
	phase := func(from, to int64, want string, wantFirst, wantLast int64) {
		t.Helper()
		if p, first, last := g.within(from, to); p != want || first != wantFirst || last != wantLast {
			t.Errorf("between %d and %d: %s %d-%d, want %s %d-%d", from, to, p, first, last, want, wantFirst, wantLast)
		}
	}
	phase(0, 1, "load", -1, -1)
	exec(1, 0, true, 1, 2) // a warm-up
	end(1)
	phase(110, 120, "prefill", 0, 1) // as it seems
	must(a.Resolve(ggmlhooks.Resolve{Ctx: 1, Exec: 1, Discarded: true}))
	exec(2, 0, true, 5, 6, 7)
	phase(210, 220, "prefill", 0, 2) // while it is computed
	end(2)
	must(a.Resolve(ggmlhooks.Resolve{Ctx: 1, Exec: 2}))
	exec(3, 3, false, 8)
	end(3)
	exec(4, 4, true, 9)
	end(4)
	phase(0, 90, "load", -1, -1)
	phase(110, 120, "setup", -1, -1) // its rows are no tokens of the run
	phase(260, 290, "between", -1, -1)
	phase(300, 460, "decode", 3, 4)
	phase(0, 460, "decode", 3, 4)
}

// TestGraphTime: time in which graphs were computed counts once, though they overlap, and is not known where some
// are forgotten.
func TestGraphTime(t *testing.T) {
	var times timeline
	if got := times.computed(0, 100); got != (resource.GraphTime{Known: true}) {
		t.Errorf("no graph: %+v", got)
	}
	for _, s := range []span{{begin: 100, end: 200}, {begin: 150, end: 250}, {begin: 160, end: 170},
		{begin: 300, end: math.MaxInt64}} {
		times.add(s)
	}
	for _, c := range []struct{ from, to, want int64 }{{0, 100, 0}, {0, 400, 250}, {120, 130, 10}, {180, 310, 80},
		{250, 300, 0}, {500, 600, 100}} {
		if got := times.computed(c.from, c.to); got != (resource.GraphTime{NS: c.want, Known: true}) {
			t.Errorf("from %d to %d: %+v, want %d", c.from, c.to, got, c.want)
		}
	}
	if times.trimmed = true; times.computed(0, 400).Known || !times.computed(100, 400).Known {
		t.Error("known, though graphs before the first are forgotten")
	}
}

// closing gives a timeline a Close.
type closing struct{ *timeline }

func (closing) Close() error { return nil }
