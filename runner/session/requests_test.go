//go:build linux

package session

import (
	"testing"
	"time"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/kvcache/track"
	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
)

// TestTickBehind: a collector that did not run for long has an answer unread that came in time. The request waits for
// the next look.
func TestTickBehind(t *testing.T) {
	var got []kvcache.RequestEnd
	dir, err := rundir.Create(t.TempDir(), "model", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	q := &requests{table: track.NewRequestTable(dir, 0)}
	q.Requests = track.NewRequests(track.RequestOptions{Done: func(done *kvcache.Request) error {
		got = append(got, done.End)
		return nil
	}})
	long := stream.MonoNS() - int64(10*time.Second)
	sampler := ggmlhooks.SeqChange{Kind: ggmlhooks.SeqSampler, MonoNS: long}
	rows := []ggmlhooks.CallRow{{Token: 5, Seqs: []int32{0}}}
	execution := ggmlhooks.Execution{Exec: ggmlhooks.Exec{MonoNS: long}}
	execution.Rows = []ggmlhooks.Row{{Token: 5, Seqs: []int32{0}}}
	served := func(kind ggmlhooks.ServedKind, s ggmlhooks.Served) error {
		s.Kind, s.MonoNS = kind, long
		return q.Served(&s)
	}
	for _, err := range []error{
		served(ggmlhooks.ServedAsk, ggmlhooks.Served{Value: 1, Key: ggmlhooks.PromptHash([]int32{5})}),
		q.SeqChange(&sampler),
		served(ggmlhooks.ServedLine, ggmlhooks.Served{
			Line: "slot launch_slot_: id  0 | task 1 | processing task, is_child = 0"}),
		q.Call(&ggmlhooks.Call{MonoNS: long, Rows: rows}),
		q.Begin(&execution),
		served(ggmlhooks.ServedChoice, ggmlhooks.Served{}),
		q.SeqChange(&sampler), // it leaves its slot
		q.tick(),
		served(ggmlhooks.ServedAnswer, ggmlhooks.Served{Token: 0, Key: 1, Value: ggmlhooks.ServedLength}),
		q.tick(),
		q.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 1 || got[0] != kvcache.EndLength {
		t.Errorf("requests ended by %v, want %v", got, kvcache.EndLength)
	}
}
