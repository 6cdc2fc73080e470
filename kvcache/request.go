package kvcache

import "slices"

// RequestEnd is why a request ended.
type RequestEnd = int64

// The ends. EndUnknown is absent in files.
const (
	EndUnknown RequestEnd = iota
	EndStop               // the model ended it, or a stop string
	EndLength             // it reached its limit
	EndError
	EndCancelled // the client went away
	EndCompleted // it stopped or reached its limit, the answer does not say which; or its embedding was answered
)

var endNames = []string{"", "stop", "length", "error", "cancelled", "completed"}

// Cause is why tokens of a prompt were computed that a cache held, or had held.
type Cause = int64

// The causes. CauseNone is absent in files: nothing that had been computed was computed again.
const (
	CauseNone       Cause = iota
	CauseDiffers          // the slot held other tokens from a position on
	CauseOtherSlot        // another slot held them, and was busy or not asked for
	CauseSimilarity       // another slot held them and was idle; the server found the prompts too unlike
	CauseEvicted          // another request had taken their cells
	CauseShift            // a context shift had removed or moved them
	CauseWindow           // a sliding window had lost what they need
	CauseRecurrent        // a recurrent state cannot be cut back to where they end
	CauseOff              // the request did not want its slot's cache: cache_prompt is off
	CauseAdapters         // LoRA adapters differ
	CauseSteering         // vectors that are added to the residual stream differ
)

var causeNames = []string{"", "differs", "other_slot", "similarity", "eviction", "context_shift", "window", "recurrent",
	"cache_prompt_off", "adapters", "steering"}

// A Request is what happened to one request of a server. Times are in nanoseconds; where they or a duration are not
// known they are 0, and other numbers -1.
type Request struct {
	ID                                                    int64 // counts up per run, by when slots were taken
	Ctx, Seq, Number, Task                                int64
	ArrivalNS, LaunchNS, PromptNS, FirstNS, LastNS, EndNS int64
	Prompt, Cached, Computed, Output                      int64 // tokens
	Drafted, Accepted                                     int64
	SampleNS, GrammarNS                                   int64
	Taken, Freed, Shifts                                  int64
	GapP50NS, GapP99NS                                    int64
	End                                                   RequestEnd
	Cause                                                 Cause
	Again                                                 int64 // tokens that need not have been computed but for Cause
	Pos, Had, Wants, Holder, By, AtNS                     int64 // see RequestColumns
	Bytes, CostNS                                         int64
	Gaps                                                  []float32 // ms from each chosen token to the next
	Blocks                                                []uint64  // see PrefixHasher; nil: not known
	Said                                                  RequestSaid
	// FirstSegment and LastSegment are those in which its tensors and tokens are; 0: there are none. KeptBy is why they
	// stay: a rule, or [KeptRunning]; [KeptNone]: they do not; "": nothing is sampled.
	FirstSegment, LastSegment int
	KeptBy                    string
	// The first tokens of the prompt, and those that were chosen: where texts are exported, and not in the table.
	PromptIDs, OutputIDs []int32
	Texts                RequestWords
}

// What [Request.KeptBy] is without a rule: the request had not ended with the recording; it is not kept.
const (
	KeptRunning = "running"
	KeptNone    = "none"
)

// RequestWords is the begin of the prompt and of what was generated; "" where it is not exported. Cut: there is more.
type RequestWords struct {
	Prompt, Output       string
	PromptCut, OutputCut bool
}

// RequestSaid is what the HTTP request and its answer say of themselves; "" where they do not, or were not seen.
type RequestSaid struct {
	Path                    string // without parameters
	TraceParent, TraceState string // W3C trace context
	Model                   string
	Settings                string // a JSON object: numbers and switches of the request's
	AnswerModel, AnswerID   string
}

// A RequestText is a column of requests.parquet that holds texts of its own.
type RequestText struct {
	Name, Description string
	Of                func(*Request) *string
}

// RequestTexts are those columns, the last ones.
var RequestTexts = []RequestText{
	{"http_path", "path of the HTTP request", func(r *Request) *string { return &r.Said.Path }},
	{"traceparent", "W3C trace context of the HTTP request", func(r *Request) *string { return &r.Said.TraceParent }},
	{"tracestate", "its trace state", func(r *Request) *string { return &r.Said.TraceState }},
	{"request_model", "model that it asks for", func(r *Request) *string { return &r.Said.Model }},
	{"request_settings", "JSON object: numbers and switches that it sets",
		func(r *Request) *string { return &r.Said.Settings }},
	{"response_model", "model that the answer names", func(r *Request) *string { return &r.Said.AnswerModel }},
	{"response_id", "id of the answer", func(r *Request) *string { return &r.Said.AnswerID }},
	{"kept_by", "rule that keeps its tensors and tokens, running, or none",
		func(r *Request) *string { return &r.KeptBy }},
}

// NewRequest is a request of which nothing is known.
func NewRequest() Request {
	r := Request{}
	for i := range RequestColumns {
		*RequestColumns[i].Of(&r) = RequestColumns[i].Absent
	}
	return r
}

// Settle works out the percentiles of the gaps.
func (r *Request) Settle() {
	if len(r.Gaps) == 0 {
		return
	}
	sorted := slices.Clone(r.Gaps)
	slices.Sort(sorted)
	at := func(percent int) int64 { return int64(float64(sorted[(len(sorted)*percent+99)/100-1]) * 1e6) }
	r.GapP50NS, r.GapP99NS = at(50), at(99)
}

// GapsColumn is the column of requests.parquet that has [Request.Gaps], in milliseconds. BlocksColumn is a text: a hash
// of the prompt up to the end of each block, [Request.Blocks], in hexadecimal digits with commas.
const (
	GapsColumn   = "gaps_ms"
	BlocksColumn = "prompt_blocks"
)

// A RequestColumn is a column of requests.parquet.
type RequestColumn struct {
	Name, Unit, Description string
	Absent                  int64    // the value that the table lacks
	Names                   []string // of a column of texts: those of the values
	Of                      func(*Request) *int64
}

// The units of columns: a time, a duration, bytes.
const (
	UnitTime     = "unix_ns"
	UnitDuration = "ns"
	UnitBytes    = "bytes"
)

// RequestColumns are those of requests.parquet, but for [GapsColumn], [BlocksColumn] and [RequestTexts].
var RequestColumns = []RequestColumn{
	{"id", "", "number of the request in the run, by when its slot was taken", -1, nil,
		func(r *Request) *int64 { return &r.ID }},
	{"ctx", "", "context", -1, nil, func(r *Request) *int64 { return &r.Ctx }},
	{"seq_id", "", "sequence: a server's slot", -1, nil, func(r *Request) *int64 { return &r.Seq }},
	{"request", "", "number of the request in its sequence", -1, nil, func(r *Request) *int64 { return &r.Number }},
	{"task", "", "the server's number of it", -1, nil, func(r *Request) *int64 { return &r.Task }},
	{"arrival_ns", UnitTime, "first bytes of the HTTP request", 0, nil,
		func(r *Request) *int64 { return &r.ArrivalNS }},
	{"launch_ns", UnitTime, "it got its slot", 0, nil, func(r *Request) *int64 { return &r.LaunchNS }},
	{"prompt_ns", UnitTime, "its prompt was begun", 0, nil, func(r *Request) *int64 { return &r.PromptNS }},
	{"first_token_ns", UnitTime, "its first token was chosen", 0, nil,
		func(r *Request) *int64 { return &r.FirstNS }},
	{"last_token_ns", UnitTime, "its last token was chosen", 0, nil, func(r *Request) *int64 { return &r.LastNS }},
	{"end_ns", UnitTime, "it left its slot", 0, nil, func(r *Request) *int64 { return &r.EndNS }},
	{"prompt_tokens", "", "tokens of its prompt", -1, nil, func(r *Request) *int64 { return &r.Prompt }},
	{"cached_tokens", "", "of them, those that its slot had", -1, nil, func(r *Request) *int64 { return &r.Cached }},
	{"computed_tokens", "", "of them, those that were computed", -1, nil,
		func(r *Request) *int64 { return &r.Computed }},
	{"output_tokens", "", "tokens that were chosen", -1, nil, func(r *Request) *int64 { return &r.Output }},
	{"drafted_tokens", "", "tokens that were drafted and verified", -1, nil,
		func(r *Request) *int64 { return &r.Drafted }},
	{"accepted_tokens", "", "of them, those that were accepted", -1, nil,
		func(r *Request) *int64 { return &r.Accepted }},
	{"sampling_ns", UnitDuration, "choosing its tokens, grammar included", 0, nil,
		func(r *Request) *int64 { return &r.SampleNS }},
	{"grammar_ns", UnitDuration, "of it, grammars and reasoning budgets", 0, nil,
		func(r *Request) *int64 { return &r.GrammarNS }},
	{"cells_taken", "", "cells that it wrote, rejected drafts included", -1, nil,
		func(r *Request) *int64 { return &r.Taken }},
	{"cells_freed", "", "cells that were removed from its slot for it", -1, nil,
		func(r *Request) *int64 { return &r.Freed }},
	{"context_shifts", "", "context shifts during it", -1, nil, func(r *Request) *int64 { return &r.Shifts }},
	{"gap_p50_ns", UnitDuration, "median of its gaps", 0, nil, func(r *Request) *int64 { return &r.GapP50NS }},
	{"gap_p99_ns", UnitDuration, "99th percentile of its gaps", 0, nil,
		func(r *Request) *int64 { return &r.GapP99NS }},
	{"end", "", "why it ended", EndUnknown, endNames, func(r *Request) *int64 { return &r.End }},
	{"again_cause", "", "why tokens were computed again", CauseNone, causeNames,
		func(r *Request) *int64 { return &r.Cause }},
	{"again_tokens", "", "tokens that need not have been computed but for the cause", -1, nil,
		func(r *Request) *int64 { return &r.Again }},
	{"again_pos", "", "position of the first of them", -1, nil, func(r *Request) *int64 { return &r.Pos }},
	{"again_had", "", "token that the slot had there", -1, nil, func(r *Request) *int64 { return &r.Had }},
	{"again_wants", "", "token that the prompt has there", -1, nil, func(r *Request) *int64 { return &r.Wants }},
	{"again_slot", "", "slot that held them", -1, nil, func(r *Request) *int64 { return &r.Holder }},
	{"again_by", "", "id of the request that took their cells", -1, nil,
		func(r *Request) *int64 { return &r.By }},
	{"again_at_ns", UnitTime, "when it took them", 0, nil, func(r *Request) *int64 { return &r.AtNS }},
	{"again_bytes", UnitBytes, "keys and values that were written again", -1, nil,
		func(r *Request) *int64 { return &r.Bytes }},
	{"again_cost_ns", UnitDuration, "their share of the time that the prompt took", 0, nil,
		func(r *Request) *int64 { return &r.CostNS }},
}

// EndName is an end as files have it, "" where it is not known.
func EndName(end RequestEnd) string { return endNames[end] }

var causeWords = []string{"", "the slot held other tokens from a position on",
	"another slot held them, and was busy or not asked for",
	"another slot held them; the prompts were less alike than --slot-prompt-similarity",
	"another request took their cells", "a context shift removed or moved them",
	"layers with a sliding window no longer had what comes before", "a recurrent state cannot be cut back to their end",
	"the request or the server turned cache_prompt off", "the slot was computed with other LoRA adapters",
	"the slot was computed with other vectors"}

// CauseWords say what a cause of that name means, "" where there is none.
func CauseWords(name string) string {
	if i := slices.Index(causeNames, name); i > 0 {
		return causeWords[i]
	}
	return ""
}

// CauseName is a cause as files have it, "" where nothing was computed again.
func CauseName(cause Cause) string { return causeNames[cause] }
