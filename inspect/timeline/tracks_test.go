package timeline

import "testing"

// TestLanes: a lane of any length is of bounded size and loses neither time nor number.
func TestLanes(t *testing.T) {
	for _, n := range []int{1, maxStretches, maxStretches + 1, 5*maxStretches + 3} {
		var l Lanes
		for i := range n {
			at := int64(10 * i)
			l.add("context 0", Stretch{Start: at, End: at + 7, Kind: []string{"prefill", "decode"}[min(i, 1)], Tokens: 2})
		}
		lane := l.All[0]
		var count, tokens int
		var busy, end int64
		for i, s := range lane.All {
			if s.N > lane.Each || s.Start < end || s.Kind == "" || s.N > 1 && i > 0 && s.Kind != "decode" {
				t.Fatalf("%d: stretch %d is %+v", n, i, s)
			}
			count, tokens, busy, end = count+s.N, tokens+s.Tokens, busy+s.Busy, s.End
		}
		if count != n || tokens != 2*n || busy != int64(7*n) || len(lane.All) > maxStretches {
			t.Errorf("%d: %d stretches of %d, %d tokens, busy %d", n, len(lane.All), count, tokens, busy)
		}
		if first := lane.All[0]; n > maxStretches && first.Kind != Several || n <= maxStretches && first.Kind != "prefill" {
			t.Errorf("%d: the first is %+v", n, first)
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
