package track

import (
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// TestProgram: tokens that a program other than a server generates do not count as its prompt, and how many it chose
// is not known.
func TestProgram(t *testing.T) {
	var got []kvcache.Request
	r := NewRequests(RequestOptions{Done: func(q *kvcache.Request) error {
		got = append(got, *q)
		return nil
	}})
	for i, phases := range [][]ggmlhooks.Phase{
		{ggmlhooks.PhasePrefill, ggmlhooks.PhasePrefill, ggmlhooks.PhasePrefill}, {ggmlhooks.PhaseDecode},
		{ggmlhooks.PhaseDecode},
	} {
		var e ggmlhooks.Execution
		if e.MonoNS = int64(1000 + i); i == 0 {
			e.Begun = []ggmlhooks.RequestBegin{{}}
		}
		for _, phase := range phases {
			e.Rows = append(e.Rows,
				ggmlhooks.Row{Token: 7, Pos: int32(i + len(e.Rows)), Seqs: []int32{0}, Phase: phase})
		}
		if err := r.Begin(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil || len(got) != 1 {
		t.Fatalf("%v, %d requests", err, len(got))
	}
	if q := got[0]; q.Prompt != 3 || q.Computed != 3 || q.Cached != 0 || q.Output != -1 || q.Taken != 5 {
		t.Errorf("a prompt of %d tokens, %d cached and %d computed; %d chosen, %d cells",
			q.Prompt, q.Cached, q.Computed, q.Output, q.Taken)
	}
	var sum kvcache.RequestTotals
	if sum.Add(&got[0]); sum.Output != 0 {
		t.Errorf("%d tokens chosen", sum.Output)
	}
}

// TestServerStops: requests that a server cancels when it stops never leave their slots.
func TestServerStops(t *testing.T) {
	var got []kvcache.Request
	r := NewRequests(RequestOptions{Done: func(q *kvcache.Request) error {
		got = append(got, *q)
		return nil
	}})
	if err := r.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqSampler}); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"slot launch_slot_: id  0 | task 7 | processing task, is_child = 0",
		"slot launch_slot_: id  1 | task 9 | processing task, is_child = 0",
		"srv          stop: cancel task, id_task = 9",
	} {
		if err := r.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedLine, Line: line}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil || len(got) != 2 {
		t.Fatalf("%v, %d requests", err, len(got))
	}
	if got[0].End != kvcache.EndUnknown || got[1].End != kvcache.EndCancelled {
		t.Errorf("ends %d and %d", got[0].End, got[1].End)
	}
}
