package track

import (
	"fmt"
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

// TestPurge: when a batch finds no room, llama-server clears an idle slot. What made room is the request that runs, and
// not the one that gets the slot later.
func TestPurge(t *testing.T) {
	got := map[int64]kvcache.Request{}
	r := NewRequests(RequestOptions{Done: func(q *kvcache.Request) error {
		got[q.ID] = *q
		return nil
	}})
	ns := int64(0)
	do := func(err error) {
		t.Helper()
		if ns++; err != nil {
			t.Fatal(err)
		}
	}
	sampler := func(seq int32) {
		do(r.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqSampler, Seq: seq, MonoNS: ns}))
	}
	launch := func(seq int32) {
		sampler(seq)
		do(r.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedLine, MonoNS: ns,
			Line: fmt.Sprintf("slot launch_slot_: id  %d | task 1 | processing task, is_child = 0", seq)}))
	}
	compute := func(seq, pos int32, tokens ...int32) { // and choose a token
		call, e := ggmlhooks.Call{MonoNS: ns}, ggmlhooks.Execution{Exec: ggmlhooks.Exec{MonoNS: ns}}
		for i, token := range tokens {
			row := ggmlhooks.CallRow{Token: token, Pos: pos + int32(i), Seqs: []int32{seq}}
			call.Rows = append(call.Rows, row)
			e.Rows = append(e.Rows, ggmlhooks.Row{Token: token, Pos: row.Pos, Seqs: row.Seqs})
		}
		do(r.Call(&call))
		do(r.Begin(&e))
		do(r.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedChoice, Row: int32(len(tokens) - 1), MonoNS: ns}))
	}
	launch(0)
	compute(0, 0, 1, 2, 3, 4)
	sampler(0)
	launch(1)
	compute(1, 0, 5, 6)
	do(r.SeqChange(&ggmlhooks.SeqChange{Seq: 0, First: -1, End: -1, MonoNS: ns}))
	purged := ns
	compute(1, 2, 7)
	sampler(1)
	launch(0)
	compute(0, 0, 1, 2, 3, 4)
	sampler(0)
	do(r.Close())
	if q := got[2]; q.Cause != kvcache.CauseEvicted || q.Again != 3 || q.By != 1 || q.AtNS != purged-1 {
		t.Errorf("%d requests; cause %d, %d tokens, by request %d at %d, want by 1 at %d", len(got), q.Cause, q.Again,
			q.By, q.AtNS, purged-1)
	}
}
