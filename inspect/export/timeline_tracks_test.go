package export

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestLanes: a lane of any length is of bounded size and loses neither time nor number. Kinds are put together only
// where they have to be.
func TestLanes(t *testing.T) {
	for _, n := range []int{1, maxStretches, maxStretches + 1, 5*maxStretches + 3} {
		for _, kinds := range [][]string{{"prefill", "decode"}, {"a", "b", "c"}} {
			var l Lanes
			for i := range n {
				at, kind := int64(10*i), kinds[min(i, 1)]
				if len(kinds) == 3 {
					kind = kinds[i%3]
				}
				l.add("context 0", Stretch{Start: at, End: at + 7, Kind: kind, Tokens: 2, After: i % 2,
					AfterNS: int64(7 * (i % 2))})
			}
			lane := l.All[0]
			var count, tokens, after int
			var afterNS, end int64
			several := false
			for i, s := range lane.All {
				if s.N > lane.Each || s.Start < end {
					t.Fatalf("%d: stretch %d is %+v", n, i, s)
				}
				several = several || s.Kind == Several
				count, tokens, end = count+s.N, tokens+s.Tokens, s.End
				after, afterNS = after+s.After, afterNS+s.AfterNS
			}
			if count != n || tokens != 2*n || after != n/2 || afterNS != int64(7*after) ||
				len(lane.All) > maxStretches {
				t.Errorf("%d: %d stretches of %d, %d tokens, %d ns after %d", n, len(lane.All), count, tokens, afterNS,
					after)
			}
			if want := len(kinds) == 3 && n > maxStretches; several != want {
				t.Errorf("%d of %v: kinds put together %v, want %v", n, kinds, several, want)
			}
		}
	}
	var l Lanes
	for i := range maxLanes + 3 {
		l.add(string(rune('a'+i)), Stretch{})
	}
	if len(l.All) != maxLanes || l.Left != 3 {
		t.Errorf("%d lanes, %d left", len(l.All), l.Left)
	}
}

// TestCounter: the values of a counter are every n-th that was recorded, the first among them.
func TestCounter(t *testing.T) {
	const n = 5*maxPoints + 1
	k := Counter{Every: 1}
	for i := range n {
		k.add(int64(i), float64(i))
	}
	if len(k.At) > maxPoints || len(k.At) != (n+k.Every-1)/k.Every {
		t.Fatalf("%d values, every %d", len(k.At), k.Every)
	}
	for i, at := range k.At {
		if at != int64(i*k.Every) || k.Value[i] != float64(at) {
			t.Fatalf("value %d is %v at %d", i, k.Value[i], at)
		}
	}
}

// TestCollectTracks: the tracks have each execution and token after the set-up, and the memory of buffers, not of the
// weights in them, whose events repeat the time and the figure of their buffer.
func TestCollectTracks(t *testing.T) {
	const memory = `{"event":"memory_allocation","mono_ns":900000,"allocation_bytes":6000,"live_bytes":6000}
{"event":"memory_allocation","mono_ns":950000,"allocation_bytes":4000,"live_bytes":10000}
{"event":"memory_allocation","mono_ns":900000,"tensor_bytes":500,"live_bytes":6000}
{"event":"graph_execution","mono_ns":960000,"ctx":0,"exec":0,"phase":"setup","tokens":2,"duration_ns":1000}
`
	path := filepath.Join(t.TempDir(), "resource.jsonl")
	if err := os.WriteFile(path, []byte(memory+events(40, 3, 4)), 0o600); err != nil {
		t.Fatal(err)
	}
	tracks, err := CollectTracks(context.Background(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(tracks.Counters) != 1 || !slices.Equal(tracks.Counters[0].At, []int64{900000, 950000}) ||
		!slices.Equal(tracks.Counters[0].Value, []float64{6000, 10000}) {
		t.Errorf("counters %+v", tracks.Counters)
	}
	if tracks.Begin != 1_000_000 || tracks.End != 1_000_000+39*2000+1000 || tracks.Setups != 1 {
		t.Errorf("from %d to %d, %d of set-up", tracks.Begin, tracks.End, tracks.Setups)
	}
	for _, lanes := range []*Lanes{&tracks.Graphs, &tracks.Tokens} {
		if len(lanes.All) != 1 || len(lanes.All[0].All) != 40 {
			t.Errorf("lanes %+v", lanes)
		}
	}
}

// TestTracksOfFirstTokens: the time to a token from another generated one does not have that from a prompt's.
func TestTracksOfFirstTokens(t *testing.T) {
	tracks := &Tracks{Tokens: Lanes{mixed: true}}
	for _, k := range []token{{start: 10, end: 500, first: true}, {start: 500, end: 503}, {start: 900, end: 900}} {
		if err := tracks.token(&k); err != nil {
			t.Fatal(err)
		}
	}
	var after []int64
	for _, s := range tracks.Tokens.All[0].All {
		after = append(after, int64(s.After), s.AfterNS)
	}
	if !slices.Equal(after, []int64{0, 0, 1, 3, 0, 0}) {
		t.Errorf("after another one: %v", after)
	}
}

// TestTracksLoseNothingSilently: tokens of an unknown sequence, and of another context's, have lanes of their own; what
// is beyond the bound of counters is counted.
func TestTracksLoseNothingSilently(t *testing.T) {
	tracks := &Tracks{values: map[string]*Counter{}, Tokens: Lanes{mixed: true}}
	for _, k := range []token{{seq: -1}, {seq: 0}, {ctx: 1, seq: 0}, {seq: 0}} {
		if err := tracks.token(&k); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, lane := range tracks.Tokens.All {
		names = append(names, lane.Name)
	}
	if want := []string{"no known sequence", "sequence 0", "sequence 0 of context 1"}; !slices.Equal(names, want) {
		t.Errorf("lanes %q, want %q", names, want)
	}
	for i := range maxCounters + 3 {
		if err := tracks.counter(&counter{name: string(rune('a' + i)), at: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if len(tracks.values) != maxCounters || tracks.CountersLeft != 3 {
		t.Errorf("%d counters, %d values left", len(tracks.values), tracks.CountersLeft)
	}
}
