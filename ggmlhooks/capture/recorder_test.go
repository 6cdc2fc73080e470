package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// script is a stream and a token file that write down what they get.
type script struct {
	events []string
	begun  []ggmlhooks.RequestBegin
	fail   error
}

func (s *script) note(format string, args ...any) error {
	s.events = append(s.events, fmt.Sprintf(format, args...))
	return s.fail
}

func (s *script) Append(p *stream.Packet, data []byte, release func()) error {
	release()
	return s.note("packet %s exec %d tokens %d+%d %v", p.Name, p.Exec, p.TokenFirst, p.TokenCount, p.Phase)
}

func (s *script) AppendExecution(e *stream.Execution) error {
	return s.note("exec %d rows %d %v", e.Exec, len(e.Rows), e.Phase)
}

func (s *script) AppendRequest(b ggmlhooks.RequestBegin) error {
	s.begun = append(s.begun, b)
	return s.fail
}

func (s *script) AppendResolution(r stream.Resolution) error {
	return s.note("resolve %d-%d %v", r.FirstExec, r.LastExec, r.Phase)
}

func (s *script) AppendStateLoad(l stream.StateLoad) error {
	return s.note("load %d at %d", l.Ctx, l.MonoNS)
}

func (s *script) Commit() error { return nil }

type tokens struct{ *script }

func (t tokens) Append(ctx uint32, row *ggmlhooks.Row) error {
	return t.note("token %d id %d %v", row.Index, row.Token, row.Phase)
}

// bench drives a recorder with one context whose graph has one captured node of one value per token.
type bench struct {
	*testing.T
	*ggmlhooks.Assembler
	script   *script
	recorder *Recorder
	call     uint64
	exec     uint64
	next     int64
	open     int // captures that were not released
}

func newBench(t *testing.T, o Options) *bench {
	b := &bench{T: t, script: &script{}}
	o.Stream, o.Tokens = b.script, tokens{b.script}
	b.recorder = NewRecorder(o)
	b.Assembler = ggmlhooks.NewAssembler(0, b.recorder)
	b.check(b.Graph(&ggmlhooks.Graph{ID: 1, Tokens: 1, Nodes: []ggmlhooks.Node{
		{
			Name: "l_out-0", Op: "ADD", Occurrence: 1, Wanted: true, Computed: true, Alias: -1,
			Rows: ggmlhooks.RowsTokens, RowDim: 1, NE: [4]int64{1, 2, 1, 1},
		},
	}}))
	return b
}

func (b *bench) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// decode is one call of one micro-batch.
func (b *bench) decode(provisional, read bool, ids ...int32) {
	b.Helper()
	b.decodeTo(0, provisional, read, ids...)
}

// decodeTo is decode of one whose graph ends with a status.
func (b *bench) decodeTo(status int, provisional, read bool, ids ...int32) {
	b.Helper()
	b.call++
	b.exec++
	call := ggmlhooks.Call{Number: b.call, Read: read}
	e := ggmlhooks.Exec{
		Number: b.exec, Graph: 1, Call: b.call, TokenFirst: b.next, Provisional: provisional, Captured: true,
		MonoNS: int64(b.exec) * 100,
	}
	for i, id := range ids {
		pos := int32(b.next) + int32(i)
		call.Rows = append(call.Rows, ggmlhooks.CallRow{Token: id, Pos: pos, Seqs: []int32{0}, Output: i == len(ids)-1})
		e.Tokens = append(e.Tokens, id)
		e.Pos = append(e.Pos, pos)
	}
	b.next += int64(len(ids))
	b.check(b.Call(&call))
	b.check(b.Exec(&e))
	b.open++
	b.check(b.Capture(&ggmlhooks.Capture{
		Exec: b.exec, Graph: 1, Node: 0, NE: [4]int64{1, int64(len(ids)), 1, 1}, RowCount: len(ids), Blocks: 1,
		For: ggmlhooks.ForStream, Data: make([]byte, 4*len(ids)), Release: func() { b.open-- },
	}))
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{
		Number: b.exec, MonoNS: int64(b.exec)*100 + 50, OwnNS: 3, WaitNS: 2, WaitBeforeNS: 1,
		Cuts: 5, CutNS: int64(b.exec % 3 * 100), Status: status,
		Selected: ggmlhooks.Count{Packets: 1, Bytes: 4 * uint64(len(ids))},
	}))
}

func (b *bench) resolve(discarded bool) {
	b.Helper()
	b.check(b.Resolve(ggmlhooks.Resolve{Exec: b.exec, Discarded: discarded}))
}

func (b *bench) want(events ...string) {
	b.Helper()
	if !slices.Equal(b.script.events, events) {
		b.Errorf("written:\n%q\nwant:\n%q", b.script.events, events)
	}
	if b.open != 0 {
		b.Errorf("%d captures were not released exactly once", b.open)
	}
}

func TestWarmUpIsDropped(t *testing.T) {
	b := newBench(t, Options{})
	b.decode(true, false, 9, 9)
	if b.open != 1 {
		t.Error("a warm-up's tensor did not stay in its slots")
	}
	b.resolve(true)
	b.next = 0
	b.decode(true, false, 5, 6)
	b.resolve(false)
	b.decode(false, true, 7)
	b.check(b.Finish())
	b.want("exec 2 rows 2 prefill", "packet l_out-0 exec 2 tokens 0+2 prefill", "token 0 id 5 prefill",
		"token 1 id 6 prefill", "exec 3 rows 1 decode", "packet l_out-0 exec 3 tokens 2+1 decode",
		"token 2 id 7 decode")
	use := b.recorder.Use()
	discarded, written := ggmlhooks.Count{Packets: 1, Bytes: 8}, ggmlhooks.Count{Packets: 2, Bytes: 12}
	if s := use.Setup; s.Discarded != discarded || s.Selected != discarded || s.OwnNS != 3 || s.WaitNS != 2+1 ||
		s.Cuts != 5 {
		t.Errorf("set-up %+v", s)
	}
	if r := use.Run; r.Selected != written || r.Written != written || r.WaitNS != 2*2-1 || r.Cuts != 10 {
		t.Errorf("run %+v", r)
	}
	if use.CutNS != 200 || use.Rows[ggmlhooks.PhaseSetup] != 2 || use.Rows[ggmlhooks.PhaseDecode] != 1 ||
		use.NS[ggmlhooks.PhaseSetup] != 50 {
		t.Errorf("use %+v", use)
	}
}

func TestWarmUpThatHadToBeWritten(t *testing.T) {
	b := newBench(t, Options{})
	b.decode(true, false, 9)
	if len(b.script.events) != 0 {
		t.Errorf("written without need: %q", b.script.events)
	}
	b.check(b.Relieve())
	b.resolve(true)
	b.want("exec 1 rows 1 prefill", "packet l_out-0 exec 1 tokens 0+1 prefill", "resolve 1-1 setup")
}

// What a warm-up began counts for nothing. A context without samplers of its own follows the one that is given them.
// TestFailedExecutions: what failed or was aborted is thrown away, each by itself. Its tokens are none of set-up.
func TestFailedExecutions(t *testing.T) {
	b := newBench(t, Options{})
	b.decode(true, false, 1)
	b.decodeTo(1, true, false, 2)
	b.decode(true, false, 3)
	b.decodeTo(1, true, false, 4)
	b.resolve(false)
	b.decodeTo(-1, false, false, 5, 6)
	b.check(b.Finish())
	b.want("exec 1 rows 1 prefill", "packet l_out-0 exec 1 tokens 0+1 prefill", "exec 2 rows 1 prefill",
		"packet l_out-0 exec 2 tokens 1+1 prefill", "exec 3 rows 1 prefill",
		"packet l_out-0 exec 3 tokens 2+1 prefill", "exec 4 rows 1 prefill",
		"packet l_out-0 exec 4 tokens 3+1 prefill", "resolve 2-2 setup", "resolve 4-4 setup",
		"token 0 id 1 prefill", "token 2 id 3 prefill", "exec 5 rows 2 prefill",
		"packet l_out-0 exec 5 tokens 4+2 prefill", "resolve 5-5 setup")
	use := b.recorder.Use()
	kept, failed := ggmlhooks.Count{Packets: 2, Bytes: 8}, ggmlhooks.Count{Packets: 3, Bytes: 16}
	if use.Run.Written != kept || use.Setup.Written != failed || use.Rows[ggmlhooks.PhasePrefill] != 2 ||
		use.Rows[ggmlhooks.PhaseSetup] != 0 || use.LastNS != 350 {
		t.Errorf("use %+v", use)
	}
}

func TestRequests(t *testing.T) {
	b := newBench(t, Options{})
	b.decode(true, false, 9)
	b.check(b.Relieve())
	b.resolve(true)
	b.next = 0
	b.decode(true, false, 5, 6)
	b.resolve(false)
	b.check(b.SeqChange(&ggmlhooks.SeqChange{Ctx: 7, Kind: ggmlhooks.SeqSampler}))
	b.decode(false, true, 7)
	b.decode(false, true, 8)
	b.check(b.SeqChange(&ggmlhooks.SeqChange{Kind: ggmlhooks.SeqSampler}))
	b.check(b.SeqChange(&ggmlhooks.SeqChange{Ctx: 7, Kind: ggmlhooks.SeqSampler}))
	b.decode(false, true, 7)
	b.check(b.SeqChange(&ggmlhooks.SeqChange{Ctx: 7, Kind: ggmlhooks.SeqSampler}))
	b.decode(false, true, 7)
	want := []ggmlhooks.RequestBegin{
		{Number: 0}, {Number: 0},
		{Number: 1, Cause: ggmlhooks.RequestSampler}, {Number: 2, Cause: ggmlhooks.RequestSampler},
	}
	if !slices.Equal(b.script.begun, want) {
		t.Errorf("begun: %+v, want %+v", b.script.begun, want)
	}
	// Before its own sampler was set, the context's sequences followed those of context 7, as a draft model's do.
	use := b.recorder.Use()
	if use.Requests != 3 || use.Drafts[ggmlhooks.PhasePrefill] != 2 || use.Prompt() != 3 || use.Generated() != 1 {
		t.Errorf("%d requests and %v rows of drafts, %d tokens of prompts and %d generated", use.Requests, use.Drafts,
			use.Prompt(), use.Generated())
	}
}

// A micro-batch of a prompt and of another sequence's next token counts in no rate: nobody knows which of them took
// how long.
func TestMixedBatches(t *testing.T) {
	b := newBench(t, Options{})
	mixed := func(seqs []int32, tokens ...int32) {
		t.Helper()
		b.call++
		b.exec++
		call := ggmlhooks.Call{Number: b.call, Read: true}
		e := ggmlhooks.Exec{
			Number: b.exec, Graph: 1, Call: b.call, TokenFirst: b.next, MonoNS: int64(b.exec) * 100, Tokens: tokens,
		}
		next := map[int32]int32{0: int32(b.next)}
		for i, seq := range seqs {
			call.Rows = append(call.Rows, ggmlhooks.CallRow{
				Token: tokens[i], Pos: next[seq], Seqs: []int32{seq}, Output: i == 0 || i == len(seqs)-1,
			})
			e.Pos = append(e.Pos, next[seq])
			next[seq]++
		}
		b.next += int64(len(tokens))
		b.check(b.Call(&call))
		b.check(b.Exec(&e))
		b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: b.exec, MonoNS: int64(b.exec)*100 + 70}))
	}
	b.decode(false, true, 5, 6, 7)
	b.decode(false, true, 8)
	mixed([]int32{0, 1, 1, 1}, 9, 20, 21, 22)
	u := b.recorder.Use()
	prefill, decode := ggmlhooks.PhasePrefill, ggmlhooks.PhaseDecode
	if u.Rows[prefill] != 6 || u.Rows[decode] != 2 || u.NS[prefill] != 120 || u.NS[decode] != 50 {
		t.Errorf("%+v", u)
	}
	if u.AloneRows[prefill] != 3 || u.AloneNS[prefill] != 50 || u.AloneRows[decode] != 1 || u.AloneNS[decode] != 50 {
		t.Errorf("rows %v in %v ns", u.AloneRows, u.AloneNS)
	}
	for i, want := range []int64{1, 0} { // a draft that was rejected is of what the context generated last
		if i > 0 {
			b.next = 5
			b.decode(false, true, 10)
		}
		b.check(b.recorder.SeqChange(&ggmlhooks.SeqChange{Rejected: int32(1 + i)}))
		if u := b.recorder.Use(); u.AloneRows[decode] != want || u.Rejected != int64(1+2*i) {
			t.Errorf("%d rows alone, %d rejected in all, want %d and %d", u.AloneRows[decode], u.Rejected, want, 1+2*i)
		}
	}
}

// Tokens are recorded in their order, whichever context is decided about first.
func TestTokensOfContextsInOrder(t *testing.T) {
	b := newBench(t, Options{})
	for ctx := range uint32(2) {
		b.check(b.Graph(&ggmlhooks.Graph{ID: uint64(ctx) + 2, Ctx: ctx + 1, Tokens: 1}))
	}
	one := func(ctx uint32, exec uint64, token int64, provisional bool) {
		b.check(b.Exec(&ggmlhooks.Exec{
			Number: exec, Graph: uint64(ctx) + 1, Ctx: ctx, TokenFirst: token, Tokens: []int32{int32(token)},
			Provisional: provisional,
		}))
	}
	end := func(exec uint64) { b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: exec})) }
	one(0, 1, 0, true)
	end(1)
	one(1, 2, 1, false)
	one(2, 3, 2, false)
	end(3)
	end(2)
	one(0, 4, 3, true)
	b.check(b.Resolve(ggmlhooks.Resolve{Exec: 4})) // execution 4 still runs
	one(1, 5, 4, false)
	end(5)
	end(4)
	b.check(b.Finish())
	order := []string{}
	for _, event := range b.script.events {
		if strings.HasPrefix(event, "token") {
			order = append(order, strings.Fields(event)[1])
		}
	}
	if got := strings.Join(order, " "); got != "0 1 2 3 4" {
		t.Errorf("tokens were recorded as %s", got)
	}
}

// What is held is written as soon as it takes more slots than it may: after that it comes as it was captured.
func TestHoldBound(t *testing.T) {
	b := newBench(t, Options{})
	b.Slots.Bound, b.Slots.Size = 128, 64
	b.decode(true, false, 9)
	b.decode(true, false, 9)
	if b.open != 2 || len(b.script.events) != 0 {
		t.Errorf("%d tensors held; written under the bound: %q", b.open, b.script.events)
	}
	b.decode(true, false, 9)
	if b.open != 0 || len(b.script.events) != 6 {
		t.Errorf("%d tensors held; written above the bound: %q", b.open, b.script.events)
	}
	b.resolve(false)
	b.want("exec 1 rows 1 prefill", "packet l_out-0 exec 1 tokens 0+1 prefill",
		"exec 2 rows 1 prefill", "packet l_out-0 exec 2 tokens 1+1 prefill",
		"exec 3 rows 1 prefill", "packet l_out-0 exec 3 tokens 2+1 prefill",
		"token 0 id 9 prefill", "token 1 id 9 prefill", "token 2 id 9 prefill")
}

func TestModelKilledUndecided(t *testing.T) {
	b := newBench(t, Options{})
	b.decode(true, false, 9)
	b.check(b.Finish())
	b.want("exec 1 rows 1 prefill", "packet l_out-0 exec 1 tokens 0+1 prefill", "token 0 id 9 prefill")
}

// TestCutOff: the program ended within an execution. Its tokens count where something of them was captured, in no rate.
func TestCutOff(t *testing.T) {
	for captured, want := range map[bool][]string{
		false: {"exec 2 rows 2 prefill", "resolve 2-2 setup"},
		true: {"exec 2 rows 2 prefill", "packet l_out-0 exec 2 tokens 1+2 prefill", "token 1 id 6 prefill",
			"token 2 id 7 prefill"},
	} {
		b := newBench(t, Options{})
		b.decode(false, true, 5)
		written := slices.Clone(b.script.events)
		call := ggmlhooks.Call{Number: 2, Read: true}
		for i, id := range []int32{6, 7} {
			call.Rows = append(call.Rows, ggmlhooks.CallRow{Token: id, Pos: int32(i), Seqs: []int32{1}, Output: i == 1})
		}
		b.check(b.Call(&call))
		b.check(b.Exec(&ggmlhooks.Exec{Number: 2, Graph: 1, Call: 2, TokenFirst: 1, MonoNS: 200,
			Captured: true, Tokens: []int32{6, 7}, Pos: []int32{0, 1}}))
		if captured {
			b.open++
			b.check(b.Capture(&ggmlhooks.Capture{Exec: 2, Graph: 1, NE: [4]int64{1, 2, 1, 1}, RowCount: 2, Blocks: 1,
				For: ggmlhooks.ForStream, Data: make([]byte, 8), Release: func() { b.open-- }}))
		}
		b.check(b.Finish())
		b.want(slices.Concat(written, want)...)
		rows, u := int64(1), b.recorder.Use()
		if captured {
			rows = 3
		}
		if prefill := ggmlhooks.PhasePrefill; u.Rows[prefill] != rows || u.AloneRows[prefill] != 1 ||
			u.Rows[ggmlhooks.PhaseSetup] != 0 || u.Graphs[prefill] != 2 {
			t.Errorf("captured %v: %+v", captured, u)
		}
	}
}

func TestMaintenance(t *testing.T) {
	b := newBench(t, Options{})
	b.check(b.Graph(&ggmlhooks.Graph{ID: 2}))
	b.check(b.Exec(&ggmlhooks.Exec{Number: 7, Graph: 2, TokenFirst: -1}))
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 7}))
	b.want("exec 7 rows 0 maintenance")
	if use := b.recorder.Use(); use.Graphs[ggmlhooks.PhaseMaintenance] != 1 {
		t.Errorf("use %+v", use)
	}
}

func TestFailureReleasesEverything(t *testing.T) {
	b := newBench(t, Options{})
	b.decode(true, false, 9)
	b.decode(true, false, 9)
	b.script.fail = errors.New("disk full")
	if err := b.Resolve(ggmlhooks.Resolve{Exec: 2}); !errors.Is(err, b.script.fail) {
		t.Errorf("error %v", err)
	}
	b.Refuse()
	if b.open != 0 {
		t.Errorf("%d captures were not released", b.open)
	}
	refused := ggmlhooks.Count{Packets: 2, Bytes: 8}
	if use := b.recorder.Use(); use.Run.Refused != refused || use.Run.Selected != refused {
		t.Errorf("%+v", use)
	}
}

func TestUnannounced(t *testing.T) {
	b := newBench(t, Options{})
	if err := b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 99}); !errors.Is(err, ggmlhooks.ErrDesync) {
		t.Errorf("unknown graph: %v", err)
	}
	released := false
	err := b.Capture(&ggmlhooks.Capture{Exec: 99, For: ggmlhooks.ForStream, Release: func() { released = true }})
	if !errors.Is(err, ggmlhooks.ErrDesync) || !released {
		t.Errorf("unknown execution: %v, released %v", err, released)
	}
}

func TestSampledSlices(t *testing.T) {
	var kept []byte
	var packet stream.Packet
	selection := ggmlhooks.Selection{Granularity: ggmlhooks.SampledSlices, SamplingRate: 0.25, Seed: 11}
	b := newBench(t, Options{Selection: selection})
	b.recorder.o.Stream = &grab{b.script, &packet, &kept}
	b.check(b.Exec(&ggmlhooks.Exec{Number: 1, Graph: 1, TokenFirst: 0, Tokens: []int32{1}, Pos: []int32{0}}))
	data := make([]byte, 40*4)
	for i := range data {
		data[i] = byte(i / 4)
	}
	b.check(b.Capture(&ggmlhooks.Capture{
		Exec: 1, Graph: 1, NE: [4]int64{40, 1, 1, 1}, RowCount: 1, Blocks: 1, For: ggmlhooks.ForStream, Data: data,
		Release: func() {},
	}))
	var want []byte
	keep := ggmlhooks.SampleSize(packet.SampleTotal, 0.25)
	for _, i := range label.SampleIndices(nil, packet.SampleSeed, packet.SampleTotal, keep) {
		want = append(want, data[i*4:i*4+4]...)
	}
	if packet.SampleTotal != 40 || len(kept) != 40 || !slices.Equal(kept, want) {
		t.Errorf("kept %v of %d, want %v", kept, packet.SampleTotal, want)
	}
	if packet.SampleSeed != ggmlhooks.SampleSeed(11, 1, 0, 0) { // run's seed, execution, node and row, nothing else
		t.Errorf("seed %d", packet.SampleSeed)
	}
}

// grab is a script that keeps the last packet.
type grab struct {
	*script
	packet *stream.Packet
	data   *[]byte
}

func (g *grab) Append(p *stream.Packet, data []byte, release func()) error {
	*g.packet, *g.data = *p, slices.Clone(data)
	return g.script.Append(p, data, release)
}

// TestWhole: a stream may end only where nothing is half written and nothing that is written is undecided; what is
// held may go on.
func TestWhole(t *testing.T) {
	b := newBench(t, Options{})
	whole := func(what string, want bool) {
		t.Helper()
		if got := b.recorder.Whole(); got != want {
			t.Errorf("%s: whole %v", what, got)
		}
	}
	whole("nothing", true)
	b.decode(true, false, 1, 2)
	whole("held", true)
	b.check(b.Relieve())
	whole("written and undecided", false)
	b.resolve(false)
	whole("decided", true)
	b.check(b.Exec(&ggmlhooks.Exec{Number: 9, Graph: 1, TokenFirst: 2, Tokens: []int32{3}}))
	whole("begun", false)
	b.check(b.ExecEnd(ggmlhooks.ExecEnd{Number: 9}))
	whole("ended", true)
}

// TestRefuse: what is held when recording stops, and what comes later, is released and never written. It is still
// decided about: tokens are counted by phase, and tensors as refused, those of set-up apart.
func TestRefuse(t *testing.T) {
	for _, discarded := range []bool{false, true} {
		b := newBench(t, Options{})
		b.decode(false, false, 7)
		b.decode(true, false, 1, 2)
		b.check(b.Refuse())
		b.resolve(discarded)
		b.decode(false, true, 5)
		b.check(b.Finish())
		b.want("exec 1 rows 1 prefill", "packet l_out-0 exec 1 tokens 0+1 prefill", "token 0 id 7 prefill")
		use := b.recorder.Use()
		refused, discards := ggmlhooks.Count{Packets: 2, Bytes: 12}, ggmlhooks.Count{}
		if discarded {
			refused, discards = ggmlhooks.Count{Packets: 1, Bytes: 4}, ggmlhooks.Count{Packets: 1, Bytes: 8}
		}
		sum := use.Run.Written
		sum.Add(use.Run.Refused)
		rows := use.Rows[ggmlhooks.PhaseDecode] + use.Rows[ggmlhooks.PhasePrefill]
		if use.Run.Refused != refused || use.Setup.Discarded != discards || use.Run.Selected != sum ||
			rows != map[bool]int64{true: 2, false: 4}[discarded] {
			t.Errorf("discarded %v: %+v", discarded, use)
		}
	}
}

// TestLossesOfSetup: what the tap lost of a warm-up is not lost of the run.
func TestLossesOfSetup(t *testing.T) {
	b := newBench(t, Options{})
	for _, exec := range []uint64{1, 2} {
		b.check(b.Exec(&ggmlhooks.Exec{Number: exec, Graph: 1, Tokens: []int32{3}, Provisional: true}))
		b.check(b.ExecEnd(ggmlhooks.ExecEnd{
			Number: exec, Selected: ggmlhooks.Count{Packets: exec, Bytes: 8 * exec},
			Losses: []ggmlhooks.Loss{{Cause: "pool_full", Count: ggmlhooks.Count{Packets: exec, Bytes: 8 * exec}}},
		}))
		b.check(b.Resolve(ggmlhooks.Resolve{Exec: exec, Discarded: exec == 1}))
	}
	use := b.recorder.Use()
	if use.Setup.Losses["pool_full"] != (ggmlhooks.Count{Packets: 1, Bytes: 8}) ||
		use.Run.Losses["pool_full"] != (ggmlhooks.Count{Packets: 2, Bytes: 16}) {
		t.Errorf("%+v and %+v", use.Setup, use.Run)
	}
}

// nowhere is a stream and a token file that keep nothing.
type nowhere struct{}

func (nowhere) AppendExecution(*stream.Execution) error    { return nil }
func (nowhere) AppendRequest(ggmlhooks.RequestBegin) error { return nil }
func (nowhere) AppendResolution(stream.Resolution) error   { return nil }
func (nowhere) AppendStateLoad(stream.StateLoad) error     { return nil }
func (nowhere) Commit() error                              { return nil }
func (nowhere) Append(_ *stream.Packet, _ []byte, release func()) error {
	release()
	return nil
}

type noTokens struct{}

func (noTokens) Append(uint32, *ggmlhooks.Row) error { return nil }

// TestRecorderAllocates: an execution with a tensor costs nothing.
func TestRecorderAllocates(t *testing.T) {
	a := ggmlhooks.NewAssembler(0, NewRecorder(Options{Stream: nowhere{}, Tokens: noTokens{}}))
	nodes := []ggmlhooks.Node{{Name: "l_out-0", Op: "ADD", Wanted: true, Alias: -1}}
	if err := a.Graph(&ggmlhooks.Graph{ID: 1, Tokens: 1, Nodes: nodes}); err != nil {
		t.Fatal(err)
	}
	e := ggmlhooks.Exec{Graph: 1, Tokens: []int32{1}, Pos: []int32{0}}
	c := ggmlhooks.Capture{For: ggmlhooks.ForStream, RowCount: 1, Data: make([]byte, 64), Release: func() {}}
	step := func() {
		e.Number++
		e.TokenFirst++
		c.Exec = e.Number
		if a.Exec(&e) != nil || a.Capture(&c) != nil || a.ExecEnd(ggmlhooks.ExecEnd{Number: e.Number}) != nil {
			t.Error("a report was refused")
		}
	}
	for range 10 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations per execution", n)
	}
}
