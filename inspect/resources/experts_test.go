package resources

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// routed writes a log of choices, which are [graph][layer][token][]expert.
func routed(t *testing.T, graphs [][][][]int) string {
	t.Helper()
	var log strings.Builder
	for exec, layers := range graphs {
		for layer, tokens := range layers {
			for i, chosen := range tokens {
				fmt.Fprintf(&log,
					`{"event":"expert_routing","ctx":0,"exec":%d,"layer_id":%d,"token_index":%d,"experts":%s}`+"\n",
					exec, layer, i, strings.ReplaceAll(fmt.Sprint(chosen), " ", ","))
			}
		}
	}
	path := filepath.Join(t.TempDir(), "resource.jsonl")
	if err := os.WriteFile(path, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOpenExperts: planted choices are counted, by token and by graph, and lines that are no choice are passed over.
func TestOpenExperts(t *testing.T) {
	// Layer 0: tokens share expert 1 in the first graph. Layer 1 alternates between 0 and 3.
	path := routed(t, [][][][]int{{{{1, 2}, {1, 0}}, {{0}, {3}}}, {{{1, 2}}, {{0}}}, {{{2, 0}}, {{3}}}})
	for _, line := range []string{"{", `{"event":"expert_routing","experts":[-1]}`,
		`{"event":"expert_routing","experts":[99999]}`,
		`{"event":"expert_routing","layer_id":-1,"experts":[1]}`, `{"event":"loss","kind":"expert_routing","count":3}`,
		`{"event":"loss","kind":"phase","count":5}`} {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(f, line)
		f.Close()
	}
	r, err := OpenExperts(context.Background(), path, ExpertOptions{Ctx: -1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Tokens != 4 || r.Graphs != 3 || r.Choices != 12 || r.Uses != 3+2+2+2+1+1 || r.Lost != 3 || len(r.Layers) != 2 {
		t.Errorf("%+v", r)
	}
	if l := r.Layers[0]; !slices.Equal(l.Chosen, []int64{2, 3, 3}) || l.Used != 2 ||
		!slices.Equal(l.Hot(), []int{1, 2, 0}) {
		t.Errorf("%+v", l)
	}
	// Again used: 1 after {2, 0}, 2 after {0, 1}, 2 after none, 0 after {1, 2}; 0 after {3}, 3 after {0}.
	if want := []ExpertSlots{{1, 1}, {2, 3}, {4, 6}}; !slices.Equal(r.Slots, want) {
		t.Errorf("slots %v, want %v", r.Slots, want)
	}
	if r.Caches != nil || !strings.Contains(r.NoModel, "--model") {
		t.Errorf("without a model there are sizes: %+v, %q", r.Caches, r.NoModel)
	}
	if _, err := OpenExperts(context.Background(), path, ExpertOptions{Ctx: 4}); err == nil ||
		!strings.Contains(err.Error(), "--ctx") {
		t.Errorf("of a context that chose nothing: %v", err)
	}
	_, err = OpenExperts(context.Background(), routed(t, nil), ExpertOptions{Ctx: -1})
	if !errors.Is(err, ErrNoExperts) {
		t.Errorf("of a log without choices: %v", err)
	}
}

// TestSimulateExperts compares caches with ones that are searched from end to end, for layers of two layouts.
func TestSimulateExperts(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	graphs := make([][][][]int, 300)
	for i := range graphs {
		graphs[i] = make([][][]int, 3)
		rows := []int{1, 1, 1, 5, 12, 40}[random.IntN(6)]
		for layer := range graphs[i] {
			for range rows {
				first := int(random.ExpFloat64()*4) % 16
				graphs[i][layer] = append(graphs[i][layer], []int{first, (first + 1 + random.IntN(3)) % 16})
			}
		}
	}
	r, err := OpenExperts(context.Background(), routed(t, graphs), ExpertOptions{Ctx: -1})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range r.Layers {
		l.Experts, l.layout, l.strides = 16, []string{"a", "b", "a"}[i], []int64{3 << 20, 1 << 20}
		if i == 1 {
			l.strides = []int64{1 << 20}
		}
		for _, stride := range l.strides {
			l.ExpertBytes += stride
		}
		r.Bytes += 16 * l.ExpertBytes
	}
	r.predict(&ExpertOptions{MiB: []int64{8, 20, 60, 150}})
	for _, c := range r.Caches {
		want := ExpertCache{MiB: c.MiB, Of: r.Uses, Groups: c.Groups}
		naive(graphs, c, &want)
		if fmt.Sprintf("%+v", *c) != fmt.Sprintf("%+v", want) {
			t.Errorf("%+v\nwant\n%+v", *c, want)
		}
	}
	few, many := r.Caches[2], r.Caches[3]
	if few.Small.Hits == 0 || few.Past == 0 || many.Large.Misses == 0 || few.Groups[0].Slots == few.Groups[1].Slots {
		t.Errorf("too little happens: %+v, %+v", few, many)
	}
}

// naive counts what caches with the slots of a prediction do: lists from the expert used last to the one used first.
func naive(graphs [][][][]int, of, want *ExpertCache) {
	var lists [2][][2]int
	var lru [][2]int
	size := func(use [2]int) int64 { return []int64{4, 1, 4}[use[0]] << 20 }
	touch := func(list [][2]int, use [2]int) ([][2]int, bool) {
		at := slices.Index(list, use)
		if at >= 0 {
			list = slices.Delete(list, at, at+1)
		}
		return slices.Insert(list, 0, use), at >= 0
	}
	for _, layers := range graphs {
		for layer, tokens := range layers {
			var distinct []int
			for _, x := range slices.Concat(tokens...) {
				if !slices.Contains(distinct, x) {
					distinct = append(distinct, x)
				}
			}
			for _, x := range distinct {
				var hit bool
				if lru, hit = touch(lru, [2]int{layer, x}); hit {
					want.LRU++
				}
				for bytes := int64(0); ; bytes = 0 {
					for _, use := range lru {
						bytes += size(use)
					}
					if bytes <= of.MiB<<20 {
						break
					}
					lru = lru[:len(lru)-1]
				}
			}
			group := layer % 2
			slots := of.Groups[group].Slots
			if len(tokens) > 32 || min(2*len(tokens), 16) > slots {
				want.Past += int64(len(distinct))
				continue
			}
			to := &want.Small
			if len(tokens) > 8 {
				to = &want.Large
			}
			list := lists[group]
			var missed []int
			for _, x := range distinct {
				if slices.Contains(list, [2]int{layer, x}) {
					list, _ = touch(list, [2]int{layer, x})
					to.Hits++
				} else {
					missed = append(missed, x)
				}
			}
			slices.Sort(missed)
			for _, x := range missed {
				list, _ = touch(list[:min(len(list), slots-1)], [2]int{layer, x})
				to.Misses++
				to.Bytes += size([2]int{layer, x})
			}
			lists[group] = list
		}
	}
}
