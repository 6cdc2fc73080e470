//go:build linux

package oracle

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	lives "github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/store/rundir"
)

// freeCells are the cells that no sequence has below the last one in use, added up over a run's graphs, by the lives of
// single cells and the times of the graphs.
func freeCells(t *testing.T, dir string) (free int64) {
	t.Helper()
	var first *lives.Life
	var all []lives.Life
	err := lives.EachLife(context.Background(), dir, func(l *lives.Life) error {
		if first == nil {
			first = l
		}
		if l.Layer == first.Layer && l.KV == first.KV {
			all = append(all, *l)
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d lives: %v", len(all), err)
	}
	graphs := slices.DeleteFunc(jsonLines[resource.Graph](t, filepath.Join(dir, rundir.EventsName)),
		func(g resource.Graph) bool {
			return g.Event != resource.KindGraph || g.Phase == resources.PhaseSetup || g.Tokens == 0
		})
	for i, g := range graphs {
		end, next, used, last := g.UnixNS+*g.DurationNS, int64(math.MaxInt64), int64(0), int64(0)
		if i+1 < len(graphs) {
			next = graphs[i+1].UnixNS // what was written before is of this graph, or an earlier one
		}
		for _, l := range all {
			if l.WriteNS < next && (l.EndNS == 0 || l.EndNS > end) {
				used++
				last = max(last, l.End)
			}
		}
		free += last - used
	}
	return free
}

// TestReportFragmented: a conversation at the end of a cache that others have left makes attention read free cells,
// which stands out where the sequences share one cache, and does not where each has its own.
func TestReportFragmented(t *testing.T) {
	testenv.Slow(t)
	const fragmented = "a fragmented KV cache"
	for cache, want := range map[string]bool{"--kv-unified": true, "--no-kv-unified": false} {
		t.Run(cache, func(t *testing.T) {
			s := serve(t, []string{"--tap-kv", "--tap-kv-block", "1", "--tap-resource-level", "MINIMAL"}, "-np", "3",
				"-c",
				"1536", "-t", "1", "--no-webui", "--cache-ram", "0", cache, "-m", testenv.Model(t))
			for _, q := range []question{{prompt: strings.Repeat(long, 5)}, {prompt: strings.Repeat(long, 5), slot: 1},
				{prompt: "package main\n", slot: 2}, {prompt: "x"}, {prompt: "y", slot: 1}} {
				q.n = 1
				s.ask(t, q) // the last two in the place of the first two
			}
			s.ask(t, question{prompt: "package main\n\nfunc", slot: 2, n: 200})
			s.stop()
			dir := runDirs(t, s.out)[0]
			k, err := resources.OpenKV(context.Background(), dir, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			g := k.Gauges()[0]
			var free int64
			if want { // else each sequence has the first cells of its own part
				free = freeCells(t, dir)
			}
			if g.Attended == nil || g.Attended.Free != free || g.Attended.Readable+free > g.Attended.Cells {
				t.Fatalf("%+v, by the lives %d are free", g.Attended, free)
			}
			var read int64
			for _, e := range jsonLines[resource.Graph](t, filepath.Join(dir, rundir.EventsName)) {
				if e.Event == resource.KindGraph && e.Phase != resources.PhaseSetup && e.Tokens > 0 {
					read += *e.BytesRead
				}
			}
			r := report(t, dir)
			share, standsOut := r.share(fragmented)
			if math.Abs(share-float64(g.Attended.Free*g.CellBytes)/float64(read)) > 1e-9 || standsOut != want {
				t.Errorf("share %v of %d bytes, %+v: %s", share, read, g.Attended, r.Verdict)
			}
		})
	}
}
