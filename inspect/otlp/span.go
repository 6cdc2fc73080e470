package otlp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/llamatap/llamatap/kvcache"
	"google.golang.org/protobuf/encoding/protowire"
)

// Names of attributes that more than one place has.
const (
	serviceName   = "service.name"
	operationName = "gen_ai.operation.name"
	providerName  = "gen_ai.provider.name"
	requestModel  = "gen_ai.request.model"
	responseModel = "gen_ai.response.model"
	errorType     = "error.type"
	provider      = "llama.cpp"
)

// operations are what the paths of llama-server's interfaces do, without the prefix /v1.
var operations = map[string]string{
	"/chat/completions": "chat", "/messages": "chat", "/responses": "chat", "/api/chat": "chat",
	"/completion": "text_completion", "/completions": "text_completion", "/infill": "text_completion",
	"/embedding": "embeddings", "/embeddings": "embeddings",
}

// operation is what a request does; "" where its path is not known.
func operation(q *kvcache.Request) string { return operations[strings.TrimPrefix(q.Said.Path, "/v1")] }

// failure is the error.type of a request: "" where it did not fail, or it is not known how it ended.
func failure(q *kvcache.Request) string {
	switch q.End {
	case kvcache.EndError:
		return "_OTHER" // what the conventions say where no class is known
	case kvcache.EndCancelled:
		return "cancelled"
	}
	return ""
}

// A source is the run that requests are of.
type source struct {
	run    string // its id
	offset int64  // to Unix time, in nanoseconds
}

// span is a span, as a message has it.
type span struct {
	trace, id, parent []byte
	state, name       string
	kind              uint64
	flags             uint32
	begin, end        int64 // Unix time in nanoseconds
	attributes        attributes
	failed            string // "": it did not
}

// Kinds of spans, flags of a span's context, and the status of one that failed.
const (
	kindInternal = 1
	kindServer   = 2
	flagSampled  = 1
	flagKnown    = 1 << 8 // whether the parent is in another process
	flagRemote   = 1 << 9 // it is
	statusError  = 2
)

func (s *span) message() (m message) {
	m.bytes(1, s.trace)
	m.bytes(2, s.id)
	m.text(3, s.state)
	if s.parent != nil {
		m.bytes(4, s.parent)
	}
	m.text(5, s.name)
	m.varint(6, s.kind)
	m.fixed(7, uint64(s.begin))
	m.fixed(8, uint64(s.end))
	m.repeated(9, s.attributes)
	var status message
	if s.failed != "" {
		status.text(2, s.failed)
		status.varint(3, statusError)
	}
	m.bytes(15, status)
	m = protowire.AppendFixed32(protowire.AppendTag(m, 16, protowire.Fixed32Type), s.flags)
	return m
}

// spans are those of a request: the first is the request's, the others its phases. nil: its parent is not sampled, or
// none of its times is known.
func (s source) spans(q *kvcache.Request) []message {
	begin, end := began(q), ended(q)
	if begin == 0 || end < begin {
		return nil
	}
	traceID, parent, sampled := parseParent(q.Said.TraceParent)
	if !sampled {
		return nil
	}
	seed := binary.LittleEndian.AppendUint64([]byte(s.run+"\x00"), uint64(q.ID))
	hash := sha256.Sum256(binary.LittleEndian.AppendUint64(seed, uint64(end+s.offset)))
	if traceID == nil {
		traceID = hash[:16]
	}
	root := span{trace: traceID, id: hash[16:24], parent: parent, kind: kindServer, flags: flagSampled | flagKnown,
		name:  cmp.Or(strings.TrimSpace(operation(q)+" "+q.Said.Model), "request"),
		begin: begin + s.offset, end: end + s.offset, attributes: s.attributes(q)}
	if parent != nil {
		root.flags |= flagRemote
		if len(q.Said.TraceState) <= maxState {
			root.state = q.Said.TraceState
		}
	}
	if failure(q) != "" {
		root.failed = kvcache.EndName(q.End)
	}
	messages := []message{root.message()}
	for i, phase := range [...]struct {
		name       string
		begin, end int64
		attributes attributes
	}{
		{"queue", q.ArrivalNS, q.LaunchNS, nil}, {"prefill", q.PromptNS, q.FirstNS, prefillAttributes(q)},
		{"decode", q.FirstNS, q.LastNS, decodeAttributes(q)},
	} {
		if phase.begin == 0 || phase.end < phase.begin {
			continue
		}
		id := sha256.Sum256(append(hash[:], byte(i)))
		of := span{trace: traceID, id: id[:8], parent: root.id, state: root.state, name: phase.name, kind: kindInternal,
			flags: flagSampled | flagKnown, begin: phase.begin + s.offset, end: phase.end + s.offset,
			attributes: phase.attributes}
		messages = append(messages, of.message())
	}
	return messages
}

// maxState is the longest tracestate that is passed on, in bytes.
const maxState = 512

// began is the first time that is known of a request; 0: none.
func began(q *kvcache.Request) int64 { return cmp.Or(q.ArrivalNS, q.LaunchNS, q.PromptNS, q.FirstNS) }

// ended returns when a request left its slot, or the last time that is known of one that never did; 0: none.
func ended(q *kvcache.Request) int64 {
	return cmp.Or(q.EndNS, max(q.LastNS, q.FirstNS, q.PromptNS, q.LaunchNS, q.ArrivalNS))
}

// attributes are those of a request. What is not known is left out.
func (s source) attributes(q *kvcache.Request) attributes {
	said := &q.Said
	a := attributes{}
	a.text(operationName, operation(q))
	a.text(providerName, provider)
	a.text(requestModel, said.Model)
	a.text(responseModel, said.AnswerModel)
	a.text("gen_ai.response.id", said.AnswerID)
	if q.End == kvcache.EndStop || q.End == kvcache.EndLength {
		a.texts("gen_ai.response.finish_reasons", kvcache.EndName(q.End))
	}
	a.text(errorType, failure(q))
	a.number("gen_ai.usage.input_tokens", q.Prompt)
	a.number("gen_ai.usage.output_tokens", q.Output)
	if q.Prompt >= 0 {
		a.number("gen_ai.usage.cache_read.input_tokens", q.Cached)
		a.number("gen_ai.usage.cache_creation.input_tokens", q.Computed)
	}
	a.settings(said.Settings)
	a.addMessageText("gen_ai.input.messages", "user", q.Texts.Prompt, "")
	a.addMessageText("gen_ai.output.messages", "assistant", q.Texts.Output, kvcache.EndName(q.End))
	if q.Texts.PromptCut || q.Texts.OutputCut {
		a.truth("llamatap.texts.cut", true)
	}
	a.text("url.path", said.Path)
	a.text("llamatap.run.id", s.run)
	a.number("llamatap.request.id", q.ID)
	a.number("llamatap.slot", q.Seq)
	a.number("llamatap.task", q.Task)
	a.text("llamatap.end", kvcache.EndName(q.End))
	a.number("llamatap.context_shifts", q.Shifts)
	if q.Cause != kvcache.CauseNone {
		a.text("llamatap.recomputed.cause", kvcache.CauseName(q.Cause))
		a.number("llamatap.recomputed.tokens", q.Again)
		a.number("llamatap.recomputed.position", q.Pos)
		a.number("llamatap.recomputed.slot", q.Holder)
		a.number("llamatap.recomputed.by_request", q.By)
		a.number("llamatap.recomputed.bytes", q.Bytes)
		a.seconds("llamatap.recomputed.time", q.CostNS)
	}
	return a
}

// addMessageText adds a message of one text as JSON, as the conventions have it.
func (a *attributes) addMessageText(key, role, text, end string) {
	if text == "" {
		return
	}
	type part struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	}
	message, err := json.Marshal([]struct {
		Role   string `json:"role"`
		Parts  []part `json:"parts"`
		Finish string `json:"finish_reason,omitempty"`
	}{{role, []part{{"text", text}}, end}})
	if err == nil {
		a.text(key, string(message))
	}
}

func prefillAttributes(q *kvcache.Request) attributes {
	a := attributes{}
	a.number("llamatap.cached_tokens", q.Cached)
	a.number("llamatap.computed_tokens", q.Computed)
	return a
}

func decodeAttributes(q *kvcache.Request) attributes {
	a := attributes{}
	a.number("llamatap.output_tokens", q.Output)
	if q.Drafted > 0 {
		a.number("llamatap.drafted_tokens", q.Drafted)
		a.number("llamatap.accepted_tokens", q.Accepted)
	}
	a.seconds("llamatap.inter_token.p50", q.GapP50NS)
	a.seconds("llamatap.inter_token.p99", q.GapP99NS)
	a.seconds("llamatap.sampling.time", q.SampleNS)
	a.seconds("llamatap.grammar.time", q.GrammarNS)
	return a
}

// requestSettings are the attributes of settings, by their names in llama-server's interfaces.
var requestSettings = []struct {
	setting, attribute string
	whole              bool
}{
	{"max_tokens", "gen_ai.request.max_tokens", true}, {"max_completion_tokens", "gen_ai.request.max_tokens", true},
	{"max_output_tokens", "gen_ai.request.max_tokens", true}, {"n_predict", "gen_ai.request.max_tokens", true},
	{"temperature", "gen_ai.request.temperature", false}, {"top_p", "gen_ai.request.top_p", false},
	{"top_k", "gen_ai.request.top_k", false}, {"seed", "gen_ai.request.seed", true},
	{"frequency_penalty", "gen_ai.request.frequency_penalty", false},
	{"presence_penalty", "gen_ai.request.presence_penalty", false}, {"n", "gen_ai.request.choice.count", true},
}

// settings adds what a request sets, each attribute once.
func (a *attributes) settings(text string) {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &all) != nil {
		return
	}
	had := map[string]bool{}
	for _, s := range requestSettings {
		raw, given := all[s.setting]
		if !given || had[s.attribute] {
			continue
		}
		var whole int64
		var real float64
		switch {
		case s.whole && json.Unmarshal(raw, &whole) == nil && !bytes.Equal(raw, []byte("null")) &&
			(whole >= 0 || s.setting == "seed"): // n_predict -1 means no limit
			a.integer(s.attribute, whole)
		case !s.whole && json.Unmarshal(raw, &real) == nil && !bytes.Equal(raw, []byte("null")):
			a.float(s.attribute, real)
		default:
			continue
		}
		had[s.attribute] = true
	}
	if raw := string(all["stream"]); raw == "true" || raw == "false" {
		a.truth("gen_ai.request.stream", raw == "true")
	}
}

// parseParent reads a traceparent of W3C Trace Context; nil where it is none, which counts as sampled.
func parseParent(text string) (traceID, parent []byte, sampled bool) {
	parts := strings.Split(text, "-")
	if len(parts) < 4 || len(parts) > 4 && parts[0] == "00" || parts[0] == "ff" || text != strings.ToLower(text) {
		return nil, nil, true
	}
	fields := [4][]byte{}
	for i, size := range [...]int{1, 16, 8, 1} {
		b, err := hex.DecodeString(parts[i])
		if err != nil || len(b) != size {
			return nil, nil, true
		}
		fields[i] = b
	}
	if allZero(fields[1]) || allZero(fields[2]) {
		return nil, nil, true
	}
	return fields[1], fields[2], fields[3][0]&1 == 1
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
