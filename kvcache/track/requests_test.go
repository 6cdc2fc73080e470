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

// serverTale is what happens to a server, step by step.
type serverTale struct {
	*testing.T
	*Requests
	got map[int64]kvcache.Request
	ns  int64 // of the next step
}

func newTale(t *testing.T) *serverTale {
	s := &serverTale{T: t, got: map[int64]kvcache.Request{}}
	s.Requests = NewRequests(RequestOptions{Done: func(q *kvcache.Request) error {
		s.got[q.ID] = *q
		return nil
	}})
	return s
}

// do ends a step and returns when it was.
func (s *serverTale) do(err error) int64 {
	s.Helper()
	if s.ns++; err != nil {
		s.Fatal(err)
	}
	return s.ns - 1
}

func (s *serverTale) sampler(seq int32) {
	s.do(s.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqSampler, Seq: seq, MonoNS: s.ns}))
}

func (s *serverTale) clear(seq int32) int64 {
	return s.do(s.SeqChange(&ggmlhooks.SeqChange{Seq: seq, First: -1, End: -1, MonoNS: s.ns}))
}

func (s *serverTale) launch(seq int32) {
	s.sampler(seq)
	s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedLine, MonoNS: s.ns,
		Line: fmt.Sprintf("slot launch_slot_: id  %d | task 1 | processing task, is_child = 0", seq)}))
}

// arrive receives a prompt in a thread of its slot's number.
func (s *serverTale) arrive(seq int32, tokens ...int32) {
	s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedAsk, Row: seq, Value: uint32(len(tokens)),
		Key: ggmlhooks.PromptHash(tokens), MonoNS: s.ns}))
}

// answer answers it.
func (s *serverTale) answer(seq int32) {
	s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedAnswer, Row: seq, Token: seq, Key: 1,
		Value: ggmlhooks.ServedStop, MonoNS: s.ns}))
}

// compute computes tokens and chooses one.
func (s *serverTale) compute(seq, pos int32, tokens ...int32) {
	call, e := ggmlhooks.Call{MonoNS: s.ns}, ggmlhooks.Execution{Exec: ggmlhooks.Exec{MonoNS: s.ns}}
	for i, token := range tokens {
		row := ggmlhooks.CallRow{Token: token, Pos: pos + int32(i), Seqs: []int32{seq}}
		call.Rows = append(call.Rows, row)
		e.Rows = append(e.Rows, ggmlhooks.Row{Token: token, Pos: row.Pos, Seqs: row.Seqs})
	}
	s.do(s.Call(&call))
	s.do(s.Begin(&e))
	s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedChoice, Row: int32(len(tokens) - 1), MonoNS: s.ns}))
}

// evicted checks that a request computed tokens again because of another one, or of none.
func (s *serverTale) evicted(id, tokens, by, at int64) {
	s.Helper()
	q := s.got[id]
	if q.Cause != kvcache.CauseEvicted || q.Again != tokens || q.By != by || q.AtNS != at {
		s.Errorf("request %d of %d: cause %d, %d tokens, by request %d at %d; want %d by %d at %d", id, len(s.got),
			q.Cause, q.Again, q.By, q.AtNS, tokens, by, at)
	}
}

// TestPurge: when a batch finds no room, llama-server clears an idle slot. What made room is the request that runs, and
// not the one that gets the slot later.
func TestPurge(t *testing.T) {
	s := newTale(t)
	s.launch(0)
	s.compute(0, 0, 1, 2, 3, 4)
	s.sampler(0)
	s.arrive(1, 5, 6)
	s.launch(1)
	s.compute(1, 0, 5, 6)
	purged := s.clear(0)
	s.compute(1, 2, 7)
	s.answer(1)
	s.sampler(1)
	s.launch(0)
	s.compute(0, 0, 1, 2, 3, 4)
	s.sampler(0)
	s.do(s.Close())
	s.evicted(2, 3, 1, purged)
}

// TestErased: a client erases slots between two requests. It was for none of them, whichever slot the next one gets.
func TestErased(t *testing.T) {
	s := newTale(t)
	s.launch(0)
	s.compute(0, 0, 1, 2, 3, 4)
	s.sampler(0)
	erased := s.clear(0)
	for _, seq := range []int32{1, 0} { // another slot, and the same
		s.arrive(seq, 1, 2, 9)
		s.launch(seq)
		s.compute(seq, 0, 1, 2, 9)
		s.answer(seq)
		s.sampler(seq)
		s.clear(seq)
	}
	s.do(s.Close())
	s.evicted(1, 2, -1, erased)
	s.evicted(2, 2, -1, s.got[2].AtNS)
}

// TestLateAnswers: prompts that are alike are distinguished by their answers, however late these come on a busy
// machine.
// Where none comes, no request has the arrival of another one.
func TestLateAnswers(t *testing.T) {
	s := newTale(t)
	for seq := range int32(3) {
		s.arrive(seq, 5, 6)
	}
	for seq := range int32(3) {
		s.launch(seq)
		s.compute(seq, 0, 5, 6)
		s.sampler(seq) // it leaves its slot
	}
	s.do(s.Tick(10 * patience))
	if len(s.got) != 0 {
		t.Fatalf("%d requests were handed on before their answers came", len(s.got))
	}
	s.answer(1)
	if q := s.got[1]; q.ArrivalNS != 1 || q.Seq != 1 {
		t.Errorf("the request in slot %d arrived at %d, want slot 1 at 1", q.Seq, q.ArrivalNS)
	}
	s.do(s.Tick(2 * patienceLike))
	for id := range int64(3) {
		if q, known := s.got[id]; !known || id != 1 && q.ArrivalNS != kvcache.NewRequest().ArrivalNS {
			t.Errorf("request %d, %v, arrived at %d, which is another one's perhaps", id, known, q.ArrivalNS)
		}
	}
	s.launch(0) // two prompts wait still, and one may be that of request 0
	s.compute(0, 0, 5, 6)
	s.answer(2)
	s.sampler(0)
	s.do(s.Tick(4 * patienceLike))
	if q := s.got[3]; q.ArrivalNS != kvcache.NewRequest().ArrivalNS {
		t.Errorf("request 3 arrived at %d, which is another one's perhaps", q.ArrivalNS)
	}
}

// TestAlike: requests with the same prompt at a time are those of their own answers, also where an answer is of
// several, or has no times.
func TestAlike(t *testing.T) {
	s := newTale(t)
	settings := func(seq int32, line string) {
		s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedHTTP, Row: seq, MonoNS: s.heads[seq].arrivalNS,
			Line: line}))
	}
	says := func(thread, n int32, line string) {
		s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedAnswer, Row: thread, Token: -1, Key: uint64(n),
			Line:  line,
			Value: ggmlhooks.ServedLength, MonoNS: s.ns}))
	}
	wants := func(id, arrival int64) {
		t.Helper()
		if q, known := s.got[id]; !known || q.ArrivalNS != arrival {
			t.Errorf("request %d, %v, arrived at %d, want %d", id, known, q.ArrivalNS, arrival)
		}
	}
	arrive := func(seq int32) int64 {
		s.arrive(seq, 5, 6)
		s.heads[seq] = head{arrivalNS: s.ns - 1}
		return s.ns - 1
	}
	end := func(seqs ...int32) {
		for _, seq := range seqs {
			s.sampler(seq)
		}
	}
	one := arrive(0)
	s.launch(0)
	arrive(1) // while request 0 has its slot: it is none of its
	s.compute(0, 0, 5, 6)
	end(0)
	says(1, 1, `"timings":{"cache_n":0,"prompt_n":2,"predicted_n":1}`)
	if len(s.got) != 0 {
		t.Error("a request has the answer to a prompt that came after it got its slot")
	}
	says(0, 1, `"timings":{"cache_n":0,"prompt_n":2,"predicted_n":1}`)
	wants(0, one)

	several := arrive(2)
	settings(2, "n 2\nstream true\n")
	other := arrive(3)
	for seq := range int32(3) {
		s.launch(seq)
	}
	for seq := range int32(3) {
		s.compute(seq, 0, 5, 6)
	}
	s.compute(0, 2, 7) // request 1 is that of thread 3
	end(0, 1, 2)
	for range 2 {
		says(2, 1, `"timings":{"cache_n":0,"prompt_n":2,"predicted_n":1}`)
	}
	says(3, 1, `"output_tokens":2`)
	wants(1, other)
	wants(2, several)
	wants(3, several)
}

// TestTogether: the answer to several prompts comes when the last of them is computed, however long the first one has
// waited for it by then.
func TestTogether(t *testing.T) {
	s := newTale(t)
	ask := func(thread int32, prompts ...[]int32) {
		at := s.ns
		for _, tokens := range prompts {
			s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedAsk, Row: thread, Value: uint32(len(tokens)),
				Key: ggmlhooks.PromptHash(tokens), MonoNS: at}))
		}
	}
	compute := func(tokens ...int32) {
		s.launch(0)
		s.compute(0, 0, tokens...)
		s.ns += 2 * patienceLike
		s.sampler(0) // it leaves its slot
		s.do(s.Tick(s.ns))
		s.ns += 2 * patienceLike
		s.do(s.Tick(s.ns))
	}
	s.ns = 1
	ask(3, []int32{5, 6}, []int32{7})
	compute(5, 6) // the other one waits for the slot
	s.launch(0)
	s.compute(0, 0, 7)
	s.ns += 2 * patienceLike
	s.do(s.Tick(s.ns)) // … and runs
	s.sampler(0)
	s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedAnswer, Row: 3, Token: -1, Key: 2,
		Line: `"timings":{"cache_n":0,"prompt_n":2,"predicted_n":1}`, Value: ggmlhooks.ServedLength, MonoNS: s.ns}))
	for id := range int64(2) {
		if q, known := s.got[id]; !known || q.ArrivalNS != 1 || q.End != kvcache.EndLength {
			t.Errorf("request %d, %v, arrived at %d and ended by %d, want 1 and %d", id, known, q.ArrivalNS, q.End,
				kvcache.EndLength)
		}
	}
	at := s.ns
	ask(4, []int32{8, 9}, []int32{7})
	s.launch(0)
	s.compute(0, 0, 8, 9)
	s.sampler(0)
	s.launch(0)
	s.compute(0, 0, 7)
	s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedLine, Row: 4, MonoNS: s.ns,
		Line: "srv          stop: cancel task, id_task = 1"}))
	s.sampler(0)
	s.do(s.Tick(s.ns + 2*patience))
	for id, end := range map[int64]kvcache.RequestEnd{2: kvcache.EndUnknown, 3: kvcache.EndCancelled} {
		if q, known := s.got[id]; !known || q.ArrivalNS != at || q.End != end {
			t.Errorf("the client left: request %d, %v, arrived at %d and ended by %d, want %d and %d", id, known,
				q.ArrivalNS, q.End, at, end)
		}
	}
}

// TestWaiting: several answers to a prompt take that one, and no other that waits.
func TestWaiting(t *testing.T) {
	s := newTale(t)
	wants := func(running, waiting int) {
		t.Helper()
		if r, w := s.Live(); r != running || w != waiting {
			t.Errorf("%d run and %d wait, want %d and %d", r, w, running, waiting)
		}
	}
	several := func(seq int32, tokens ...int32) {
		s.heads[seq] = head{arrivalNS: s.ns, RequestSaid: kvcache.RequestSaid{Settings: `{"n":2}`}}
		s.arrive(seq, tokens...)
	}
	several(0, 5, 6)
	several(2, 8, 9)
	wants(0, 2)
	s.launch(0)
	s.launch(1)
	wants(2, 1) // before the prompt is computed
	s.compute(0, 0, 5, 6)
	s.compute(1, 0, 5, 6)
	s.arrive(4, 7)
	wants(2, 2)
	s.launch(2)
	s.launch(3)
	s.compute(2, 0, 8, 9)
	s.compute(3, 0, 8, 9)
	wants(4, 1)
}

// TestSharers: slots that share a prompt choose in the order of their numbers, also where the one that computes it is
// not the first.
func TestSharers(t *testing.T) {
	s := newTale(t)
	s.launch(0)
	s.launch(1)
	call, e := ggmlhooks.Call{MonoNS: s.ns}, ggmlhooks.Execution{Exec: ggmlhooks.Exec{MonoNS: s.ns}}
	call.Rows = []ggmlhooks.CallRow{{Token: 5, Seqs: []int32{1}}}
	e.Rows = []ggmlhooks.Row{{Token: 5, Seqs: []int32{1}}}
	s.do(s.Call(&call))
	s.do(s.Begin(&e))
	s.do(s.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqCopy, Seq: 1, To: 0, First: -1, End: -1, MonoNS: s.ns}))
	for seq := range int32(2) {
		s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedChoice, MonoNS: s.ns}))
		s.sampler(seq)
	}
	s.do(s.Close())
	for id := range int64(2) {
		if q := s.got[id]; q.Output != 1 || q.Prompt != 1 {
			t.Errorf("request %d has %d tokens of %d", id, q.Output, q.Prompt)
		}
	}
}

// TestOtherPrograms: a program without slots names the last output by -1, and the prompt that follows in a sequence is
// no draft.
func TestOtherPrograms(t *testing.T) {
	s := newTale(t)
	step := func(begun []ggmlhooks.RequestBegin, phase ggmlhooks.Phase, pos, rows int, chosen ...int32) {
		call, e := ggmlhooks.Call{MonoNS: s.ns}, ggmlhooks.Execution{Exec: ggmlhooks.Exec{MonoNS: s.ns}, Begun: begun}
		for seq := range chosen { // as many sequences, of as many rows
			for i := range rows {
				at, seqs := int32(pos+i), []int32{int32(seq)}
				call.Rows = append(call.Rows, ggmlhooks.CallRow{Pos: at, Seqs: seqs, Output: i == rows-1})
				e.Rows = append(e.Rows, ggmlhooks.Row{Pos: at, Seqs: seqs, Phase: phase})
			}
		}
		s.do(s.Call(&call))
		s.do(s.Begin(&e))
		for _, row := range chosen {
			s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedChoice, Row: row, MonoNS: s.ns}))
		}
	}
	step([]ggmlhooks.RequestBegin{{Seq: 0}, {Seq: 1}}, ggmlhooks.PhasePrefill, 0, 3, -2, -1)
	step(nil, ggmlhooks.PhaseDecode, 3, 1, -1)
	step([]ggmlhooks.RequestBegin{{Seq: 0, Number: 1}}, ggmlhooks.PhasePrefill, 0, 4, -1)
	step(nil, ggmlhooks.PhaseDecode, 4, 1, -1)
	step(nil, ggmlhooks.PhaseDecode, 5, 1, -1)
	for seq := range int32(2) {
		s.do(s.end(s.context(0).slot(seq), s.ns))
	}
	s.do(s.Close())
	for id, want := range map[int64][2]int64{0: {3, 2}, 1: {3, 1}, 2: {4, 3}} {
		if q := s.got[id]; q.Prompt != want[0] || q.Output != want[1] || q.Drafted != 0 {
			t.Errorf("request %d: %d tokens of a prompt of %d, %d drafted; want %v", id, q.Output, q.Prompt, q.Drafted,
				want)
		}
	}
}

// TestCancelledSiblings: a client leaves whose request has several answers. All of them have its arrival, and none that
// of another request with the same prompt, which waits.
func TestCancelledSiblings(t *testing.T) {
	s := newTale(t)
	s.arrive(1, 5, 6)
	s.arrive(0, 5, 6)
	for seq := range int32(2) {
		s.sampler(seq)
		s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedLine, MonoNS: s.ns,
			Line: fmt.Sprintf("slot launch_slot_: id  %d | task %d | processing task, is_child = 0", seq, seq)}))
		s.compute(seq, 0, 5, 6)
	}
	for task := range 2 {
		s.do(s.Served(&ggmlhooks.Served{Kind: ggmlhooks.ServedLine, Row: 0, MonoNS: s.ns,
			Line: fmt.Sprintf("srv          stop: cancel task, id_task = %d", task)}))
	}
	for seq := range int32(2) {
		s.sampler(seq)
		if q := s.got[int64(seq)]; q.ArrivalNS != 1 {
			t.Errorf("request %d arrived at %d, want 1", seq, q.ArrivalNS)
		}
	}
}
