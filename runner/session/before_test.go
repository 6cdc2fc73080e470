//go:build linux

package session

import (
	"reflect"
	"testing"

	"github.com/llamatap/llamatap/config"
	"github.com/llamatap/llamatap/ggmlhooks"
)

// The tap counts tokens from where its program begins; what it selects is what it would have selected.
func TestSelectionBehind(t *testing.T) {
	for _, c := range []struct {
		rule      string
		tokens    int64
		want      string
		reachable bool
	}{
		{"all", 7, "all", true},
		{"last", 7, "last", true},
		{"10:20", 0, "10:20", true},
		{"10:20", 7, "3:13", true},
		{"10:20", 15, "-5:5", true},
		{"10:20", 20, "-10:0", true}, // none is left: an end below 0 would be no end
		{"10:20", 90, "-80:0", true},
		{"10:", 90, "-80:", true},
		{"every:3", 7, "every:3", false},
		{"every:3", 9, "every:3", true},
	} {
		rule, err := ggmlhooks.ParseTokenRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		tap := &config.Tap{Tokens: rule}
		b := &before{start: Start{Tokens: c.tokens}}
		if got := b.selection(tap).Tokens.String(); got != c.want || (c.tokens%Step(tap) == 0) != c.reachable {
			t.Errorf("%s behind %d tokens is %s, reachable %v; want %s, %v", c.rule, c.tokens, got, !c.reachable,
				c.want, c.reachable)
		}
	}
	var none *before
	if got := none.selection(&config.Tap{Tokens: ggmlhooks.TokenRule{Kind: ggmlhooks.TokenRange, First: 3,
		End: 4}}); got.Tokens.First != 3 {
		t.Errorf("of a new run: %+v", got.Tokens)
	}
}

// heard notes what a sink gets.
type heard struct {
	ggmlhooks.Sink
	all []any
}

func (n *heard) note(v any) error                       { n.all = append(n.all, v); return nil }
func (n *heard) Graph(g *ggmlhooks.Graph) error         { return n.note(g.ID) }
func (n *heard) Call(c *ggmlhooks.Call) error           { return n.note(c.Number) }
func (n *heard) SeqChange(c *ggmlhooks.SeqChange) error { return n.note(c.Kind) }
func (n *heard) Exec(e *ggmlhooks.Exec) error {
	return n.note([3]uint64{e.Number, e.Graph, uint64(e.TokenFirst)})
}
func (n *heard) ExecEnd(e ggmlhooks.ExecEnd) error  { return n.note(e.Number) }
func (n *heard) Resolve(e ggmlhooks.Resolve) error  { return n.note(e.Exec) }
func (n *heard) Capture(c *ggmlhooks.Capture) error { return n.note([2]uint64{c.Exec, c.Graph}) }
func (n *heard) Times(v *ggmlhooks.Times) error     { return n.note([2]uint64{v.Exec, v.Graph}) }
func (n *heard) Input(v *ggmlhooks.Input) error     { return n.note([2]uint64{v.Exec, v.Graph}) }

func (n *heard) wants(t *testing.T, what string, want ...any) {
	t.Helper()
	if !reflect.DeepEqual(n.all, want) {
		t.Errorf("%s: got %v, want %v", what, n.all, want)
	}
	n.all = nil
}

// A program that begins behind 50 tokens, 30 executions and 4 graphs continues their numbers.
func TestRenumbered(t *testing.T) {
	to := &heard{}
	r := &renumbered{Sink: to, tokens: 50, lastExec: 30, lastGraph: 4}
	r.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqRestore}) // how it got its memory back
	to.wants(t, "before the first call")
	r.Call(&ggmlhooks.Call{Number: 1})
	r.Graph(&ggmlhooks.Graph{ID: 2})
	e := ggmlhooks.Exec{Number: 3, Graph: 2}
	r.Exec(&e)
	r.Capture(&ggmlhooks.Capture{Exec: 3, Graph: 2})
	r.Times(&ggmlhooks.Times{Exec: 3, Graph: 2})
	r.Input(&ggmlhooks.Input{Exec: 3, Graph: 2})
	r.ExecEnd(ggmlhooks.ExecEnd{Number: 3})
	r.Resolve(ggmlhooks.Resolve{Exec: 3})
	five := [2]uint64{31, 5}
	to.wants(t, "the first", uint64(1), uint64(5), [3]uint64{31, 5, 50}, five, five, five, uint64(31), uint64(31))
	r.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqAdd})
	r.Graph(&ggmlhooks.Graph{ID: 3})
	r.Exec(&ggmlhooks.Exec{Number: 4, Graph: 3, TokenFirst: -1})
	r.Exec(&ggmlhooks.Exec{Number: 5, Graph: 3, TokenFirst: 1})
	to.wants(t, "further ones", ggmlhooks.SeqAdd, uint64(6), [3]uint64{32, 6, 1<<64 - 1}, [3]uint64{33, 6, 51})
	if e.Number != 3 || e.TokenFirst != 0 {
		t.Errorf("what is borrowed was changed: %+v", e)
	}
}
