package track

import (
	"encoding/json"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/kvcache"
)

// heads are what the HTTP requests say of themselves that threads received last, by thread.
type heads map[int32]head

type head struct {
	arrivalNS int64
	kvcache.RequestSaid
}

// maxHeads bounds the threads that are remembered: a server may begin one for each connection.
const maxHeads = 1 << 12

// http takes in the head of a request. Prompts of token ids come before it, others after it.
func (r *arrivals) http(s *ggmlhooks.Served) {
	if len(r.heads) >= maxHeads {
		clear(r.heads)
	}
	said := kvcache.RequestSaid{}
	var settings []string
	for line := range strings.Lines(s.Line) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch name {
		case "path":
			said.Path = value
		case "traceparent":
			said.TraceParent = value
		case "tracestate": // several fields are one list
			said.TraceState = strings.TrimPrefix(said.TraceState+","+value, ",")
		case "model":
			_ = json.Unmarshal([]byte(value), &said.Model) // what is no text names no model
		default:
			if json.Valid([]byte(value)) && !strings.HasPrefix(value, `"`) {
				settings = append(settings, `"`+name+`":`+value)
			}
		}
	}
	if len(settings) > 0 {
		said.Settings = "{" + strings.Join(settings, ",") + "}"
	}
	r.heads[s.Row] = head{s.MonoNS, said}
	for _, a := range r.asks {
		if a.thread == s.Row && a.arrivalNS == s.MonoNS {
			a.said = said
		}
	}
}

// streams reports whether the answer comes in pieces.
func streams(said *kvcache.RequestSaid) bool { return strings.Contains(said.Settings, `"stream":true`) }

// answered adds what an answer says of itself.
func (q *request) answered(line string) {
	for key, of := range map[string]*string{`"model":`: &q.Said.AnswerModel, `"id":`: &q.Said.AnswerID} {
		if _, rest, ok := strings.Cut(line, key); ok {
			_ = json.NewDecoder(strings.NewReader(rest)).Decode(of) // what is no text names nothing
		}
	}
}

// saidEnd is why generation ended, as the answer says. One that says no more than that it is completed, of a request
// whose last token does not end generation, reached its limit if it has that many tokens.
func (q *request) saidEnd() kvcache.RequestEnd {
	if q.answer != ggmlhooks.ServedCompleted {
		return min(int64(q.answer), kvcache.EndError)
	}
	var limit struct {
		Tokens int64 `json:"max_output_tokens"`
	}
	if json.Unmarshal([]byte(q.Said.Settings), &limit) == nil && limit.Tokens > 0 && q.Output >= limit.Tokens {
		return kvcache.EndLength
	}
	return kvcache.EndCompleted
}
