package ggmlhooks

import (
	"fmt"
	"strings"
	"testing"
)

// together drives a RowJoiner by a script, a line a step, each of which begins with the context:
//
//	SEQ@POS IDS            a call of rows, as in track, after a sampler accepted a token
//	sampler S, remove S A B, add S A B N, copy S T
//
// and returns what the rows of each of two contexts were: p or d for the phase, and the request; and how many tokens
// of drafts were rejected.
func together(t *testing.T, script string) (out [2]string, rejected int32) {
	t.Helper()
	var joiner RowJoiner
	for ctx := range uint32(2) {
		joiner.Context(&Context{Number: ctx})
	}
	kinds := map[string]SeqChangeKind{"sampler": SeqSampler, "remove": SeqRemove, "add": SeqAdd, "copy": SeqCopy}
	number := uint64(0)
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		ctx, words := words[0], words[1:]
		n := [4]int32{}
		for i, word := range words[1:min(len(words), 5)] {
			fmt.Sscan(word, &n[i])
		}
		c := SeqChange{Ctx: uint32(ctx[0] - '0'), Seq: n[0], First: n[1], End: n[2], Value: n[3]}
		if kind, ok := kinds[words[0]]; ok {
			if c.Kind = kind; kind == SeqCopy {
				c.To, c.First, c.End = n[1], -1, -1
			}
			joiner.SeqChange(&c)
			rejected += c.Rejected
			continue
		}
		number++
		call := Call{Number: number, Ctx: c.Ctx, Accepts: true, Rows: callOf(t, strings.Join(words, " "))}
		exec := Exec{Number: number, Call: number, Ctx: c.Ctx}
		for i := range call.Rows {
			exec.Tokens, exec.Pos = append(exec.Tokens, call.Rows[i].Token), append(exec.Pos, call.Rows[i].Pos)
		}
		joiner.Call(&call)
		rows, _, _ := joiner.Join(nil, nil, &exec)
		for i := range rows {
			out[c.Ctx] += fmt.Sprintf("%s%d ", rows[i].Phase.String()[:1], rows[i].Request)
		}
		out[c.Ctx] = strings.TrimSuffix(out[c.Ctx], " ") + "; "
	}
	if joiner.Drafts(0) || !joiner.Drafts(1) {
		t.Error("context 1 is the draft model's")
	}
	return out, rejected
}

// A draft model computes the batches of its target, and llama-server asks it for the results of the last row alone.
// Of several slots, the rows of one show where its prompt ends: the target's rows do for all.
func TestDraftModelFollows(t *testing.T) {
	for _, test := range []struct {
		name, script, target, draft string
		rejected                    int32
	}{
		{"slots together", `0 sampler 0
			0 sampler 1
			0 0@0 1 2! | 1@0 1 3!
			1 0@0 1 2 | 1@0 1 3!
			1 0@2 7! | 1@2 8!
			1 0@3 9! | 1@3 9!
			0 0@2 7! 9! | 1@2 8! 9!
			1 remove 0 2 -1
			1 remove 1 2 -1
			1 0@2 7 9 | 1@2 8 9!
			0 remove 0 3 -1
			1 remove 0 3 -1
			1 0@3 5! | 1@4 6!
			0 0@3 5! | 1@4 6!
			0 sampler 0
			0 sampler 0
			0 remove 0 1 -1
			1 remove 0 1 -1
			0 0@1 4! | 1@5 6!
			1 0@1 4 | 1@5 6!
			1 0@2 5!`,
			"p0 p0 p0 p0; d0 d0 d0 d0; d0 d0; p1 d0; ",
			"p0 p0 p0 p0; d0 d0; d0 d0; d0 d0 d0 d0; d0 d0; p1 d0; d1; ", 1},
		{"a prompt in two batches, and a context shift", `0 sampler 0
			0 0@0 1 2
			1 0@0 1 2!
			0 0@2 3 4!
			1 0@2 3 4!
			1 0@4 5!
			0 0@4 5!
			0 remove 0 1 3
			0 add 0 3 5 -2
			1 remove 0 1 3
			1 add 0 3 5 -2
			1 0@3 6!
			0 0@3 6!`,
			"p0 p0; p0 p0; d0; d0; ", "p0 p0; p0 p0; d0; d0; ", 0},
		{"two answers to a prompt", `0 sampler 0
			0 sampler 1
			0 0@0 1 2!
			1 0@0 1 2!
			0 copy 0 1
			1 copy 0 1
			1 0@2 7! | 1@2 8!
			0 0@2 7! 9! | 1@2 8! 9!`,
			"p0 p0; d0 d0 d0 d0; ", "p0 p0; d0 d0; ", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, rejected := together(t, test.script)
			if got[0] != test.target {
				t.Errorf("target: got  %s\nwant %s", got[0], test.target)
			}
			if got[1] != test.draft {
				t.Errorf("draft: got  %s\nwant %s", got[1], test.draft)
			}
			if rejected != test.rejected {
				t.Errorf("%d tokens of drafts were rejected, want %d", rejected, test.rejected)
			}
		})
	}
}
