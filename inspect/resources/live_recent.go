package resources

import (
	"slices"
	"time"

	"github.com/llamatap/llamatap/resource"
)

// RecentSeconds is how far recent figures reach back; maxHistory, how many seconds have their tokens listed.
const (
	RecentSeconds = 10
	maxHistory    = 60
)

// writeTime is how long after it was made an event may be written, with some room.
const writeTime = 2 * time.Second

// The bounds of a recent's memory.
const (
	maxKeys  = 1 << 10 // components, layers and ops of a second
	maxTexts = 8       // sequences
	maxText  = 2 << 10 // bytes of text of a sequence
)

type rowKind uint8

const (
	byComponent rowKind = iota
	byLayer
	byOp
)

// rowKey is a row of a table of times.
type rowKey struct {
	kind rowKind
	name string
}

// recent is the newest part of what a Sum adds up, by seconds of the events' own times.
type recent struct {
	seconds [maxHistory + 1]second // the last whole ones and the one that goes on, by Unix second modulo their number
	pending map[rowKey]int64       // ns of nodes of the execution whose events are being read
	last    int64                  // end of the newest execution, Unix ns
	experts map[int32]int64
	texts   []*TokenText
}

// second is the executions that ended in a second.
type second struct {
	unix     int64
	tokens   int64 // generated
	prompt   int64
	insideNS int64 // time in graphs that were timed inside
	ns       map[rowKey]int64
}

// Speed is how fast tokens come.
type Speed struct {
	Recent float64 `json:"recent_tokens_per_s"` // generated in the last RecentSeconds, by the clock
	Prompt float64 `json:"recent_prompt_tokens_per_s"`
	// Run is of the time in graphs of the whole run, as the summary has it; absent before the first generated token.
	Run *float64 `json:"tokens_per_s,omitempty"`
	// History is the tokens generated in each of the last whole seconds, the oldest first; seconds before the first
	// event are left out.
	History []int64 `json:"history"`
}

// skim leaves out what lies within graphs where reading a log falls behind. Such a graph counts as one that was not
// timed inside, so that the times of the others are scaled to it.
type skim struct {
	behind bool  // from the next graph on
	on     bool  // in the events that are read
	left   bool  // an event of the graph that comes next was left out
	graphs int64 // timed inside, and left out
}

// skimmed are the kinds of events that are left out: they lie within graphs, and are most of a log.
var skimmed = map[resource.Kind]bool{resource.KindCompute: true, resource.KindComponentBegin: true,
	resource.KindLayerBegin: true, resource.KindLayerEnd: true, resource.KindHandoff: true, resource.KindMLP: true}

// graph takes the end of an execution.
func (k *skim) graph(e *resource.Graph) {
	if k.left && e.TimedNS != nil {
		k.graphs++
		e.TimedNS = nil
	}
	k.on, k.left = k.behind, false
}

// TokenText is the newest text of a sequence.
type TokenText struct {
	Ctx  *uint32 `json:"ctx,omitempty"`
	Seq  *int32  `json:"seq_id,omitempty"`
	Text string  `json:"text"`
}

func newRecent() *recent { return &recent{pending: map[rowKey]int64{}, experts: map[int32]int64{}} }

// at is the second of a time; nil where it is longer ago than the history reaches.
func (r *recent) at(unixNS int64) *second {
	unix := unixNS / 1e9
	s := &r.seconds[unix%int64(len(r.seconds))]
	switch {
	case s.unix > unix:
		return nil
	case s.unix < unix, s.ns == nil:
		*s = second{unix: unix, ns: map[rowKey]int64{}}
	}
	return s
}

// node takes the time of nodes of the execution whose graph comes next.
func (r *recent) node(cell Cell, ns int64) {
	for _, key := range []rowKey{{byComponent, cell.Component}, {byLayer, layerName(cell.Layer)}, {byOp, cell.Op}} {
		if _, known := r.pending[key]; known || len(r.pending) < maxKeys {
			r.pending[key] += ns
		}
	}
}

// graph takes the end of an execution.
func (r *recent) graph(e *resource.Graph) {
	defer clear(r.pending)
	if e.Phase == PhaseSetup {
		return
	}
	end := max(e.UnixNS, 0)
	if e.DurationNS != nil {
		end = max(end+*e.DurationNS, 0)
	}
	r.last = max(r.last, end)
	s := r.at(end)
	switch {
	case s == nil:
		return
	case e.Drafts, e.Status != 0: // no token of the model, or none that was computed
	case e.PrefillTokens != nil && e.DecodeTokens != nil:
		s.prompt += int64(*e.PrefillTokens)
		s.tokens += int64(*e.DecodeTokens)
	case e.Phase == phasePrefill:
		s.prompt += int64(e.Tokens)
	case e.Phase == phaseDecode:
		s.tokens += int64(e.Tokens)
	}
	s.tokens = max(s.tokens-e.Rejected, 0)
	if e.TimedNS != nil && e.DurationNS != nil {
		s.insideNS += *e.DurationNS
		for key, ns := range r.pending {
			if _, known := s.ns[key]; known || len(s.ns) < maxKeys {
				s.ns[key] += ns
			}
		}
	}
}

// routed takes a choice of experts.
func (r *recent) routed(experts []int32) {
	for _, id := range experts {
		if _, known := r.experts[id]; known || len(r.experts) < maxExperts {
			r.experts[id]++
		}
	}
}

// token takes a generated token's text.
func (r *recent) token(e *resource.OutputToken) {
	if e.TokenText == nil {
		return
	}
	same := func(t *TokenText) bool { return equal(t.Ctx, e.Ctx) && equal(t.Seq, e.SeqID) }
	i := slices.IndexFunc(r.texts, same)
	t := &TokenText{Ctx: e.Ctx, Seq: e.SeqID}
	if i >= 0 {
		t = r.texts[i]
		r.texts = slices.Delete(r.texts, i, i+1)
	}
	t.Text += *e.TokenText
	if cut := len(t.Text) - maxText; cut > 0 {
		for cut < len(t.Text) && t.Text[cut]&0xc0 == 0x80 { // not within a character
			cut++
		}
		t.Text = t.Text[cut:]
	}
	r.texts = append(r.texts[max(0, len(r.texts)+1-maxTexts):], t) // the newest last
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// newestTexts copies the texts, the newest first.
func (r *recent) newestTexts() (tokenTexts []*TokenText) {
	for _, t := range slices.Backward(r.texts) {
		tokenTexts = append(tokenTexts, new(*t))
	}
	return tokenTexts
}

// window are the seconds of the last RecentSeconds before end, the one that end lies in included.
func (r *recent) window(end int64) (seconds []*second) {
	for i := range r.seconds {
		if s := &r.seconds[i]; s.unix <= end/1e9 && s.unix > end/1e9-RecentSeconds {
			seconds = append(seconds, s)
		}
	}
	return seconds
}

// speed is how fast tokens came before end. No event is older than first.
func (r *recent) speed(end, first int64) *Speed {
	s := &Speed{History: []int64{}}
	begin := max((end/1e9-RecentSeconds+1)*1e9, first)
	for _, of := range r.window(end) {
		s.Recent += float64(of.tokens)
		s.Prompt += float64(of.prompt)
	}
	if span := float64(end-begin) / 1e9; span > 0 {
		s.Recent, s.Prompt = s.Recent/span, s.Prompt/span
	} else {
		s.Recent, s.Prompt = 0, 0
	}
	for unix := max(end/1e9-maxHistory, first/1e9); unix < end/1e9; unix++ {
		n := int64(0)
		if of := r.seconds[unix%int64(len(r.seconds))]; of.unix == unix {
			n = of.tokens
		}
		s.History = append(s.History, n)
	}
	return s
}

// shares are the shares of rows in the time of graphs before end that were timed inside.
func (r *recent) shares(end int64) map[rowKey]*float64 {
	sums, inside := map[rowKey]int64{}, int64(0)
	for _, s := range r.window(end) {
		inside += s.insideNS
		for key, ns := range s.ns {
			sums[key] += ns
		}
	}
	shares := map[rowKey]*float64{}
	for key, ns := range sums {
		shares[key] = ratio(float64(ns), float64(inside))
	}
	return shares
}
