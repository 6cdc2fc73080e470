package track

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
)

func TestCells(t *testing.T) {
	var c cells
	for i, token := range []int32{10, 11, 12, 13, 14, 15} {
		c.set(int32(i), token)
	}
	want := func(what string, want ...int32) {
		t.Helper()
		if !slices.Equal(c, want) {
			t.Fatalf("%s: %v, want %v", what, c, want)
		}
	}
	if n := c.remove(1, 3); n != 2 {
		t.Errorf("%d removed, want 2", n)
	}
	want("a shift begins", 10, unknownToken, unknownToken, 13, 14, 15)
	c.move(3, -1, -2)
	want("a shift", 10, 13, 14, 15)
	if n := c.remove(2, -1); n != 2 {
		t.Errorf("%d removed, want 2", n)
	}
	c.set(2, 20)
	want("an end that was replaced", 10, 13, 20)
	c.set(5, 30)
	want("positions that are left out", 10, 13, 20, unknownToken, unknownToken, 30)
	if n := common(c, []int32{10, 13, 20, unknownToken}); n != 3 {
		t.Errorf("%d in common, want 3: what is not known is not alike", n)
	}
	if n := c.remove(-1, -1); n != 4 || len(c) != 0 {
		t.Errorf("%d removed, %v is left", n, c)
	}
}

// TestHistory: the one who took a position is the newest that held the prompt there, whoever took others.
func TestHistory(t *testing.T) {
	var h history
	h.add(&lost{tokens: []int32{1, 2, 3, 4}, kept: 3, by: 5})
	h.add(&lost{tokens: []int32{1, 2, 3}, kept: 1, by: 6})
	h.add(&lost{tokens: []int32{1, 9}, kept: 1, by: 7})
	if l, n := h.best([]int32{1, 2, 3, 4}, 1); l == nil || l.by != 6 || n != 3 {
		t.Errorf("%+v, %d", l, n)
	}
	if l, n := h.best([]int32{1, 2, 3, 4}, 3); l == nil || l.by != 5 || n != 4 {
		t.Errorf("%+v, %d", l, n)
	}
	if l, _ := h.best([]int32{8}, 0); l != nil {
		t.Errorf("%+v holds nothing of it", l)
	}
	if l, _ := h.best([]int32{1, 2, 3}, 3); l != nil {
		t.Errorf("%+v holds more than the prompt", l)
	}
	long := make([]int32, maxKept-keptEntry)
	h.add(&lost{tokens: long})
	if len(h.all) != 1 || h.size != maxKept {
		t.Errorf("%d entries of %d tokens", len(h.all), h.size)
	}
	for range maxKept {
		h.add(&lost{})
	}
	if len(h.all) != maxKept/keptEntry {
		t.Errorf("%d entries without tokens", len(h.all))
	}
}

// TestHistoryBest compares best with a comparison of every entry.
func TestHistoryBest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	few := func() (tokens []int32) {
		for range random.IntN(7) {
			tokens = append(tokens, random.Int32N(2))
		}
		return tokens
	}
	for range 2000 {
		var h history
		var want *lost
		var most int64
		prompt, pos := few(), random.Int64N(4)
		for range random.IntN(9) {
			l := &lost{tokens: few(), kept: random.Int32N(4)}
			h.add(l)
			if same := common(l.tokens, prompt); int64(l.kept) <= pos && same > pos && same >= most {
				want, most = l, same
			}
		}
		if got, n := h.best(prompt, pos); got != want || n != most {
			t.Fatalf("%v from %d: %+v, %d, want %+v, %d", prompt, pos, got, n, want, most)
		}
	}
}

func TestLines(t *testing.T) {
	for text, want := range map[string]line{
		"slot get_availabl: id  1 | task -1 | selected slot by LRU, n_tokens = 0, t_last = -1": {1, -1, 0, lineOldest},
		"slot get_availabl: id 12 | task -1 | selected slot by LCP similarity, f_sim_best = 0.750 (> 0.100 thold)": {
			12, -1, 0, lineSimilarity},
		"slot launch_slot_: id  0 | task 13 | processing task, is_child = 0": {0, 13, 0, lineLaunch},
		"slot print_timing: id  3 | task 5 |        eval time =      26.68 ms /     9 tokens (    3.33 ms": {
			3, 5, 9, lineTimes},
		"slot print_timing: id  3 | task 5 | prompt eval time =       1.27 ms /     2 tokens (": {3, 5, 2, lineOther},
		"srv          stop: cancel task, id_task = 7":                                           {-1, 7, 0, lineCancel},
		"srv    send_error: task id = 292, error: request (2002 tokens)": {-1, 292, 0,
			lineError},
		"": {-1, -1, -1, lineOther},
	} {
		got := readLine(text)
		if got.what != lineTimes && got.what != lineOther {
			got.n = 0
		}
		if got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// TestDocumentedRequests: docs/REQUESTS.md describes every column that there is, and no other.
func TestDocumentedRequests(t *testing.T) {
	names := []string{kvcache.GapsColumn, kvcache.BlocksColumn}
	for _, c := range kvcache.RequestColumns {
		names = append(names, c.Name)
	}
	for _, c := range kvcache.RequestTexts {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	if want := testenv.DocumentedColumns(t, "REQUESTS.md"); !slices.Equal(names, want) {
		t.Errorf("columns %q, the document has %q", names, want)
	}
}
