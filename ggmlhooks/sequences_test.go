package ggmlhooks

import (
	"fmt"
	"strings"
	"testing"
)

// track drives a sequenceTracker by a script, a line a step:
//
//	SEQ@POS IDS            a call of rows; an id with ! is an output row; several sequences' rows are parted by |
//	read, accept           before the call that follows
//	remove S A B, copy S T, keep S, add S A B N, restore S, sampler S, clear, forget
//
// and returns what each row was: p or d for its phase, and its request; with the cause where one begins.
func track(t *testing.T, script string) string {
	t.Helper()
	var tracker sequenceTracker
	var out []string
	var call Call
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		change := SeqChange{End: -1}
		number := func(i int) (n int32) {
			fmt.Sscan(words[i], &n)
			return n
		}
		switch words[0] {
		case "read":
			call.Read = true
		case "accept":
			call.Accepts = true
		case "encode":
			call.Kind = CallEncode
		case "forget":
			tracker.Forget()
		case "clear":
			change.Seq = -1
			tracker.change(&change)
		case "remove":
			change.Seq, change.First, change.End = number(1), number(2), number(3)
			tracker.change(&change)
		case "add":
			change.Kind, change.Seq, change.First, change.End, change.Value = SeqAdd, number(1), number(2), number(3),
				number(4)
			tracker.change(&change)
		case "copy":
			change.Kind, change.Seq, change.To = SeqCopy, number(1), number(2)
			tracker.change(&change)
		case "keep":
			change.Kind, change.Seq = SeqKeep, number(1)
			tracker.change(&change)
		case "restore":
			change.Kind, change.Seq = SeqRestore, number(1)
			tracker.change(&change)
		case "sampler":
			change.Kind, change.Seq = SeqSampler, number(1)
			tracker.change(&change)
		default:
			call.Rows = callOf(t, line)
			tracker.Reset(&call)
			out = append(out, labels(&tracker, call.Rows))
			call = Call{}
		}
	}
	return strings.Join(out, "; ")
}

func callOf(t *testing.T, line string) (rows []CallRow) {
	t.Helper()
	for _, part := range strings.Split(line, "|") {
		words := strings.Fields(part)
		var seq, pos int32
		if n, err := fmt.Sscanf(words[0], "%d@%d", &seq, &pos); n != 2 {
			t.Fatalf("%q: %v", line, err)
		}
		for _, word := range words[1:] {
			id, output := strings.CutSuffix(word, "!")
			row := CallRow{Pos: pos, Seqs: []int32{seq}, Output: output}
			fmt.Sscan(id, &row.Token)
			rows, pos = append(rows, row), pos+1
		}
	}
	return rows
}

func labels(tracker *sequenceTracker, rows []CallRow) string {
	var words []string
	for i := range rows {
		row, begun := tracker.addRow(nil, &rows[i], rows[i].Pos)
		word := fmt.Sprint(row.Phase.String()[:1], row.Request)
		for _, b := range begun {
			word += ":" + b.Cause.String()
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func TestSequenceTracker(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"prompt in two calls, two tokens", `0@0 1 2
			read
			0@2 3!
			read
			0@3 4!
			accept
			0@4 5!`, "p0:first p0; p0; d0; d0"},
		{"nobody looked", `0@0 1 2!
			0@2 3!`, "p0:first p0; p0"},
		{"a second prompt beside it, whose rest is one token", `0@0 1!
			read
			0@1 2! | 1@0 7 8
			read
			0@2 3! | 1@2 9!
			read
			0@3 4! | 1@3 9!`, "p0:first; d0 p0:first p0; d0 p0; d0 d0"},
		{"begun anew without a word", `0@0 1 2!
			read
			0@2 3!
			read
			0@0 1!`, "p0:first p0; d0; p1:memory"},
		{"llama-server: the same prompt again, all but its last token cached", `sampler 0
			remove 0 0 -1
			0@0 1 2 3!
			accept
			0@3 4!
			sampler 0
			sampler 0
			remove 0 2 -1
			0@2 3!
			accept
			0@3 4!`, "p0:first p0 p0; d0; p1:sampler; d1"},
		{"llama-server: requests of one token each, and a chat that goes on", `sampler 0
			0@0 1 2!
			accept
			sampler 0
			remove 0 1 -1
			0@1 2!
			accept
			sampler 0
			remove 0 2 -1
			0@2 3!`, "p0:first p0; p1:sampler; p2:sampler"},
		{"llama-server: n answers to one prompt", `sampler 0
			sampler 1
			0@0 1 2!
			remove 1 -1 -1
			copy 0 1
			accept
			0@2 3! | 1@2 4!`, "p0:first p0; d0 d0:first"},
		{"without samplers: a cached prompt, another one, a chat", `0@0 1 2 3!
			accept
			0@3 4!
			remove 0 2 -1
			0@2 3!
			accept
			0@3 4!
			remove 0 0 -1
			0@0 7 8!
			accept
			0@2 9!
			accept
			0@3 10 11 12!`, "p0:first p0 p0; d0; p1:memory; d1; p2:memory p2; d2; p3:prompt p3 p3"},
		{"drafts verified, some rejected", `0@0 1 2!
			accept
			0@2 3! 4! 5!
			accept
			remove 0 4 -1
			0@4 6! 7!
			accept
			remove 0 5 -1
			0@5 8!`, "p0:first p0; d0 d0 d0; d0 d0; d0"},
		{"a draft model that follows", `0@0 1 2!
			accept
			0@2 3!
			accept
			0@3 4!
			accept
			remove 0 2 -1
			0@2 3 4 5!
			accept
			remove 0 4 -1
			0@4 9!
			remove 0 4 -1
			0@4 8 7!`, "p0:first p0; d0; d0; d0 d0 d0; d0; p1:memory p1"},
		{"a draft model that follows from the prompt's last token on", `0@0 1 2
			0@2 3!
			accept
			0@3 4!
			accept
			remove 0 2 -1
			0@2 3 4 5!
			accept
			0@5 6!
			remove 0 2 -1
			0@2 3!`, "p0:first p0; p0; d0; p0 p0 p0; d0; p1:memory"},
		{"all rows are outputs, nobody accepts", `0@0 1 2! 3!
			read
			0@3 4! 5!
			read
			clear
			0@0 1 2! 3!`, "p0:first p0 p0; p0 p0; p1:memory p1 p1"},
		{"context shift", `0@0 1 2 3!
			accept
			0@3 4!
			accept
			0@4 5!
			remove 0 1 3
			add 0 3 5 -2
			accept
			0@3 6!
			remove 0 3 -1
			accept
			0@3 7!`, "p0:first p0 p0; d0; d0; d0; d0"},
		{"a state is restored", `0@0 1 2!
			accept
			0@2 3!
			restore 0
			accept
			0@9 4!`, "p0:first p0; d0; p1:memory"},
		{"branches, of which one is kept", `0@0 1 2!
			copy 0 1
			accept
			0@2 3! | 1@2 4!
			keep 1
			copy 1 0
			keep 0
			accept
			0@3 5!`, "p0:first p0; d0 d0:first; d0"},
		{"an encoder, then its decoder", `encode
			0@0 1 2 3
			0@0 0!
			accept
			0@1 9!
			encode
			0@0 1 2`, "p0:first p0 p0; p0; d0; p1:memory p1"},
		{"set-up does not count", `0@0 1 2!
			forget
			0@0 1 2!`, "p0:first p0; p0:first p0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := track(t, test.script); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A row of several sequences is one of each of them.
func TestSharedRows(t *testing.T) {
	var tracker sequenceTracker
	shared := []CallRow{{Token: 1, Seqs: []int32{0, 1}}, {Token: 2, Pos: 1, Seqs: []int32{0, 1}, Output: true}}
	tracker.Reset(&Call{Rows: shared})
	if got := labels(&tracker, shared); got != "p0:first:first p0" {
		t.Errorf("the prompt: %s", got)
	}
	next := []CallRow{{Token: 3, Pos: 2, Seqs: []int32{1}, Output: true}}
	tracker.Reset(&Call{Rows: next, Read: true})
	if got := labels(&tracker, next); got != "d0" {
		t.Errorf("the second sequence: %s", got)
	}
}

// A row stands where its graph says, else where the program says, else behind the sequence's last.
func TestPositions(t *testing.T) {
	var tracker sequenceTracker
	step := func(program, graph int32) Row {
		rows := []CallRow{{Pos: program, Seqs: []int32{0}, Output: true}}
		tracker.Reset(&Call{Rows: rows, Accepts: true})
		row, _ := tracker.addRow(nil, &rows[0], graph)
		return row
	}
	for i, c := range []struct {
		program, graph, want int32
		phase                Phase
		before               *SeqChange
	}{
		{PosAuto, PosAuto, 0, PhasePrefill, nil},
		{PosAuto, PosAuto, 1, PhaseDecode, nil},
		{2, PosAuto, 2, PhaseDecode, nil},
		{PosAuto, 3, 3, PhaseDecode, nil},
		{PosAuto, PosAuto, 2, PhaseDecode, &SeqChange{Kind: SeqAdd, First: 1, End: -1, Value: -2}},
		{PosAuto, PosAuto, 0, PhasePrefill, &SeqChange{Seq: -1, First: 0, End: -1}},
		{PosAuto, PosAuto, PosAuto, PhasePrefill, &SeqChange{Kind: SeqRestore}},
	} {
		if c.before != nil {
			tracker.change(c.before)
		}
		if row := step(c.program, c.graph); row.Pos != c.want || row.Phase != c.phase {
			t.Errorf("row %d: %v at %d, want %v at %d", i, row.Phase, row.Pos, c.phase, c.want)
		}
	}
}

// Only so much is remembered of what was generated; what was forgotten is a prompt when it is removed.
func TestLongTail(t *testing.T) {
	var tracker sequenceTracker
	step := func(pos int32) string {
		rows := []CallRow{{Token: pos, Pos: pos, Seqs: []int32{0}, Output: true}}
		tracker.Reset(&Call{Rows: rows, Accepts: true})
		return labels(&tracker, rows)
	}
	for pos := range int32(3 * maxTail) {
		if got := step(pos); pos > 0 && got != "d0" {
			t.Fatalf("token %d: %s", pos, got)
		}
	}
	tracker.change(&SeqChange{First: 2*maxTail + maxTail/2 + 1, End: -1})
	if got := step(2*maxTail + maxTail/2 + 1); got != "d0" {
		t.Errorf("after a short cut: %s", got)
	}
	tracker.change(&SeqChange{First: maxTail, End: -1})
	if got := step(maxTail); got != "p1:memory" {
		t.Errorf("after a long cut: %s", got)
	}
}
