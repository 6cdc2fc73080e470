package oplog

import (
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/resource"
)

// TestCopiedSequence: the first token of a sequence that was copied comes after the tokens that it goes on behind, and
// not after what the sequence held long before.
func TestCopiedSequence(t *testing.T) {
	b := newBench(t, Options{Level: resource.Minimal})
	prompt, decode := small(1, 3), small(2, 1)
	b.check(b.Graph(prompt))
	b.run(batch{graph: prompt, tokens: []int32{4, 5, 6}, seq: 1})
	b.clock += 1e9
	b.next = 0
	began := b.clock
	b.run(batch{graph: prompt, tokens: []int32{4, 5, 7}})
	b.check(b.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRemove, Seq: 1, First: -1, End: -1}))
	b.check(b.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqCopy, Seq: 0, To: 1, First: -1, End: -1}))
	b.check(b.Graph(decode))
	at := b.clock
	b.run(batch{graph: decode, tokens: []int32{8}, read: true, seq: 1})
	next := b.clock
	b.run(batch{graph: decode, tokens: []int32{9}, read: true, seq: 1})
	_, events := b.lines()
	all := of[resource.OutputToken](events)
	if len(all) != 2 || all[0].LatencyNS == nil || *all[0].LatencyNS != at-began || !all[0].First {
		t.Fatalf("%+v, want a first token, %d ns after its prompt", all, at-began)
	}
	if *all[1].LatencyNS != next-at || all[1].First {
		t.Errorf("%+v, want a token %d ns after the first one", all[1], next-at)
	}
}
