package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/internal/cli"
)

// Request is one prompt of many: a line of Run.PromptsFile.
type Request struct {
	ID       json.RawMessage // a string or a number, as given; nil: none
	Prompt   string          // text; there are no escapes in it
	Tokens   []int32         // in place of a text; nil: none
	Messages []Message       // in place of a text; nil: none
	Stop     []string        // texts that end the completion, which ends before them
	Settings *Run            // the run's, with what the line changes
}

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// requestKeys are the options that a request may set, by llama-server's names for them.
var requestKeys = map[string]string{
	"n_predict": "predict", "seed": "seed", "n_probs": "logprobs", "samplers": "samplers", "ignore_eos": "ignore-eos",
	"temperature": "temp", "dynatemp_range": "dynatemp-range", "dynatemp_exponent": "dynatemp-exp",
	"top_k": "top-k", "top_p": "top-p", "min_p": "min-p", "top_n_sigma": "top-n-sigma", "typical_p": "typical",
	"xtc_probability": "xtc-probability", "xtc_threshold": "xtc-threshold",
	"repeat_last_n": "repeat-last-n", "repeat_penalty": "repeat-penalty", "presence_penalty": "presence-penalty",
	"frequency_penalty": "frequency-penalty",
	"dry_multiplier":    "dry-multiplier", "dry_base": "dry-base", "dry_allowed_length": "dry-allowed-length",
	"dry_penalty_last_n":    "dry-penalty-last-n",
	"dry_sequence_breakers": "dry-sequence-breaker", "adaptive_target": "adaptive-target",
	"adaptive_decay": "adaptive-decay",
	"mirostat":       "mirostat", "mirostat_tau": "mirostat-ent", "mirostat_eta": "mirostat-lr",
	"logit_bias": "logit-bias", "grammar": "grammar", "json_schema": "json-schema",
}

// ParseRequest reads one line of a prompt file. The error is one line with cause and remedy; where the line is an
// object with a valid "id", the Request has it even then.
func (r *Run) ParseRequest(line []byte) (q Request, err error) {
	if !utf8.Valid(line) {
		return q, errors.New("not valid UTF-8: convert it to UTF-8 first, with iconv for example")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return q, fmt.Errorf(`no JSON object%s: give one per line, such as {"id":1,"prompt":"Hello"}`, jsonCause(err))
	}
	repeated := repeatedKey(line)
	if id, ok := fields["id"]; ok && repeated != "id" && !bytes.Equal(id, []byte("null")) {
		if strings.ContainsRune(`{[tf`, rune(id[0])) {
			return q, errors.New(`"id": give a string or a number`)
		}
		q.ID = id
	}
	if repeated != "" {
		return q, fmt.Errorf("%.40q is given twice: give it once", repeated)
	}
	settings := *r
	settings.given = maps.Clone(r.given)
	q.Settings = &settings
	if err := q.parsePrompt(fields); err != nil {
		return q, err
	}
	if err := q.parseStop(fields["stop"]); err != nil {
		return q, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains([]string{"id", "prompt", "messages", "stop"}, name) {
			continue
		}
		if err := settings.setRequestKey(name, fields[name]); err != nil {
			return q, err
		}
	}
	switch {
	case settings.AllRows && settings.Predict != 0:
		return q, errors.New(`"n_predict": --all-rows computes no logits, by which text is chosen: ` +
			`leave one of them out`)
	case settings.AllRows && settings.TopLogprobs > 0:
		return q, errors.New(`"n_probs": --all-rows computes no logits: leave one of them out`)
	}
	return q, nil
}

// repeatedKey is a key that a JSON object has twice, at its first level; "" if there is none.
func repeatedKey(object []byte) string {
	d := json.NewDecoder(bytes.NewReader(object))
	d.Token() // the brace
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		key, _ := token.(string)
		if err != nil || seen[key] {
			return key
		}
		seen[key] = true
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return ""
		}
	}
	return ""
}

// jsonCause is what a JSON error says, where it says more than that the text ends.
func jsonCause(err error) string {
	var wrong *json.SyntaxError
	if errors.As(err, &wrong) {
		return fmt.Sprintf(" (byte %d: %v)", wrong.Offset, wrong)
	}
	return ""
}

// parsePrompt takes what is to be continued.
func (q *Request) parsePrompt(fields map[string]json.RawMessage) error {
	prompt, isPrompt := fields["prompt"]
	messages, isChat := fields["messages"]
	switch {
	case isPrompt == isChat:
		return errors.New(`give one of "prompt" and "messages"`)
	case isChat:
		if json.Unmarshal(messages, &q.Messages) != nil || len(q.Messages) == 0 {
			return errors.New(
				`"messages": give a list such as [{"role":"user","content":"Hello"}], with texts as contents`)
		}
		for _, m := range q.Messages {
			if m.Role == "" || strings.ContainsRune(m.Role+m.Content, 0) {
				return errors.New(`"messages": each needs a "role", and a text without zero bytes`)
			}
		}
		return nil
	case prompt[0] == '[':
		if json.Unmarshal(prompt, &q.Tokens) != nil || len(q.Tokens) == 0 {
			return errors.New(`"prompt": give a text, or a list of token ids`)
		}
		return nil
	case prompt[0] != '"' || json.Unmarshal(prompt, &q.Prompt) != nil:
		return errors.New(`"prompt": give a text, or a list of token ids`)
	}
	return nil
}

// parseStop takes a text or a list of texts.
func (q *Request) parseStop(value json.RawMessage) error {
	var one string
	switch {
	case len(value) == 0 || string(value) == "null":
		return nil
	case json.Unmarshal(value, &one) == nil:
		q.Stop = []string{one}
	case json.Unmarshal(value, &q.Stop) != nil:
		return errors.New(`"stop": give a text, or a list of texts`)
	}
	if slices.Contains(q.Stop, "") {
		return errors.New(`"stop": an empty text would end every completion at once: leave it out`)
	}
	return nil
}

// setRequestKey sets one option by llama-server's name for it.
func (r *Run) setRequestKey(name string, value json.RawMessage) error {
	key, ok := requestKeys[name]
	if !ok {
		if near := cli.Nearest(name, append(slices.Sorted(maps.Keys(requestKeys)), "id", "messages", "prompt",
			"stop")); near != "" {
			return fmt.Errorf("unknown key %q: did you mean %q?", name, near)
		}
		return fmt.Errorf("unknown key %q: leave it out", name)
	}
	at := slices.IndexFunc(llamaOptions, func(o llamaOption) bool { return o.key == key })
	o := &llamaOptions[at]
	texts, err := requestValues(key, value)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	switch key { // lists do not add to those of the run
	case "logit-bias":
		r.LogitBias = nil
	case "dry-sequence-breaker":
		r.DryBreakers = []string{}
		r.given[key] = true
	}
	for _, text := range texts {
		if key == "dry-sequence-breaker" && r.Escape {
			text = strings.ReplaceAll(text, `\`, `\\`) // the escapes of JSON were all
		}
		if err := r.set(o, text); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// requestValues turns a JSON value into what the flag of the same meaning takes, once or several times.
func requestValues(key string, value json.RawMessage) ([]string, error) {
	switch key {
	case "logit-bias":
		return requestBiases(value)
	case "samplers", "dry-sequence-breaker":
		var list []string
		if json.Unmarshal(value, &list) != nil {
			return nil, errors.New("give a list of texts")
		}
		if key == "samplers" {
			list = []string{strings.Join(list, ";")}
		}
		return list, nil
	case "grammar":
		var text string
		if json.Unmarshal(value, &text) != nil {
			return nil, errors.New("give a text")
		}
		return []string{text}, nil
	case "ignore-eos":
		var on bool
		if json.Unmarshal(value, &on) != nil {
			return nil, errors.New("give true or false")
		}
		return []string{strconv.FormatBool(on)}, nil
	}
	return []string{string(value)}, nil // a number; the option refuses what is none
}

// requestBiases reads [[15043,1.0],[15044,false]]; false forbids a token.
func requestBiases(value json.RawMessage) (texts []string, err error) {
	wrong := errors.New("give a list such as [[15043,1.0],[15044,false]]")
	var pairs [][]any
	if json.Unmarshal(value, &pairs) != nil {
		return nil, wrong
	}
	for _, pair := range pairs {
		if len(pair) != 2 {
			return nil, wrong
		}
		token, ok := pair[0].(float64)
		if !ok {
			return nil, wrong
		}
		text := strconv.FormatFloat(token, 'f', -1, 64)
		switch bias := pair[1].(type) {
		case float64:
			text += fmt.Sprintf("%+g", bias)
		case bool:
			if bias {
				return nil, wrong
			}
			text += "-inf"
		default:
			return nil, wrong
		}
		texts = append(texts, text)
	}
	return texts, nil
}
