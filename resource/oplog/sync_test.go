package oplog

import (
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// onDevice executes a graph that a device still computes, for 1 µs of the model's thread.
func (b *bench) onDevice(g *ggmlhooks.Graph, outputs ...int32) uint64 {
	b.Helper()
	b.exec++
	b.check(b.Exec(&ggmlhooks.Exec{Number: b.exec, Graph: g.ID, MonoNS: b.clock, TokenFirst: b.next,
		Tokens: make([]int32, g.Tokens), Outputs: outputs}))
	b.next += int64(g.Tokens)
	b.clock += 1000
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: b.exec, MonoNS: b.clock, BeginNS: b.clock - 900, Async: true}))
	return b.exec
}

// TestDeviceTime: what a device computes has its time when it is synchronised first, and says so; of several graphs
// at once, of those that nothing was synchronised after, and of a remote device's without results, no time is
// reported. All are reported once, in order.
func TestDeviceTime(t *testing.T) {
	b := newBench(t, Options{Level: resource.Minimal})
	b.buffers()
	g := small(1, 1)
	b.check(b.Graph(g))
	single := b.onDevice(g, 0)
	b.clock += 40_000
	b.check(b.Sync(ggmlhooks.Sync{Exec: single, MonoNS: b.clock, WaitNS: 30_000, Graphs: 1}))
	if graphs := countGraphs(b); graphs != 1 {
		t.Errorf("%d graphs are reported", graphs)
	}
	b.onDevice(g, 0)
	third := b.onDevice(g, 0)
	if graphs := countGraphs(b); graphs != 1 {
		t.Errorf("%d graphs are reported before they are done", graphs)
	}
	b.clock += 5000
	b.check(b.Sync(ggmlhooks.Sync{Exec: third, MonoNS: b.clock, WaitNS: 5000, Graphs: 2}))
	b.check(b.Sync(ggmlhooks.Sync{Exec: 4711, MonoNS: b.clock, Graphs: 1})) // of a context that is not known
	b.onDevice(g, 0)
	b.run(batch{graph: g, tokens: []int32{1}, read: true}) // on the host
	b.onDevice(g, 0)
	_, events := b.lines()
	graphs, work := of[resource.Graph](events), whole(events)
	if len(graphs) != 6 || len(work) != 6 {
		t.Fatalf("%d graphs, %d of work", len(graphs), len(work))
	}
	for i, e := range graphs {
		if e.Exec != uint64(i+1) || work[i].Exec != e.Exec {
			t.Errorf("graph %d is execution %d", i, e.Exec)
		}
		switch i {
		case 0:
			if *e.DurationNS != 40_900 || *e.TimeSource != resource.TimeSync || *e.SyncWaitNS != 30_000 ||
				work[i].TimeSource != resource.TimeSync || *work[i].DurationNS != 40_900 {
				t.Errorf("%+v, %+v", e, work[i])
			}
		case 4:
			if e.TimeSource != nil || e.DurationNS == nil || work[i].TimeSource != resource.TimeGraph {
				t.Errorf("%+v, %+v", e, work[i])
			}
		default:
			if e.DurationNS != nil || e.TimeSource != nil || e.SyncWaitNS != nil || work[i].DurationNS != nil {
				t.Errorf("%+v, %+v", e, work[i])
			}
		}
	}
	end := of[resource.SessionEnd](events)[0].Phases
	if sum := end["prefill"].DurationNS + end["decode"].DurationNS; sum < 41_000 {
		t.Errorf("the phases took %d ns", sum)
	}
}

func countGraphs(b *bench) int {
	b.Helper()
	b.check(b.r.Flush())
	n := 0
	for _, line := range strings.Split(b.out.String(), "\n") {
		if event, err := resource.Decode([]byte(line)); err == nil {
			if _, ok := event.(*resource.Graph); ok {
				n++
			}
		}
	}
	return n
}

// TestRemoteDevice: where synchronising with a device behind a network waits for nothing, its graphs are done when
// results were fetched.
func TestRemoteDevice(t *testing.T) {
	b := newBench(t, Options{Level: resource.Minimal})
	b.check(b.Buffer(&ggmlhooks.Buffer{ID: 9, MonoNS: b.clock, Size: 1 << 20, Device: "RPC0",
		Type: "RPC0[127.0.0.1:50052]"}))
	g := small(1, 1)
	g.Nodes[len(g.Nodes)/2].Buffer = 9
	b.check(b.Graph(g))
	for _, c := range []struct {
		outputs []int32
		wait    int64
	}{{nil, 10}, {[]int32{0}, 10}, {nil, 50_000}} {
		exec := b.onDevice(g, c.outputs...)
		b.clock += 60_000
		b.check(b.Sync(ggmlhooks.Sync{Exec: exec, MonoNS: b.clock, WaitNS: c.wait, Graphs: 1}))
	}
	_, events := b.lines()
	if graphs := of[resource.Graph](events); len(graphs) != 3 || graphs[0].DurationNS != nil ||
		graphs[1].DurationNS == nil || graphs[2].DurationNS == nil {
		t.Errorf("%+v", graphs)
	}
}

// TestDeviceThatIsNeverSynchronised: executions wait in bounded memory, set-up is recorded as such.
func TestDeviceThatIsNeverSynchronised(t *testing.T) {
	b := newBench(t, Options{Level: resource.Minimal})
	b.buffers()
	g := small(1, 1)
	b.check(b.Graph(g))
	const waits = 64 // as many as an assembler waits for
	for range 3 * waits {
		b.onDevice(g)
	}
	if n := countGraphs(b); n != 2*waits {
		t.Errorf("%d are reported", n)
	}
	if _, events := b.lines(); len(of[resource.Graph](events)) != 3*waits {
		t.Errorf("%d are reported in the end", len(of[resource.Graph](events)))
	}
}
