//go:build linux

package oracle

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
	"github.com/llamatap/llamatap/store/rundir"
)

// A request names one request of a run.
type request struct {
	ctx         uint32
	seq, number int32
}

// requests groups the tokens of a run by request.
func (c *capture) requests() map[request][]rundir.TokenRecord {
	all := map[request][]rundir.TokenRecord{}
	for _, token := range c.tokens {
		id := request{token.Ctx, *token.Seq, *token.Request}
		all[id] = append(all[id], token)
	}
	return all
}

// A question is what is asked of a server's slot.
type question struct {
	prompt  string
	slot    int32
	n       int
	options map[string]any
}

// ask asks for a completion.
func (s *server) ask(t *testing.T, q question) (a completionAnswer) {
	t.Helper()
	s.post(t, "/completion", q.body(), &a)
	return a
}

func (q question) body() map[string]any {
	body := map[string]any{
		"prompt": q.prompt, "id_slot": q.slot, "n_predict": q.n, "temperature": 0, "return_tokens": true,
		"cache_prompt": true, "ignore_eos": true,
	}
	for key, value := range q.options {
		body[key] = value
	}
	return body
}

// tokenize asks the server for the ids of a prompt.
func (s *server) tokenize(t *testing.T, text string) []int32 {
	t.Helper()
	var prompt struct{ Tokens []int32 }
	s.post(t, "/tokenize", map[string]any{"content": text, "add_special": true}, &prompt)
	return prompt.Tokens
}

// wantRequest compares a request's tokens with what the server answered: the part of the prompt that it had to
// evaluate, then every chosen token but the last, which is never decoded.
func wantRequest(t *testing.T, id request, tokens []rundir.TokenRecord, prompt []int32, a completionAnswer) {
	t.Helper()
	if a.Evaluated != len(prompt) || len(a.Tokens) != a.Predicted || a.Predicted < 1 ||
		a.Timings.Cached+a.Timings.Prompt != len(prompt) {
		t.Fatalf("%+v: the server says %+v of a prompt of %d tokens", id, a, len(prompt))
	}
	want := slices.Concat(prompt, a.Tokens[:a.Predicted-1])[a.Timings.Cached:]
	ids := []int32{}
	for i, token := range tokens {
		ids = append(ids, token.ID)
		phase := "prefill"
		if i >= a.Timings.Prompt {
			phase = "decode"
		}
		if token.Pos != int32(a.Timings.Cached+i) || token.Phase.String() != phase {
			t.Errorf("%+v: token %d is %+v, want position %d, phase %s", id, i, token, a.Timings.Cached+i, phase)
		}
	}
	wantIDs(t, fmt.Sprintf("%+v", id), ids, want)
}

// TestServerRequests asks four slots at a time, each several times: with new prompts, with one of which the
// beginning is cached, with the same one again, and for one token only.
func TestServerRequests(t *testing.T) {
	const slots, rounds = 4, 6
	s := serve(t, residual, "-np", fmt.Sprint(slots), "-c", "4096", "-b", "64", "-t", "1", "--no-webui")
	var questions [slots][rounds]question
	var answers [slots][rounds]completionAnswer
	var all sync.WaitGroup
	for slot := range int32(slots) {
		own := fmt.Sprintf("package p%d\n", slot)
		prompts := [rounds]string{own, own + "func main() {", own + "func main() {", long + own, long + own +
			"\n\treturn", own + long}
		all.Go(func() {
			for i, prompt := range prompts {
				questions[slot][i] = question{prompt: prompt, slot: slot, n: 1 + (i*3+int(slot))%7}
				answers[slot][i] = s.ask(t, questions[slot][i])
			}
		})
	}
	all.Wait()
	prompts := map[string][]int32{}
	for slot := range questions {
		for _, q := range questions[slot] {
			prompts[q.prompt] = s.tokenize(t, q.prompt)
		}
	}
	c := s.end(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	cached := 0
	for slot := range questions {
		for i, q := range questions[slot] {
			id := request{0, int32(slot), int32(i)}
			if answers[slot][i].Slot != int32(slot) {
				t.Fatalf("slot %d answered for slot %d", answers[slot][i].Slot, slot)
			}
			wantRequest(t, id, got[id], prompts[q.prompt], answers[slot][i])
			cached += answers[slot][i].Timings.Cached
		}
	}
	if len(got) != slots*rounds || cached == 0 {
		t.Errorf("%d requests, %d cached tokens; want %d requests, and cached tokens", len(got), cached, slots*rounds)
	}
	c.setup(t, 4)
}

// TestServerSeveralAnswers asks for three answers to one prompt: the slots copy its cells and go on by themselves.
func TestServerSeveralAnswers(t *testing.T) {
	s := serve(t, residual, "-np", "3", "-c", "3072", "-t", "1", "--no-webui")
	var answers [2][]completionAnswer
	for i, prompt := range []string{"func main() {", "package http"} {
		q := question{prompt: prompt, n: 5, options: map[string]any{"n": 3, "temperature": 1, "seed": 7}}
		delete(q.options, "id_slot")
		body := q.body()
		delete(body, "id_slot")
		s.post(t, "/completion", body, &answers[i])
	}
	prompts := [2][]int32{s.tokenize(t, "func main() {"), s.tokenize(t, "package http")}
	c := s.end(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	for i := range answers {
		if len(answers[i]) != 3 {
			t.Fatalf("%d answers", len(answers[i]))
		}
		evaluated := 0
		for _, a := range answers[i] {
			id := request{0, a.Slot, int32(i)}
			var prompt, decoded []int32
			for _, token := range got[id] {
				if token.Phase.String() == "prefill" {
					prompt = append(prompt, token.ID)
				} else {
					decoded = append(decoded, token.ID)
				}
			}
			wantIDs(t, fmt.Sprintf("%+v", id), decoded, a.Tokens[:a.Predicted-1])
			if evaluated += len(prompt); len(prompt) > 0 {
				wantIDs(t, fmt.Sprintf("prompt of %+v", id), prompt, prompts[i][len(prompts[i])-len(prompt):])
			}
		}
		if evaluated == 0 || evaluated > len(prompts[i]) {
			t.Errorf("answers to prompt %d: %d tokens of it were evaluated, of %d", i, evaluated, len(prompts[i]))
		}
	}
}

// TestServerCancelled closes the connection of a request that streams. What was decoded is recorded; the slot's
// next request is another.
func TestServerCancelled(t *testing.T) {
	s := serve(t, residual, "-np", "1", "-c", "8192", "-t", "1", "--no-webui")
	const n = 6000
	cut := question{prompt: "func main() {", n: n, options: map[string]any{"stream": true}}
	heard := s.hearSome(t, cut, 5, nil)
	next := question{prompt: "func main() {", n: 4}
	answer := s.ask(t, next)
	prompt := s.tokenize(t, next.prompt)
	c := s.end(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	if len(got) != 2 {
		t.Fatalf("%d requests, want 2", len(got))
	}
	wantRequest(t, request{0, 0, 1}, got[request{0, 0, 1}], prompt, answer)
	ids := []int32{}
	for i, token := range got[request{}] {
		if ids = append(ids, token.ID); token.Pos != int32(i) {
			t.Errorf("token %d stands at %d", i, token.Pos)
		}
	}
	want := slices.Concat(prompt, heard[:len(heard)-1]) // the last one that was heard need not have been decoded
	if len(ids) < len(want) || len(ids) > n {
		t.Fatalf("%d tokens of a request that was cut off after %d were recorded", len(ids), len(want))
	}
	wantIDs(t, "the request that was cut off", ids[:len(want)], want)
}

// hearSome asks for a stream of tokens, and goes away after a few of them; meanwhile, where it is not nil, runs when
// the first have come.
func (s *server) hearSome(t *testing.T, q question, few int, meanwhile func()) (ids []int32) {
	t.Helper()
	body, err := json.Marshal(q.body())
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithTimeout(t.Context(), testenv.Patience())
	defer leave()
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/completion", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for len(ids) < few && lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var part completionAnswer
			if err := json.Unmarshal([]byte(data), &part); err != nil {
				t.Fatalf("%q: %v", data, err)
			}
			if ids = append(ids, part.Tokens...); meanwhile != nil {
				meanwhile()
				meanwhile = nil
			}
		}
	}
	if len(ids) < few {
		t.Fatalf("the stream ended after %d tokens: %v", len(ids), lines.Err())
	}
	return ids
}

// TestServerContextShift runs over the end of a slot's context: the shift is maintenance and belongs to no request,
// and the request goes on.
func TestServerContextShift(t *testing.T) {
	s := serve(t, residual, "-np", "1", "-c", "256", "--context-shift", "-t", "1", "--no-webui")
	answer := s.ask(t, question{prompt: "func main() {", n: 400, options: map[string]any{"n_keep": 4}})
	again := s.ask(t, question{prompt: "package http", n: 3})
	prompts := [2][]int32{s.tokenize(t, "func main() {"), s.tokenize(t, "package http")}
	c := s.end(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	first := got[request{}]
	ids, shifts := []int32{}, 0
	for i, token := range first {
		ids = append(ids, token.ID)
		if i > 0 && token.Pos != first[i-1].Pos+1 {
			shifts++
			if token.Pos > first[i-1].Pos {
				t.Errorf("position %d after %d", token.Pos, first[i-1].Pos)
			}
		}
	}
	if answer.Predicted != 400 || len(got) != 2 || shifts == 0 {
		t.Fatalf("%d tokens chosen, %d requests, %d shifts", answer.Predicted, len(got), shifts)
	}
	wantIDs(t, "the request that was shifted", ids, slices.Concat(prompts[0], answer.Tokens[:answer.Predicted-1]))
	wantRequest(t, request{0, 0, 1}, got[request{0, 0, 1}], prompts[1], again)
	if p := c.meta.Phases["maintenance"]; p.Graphs != int64(shifts) || p.Tokens != 0 {
		t.Errorf("%d graphs of maintenance with %d tokens, want %d with none", p.Graphs, p.Tokens, shifts)
	}
}

// TestRequestsOfCLI types two turns of a chat: each is a request, and the second one's prompt goes on where the
// first one's answer ended.
func TestRequestsOfCLI(t *testing.T) {
	cmd := command(t, append([]string{"exec"}, append(residual, "--", "llama-cli", "-m", testenv.Model(t), "-n", "5",
		"--temp", "0", "-t", "1", "--simple-io")...)...)
	cmd.Stdin = strings.NewReader("func main() {\npackage http\n/exit\n")
	c := finish(t, cmd, t.TempDir()).good(t).capture(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	first, second := got[request{}], got[request{number: 1}]
	if len(got) != 2 || rows(first, "decode") != 4 || rows(second, "decode") != 4 || rows(first, "prefill") == 0 ||
		rows(second, "prefill") == 0 {
		t.Fatalf("%d requests, of %d and %d tokens", len(got), len(first), len(second))
	}
	if last := first[len(first)-1].Pos; second[0].Pos > last+1 || second[0].Pos < last {
		t.Errorf("the second turn begins at %d, the first one ended at %d", second[0].Pos, last)
	}
}

// TestServerEmbeddings asks for embeddings, of texts and of token ids, and for a ranking: every token is prompt, every
// text a request, whose record has its times in order and the interface that was asked.
func TestServerEmbeddings(t *testing.T) {
	testenv.Slow(t)
	for kind, flags := range map[string][]string{
		"embedding": {"--embedding", "--pooling", "mean"}, "last": {"--embedding", "--pooling", "last"},
		"rerank":   {"--rerank"},
		"template": {"--rerank", "-m", synthetic(t, "qwen3-rerank", gguf.F16, nil)}, // of query and document
		"no cache": {"--embedding", "-m", synthetic(t, "bert", gguf.F16, nil)},
	} {
		t.Run(kind, func(t *testing.T) {
			s := serve(t, []string{"--tap-tensors", "ffn_up", "--tap-requests"},
				append(flags, "-np", "2", "-c", "1024", "-t", "1", "--no-webui")...)
			texts := []any{"func main() {", "package http", "func main() {"}
			var want int
			path := "/v1/embeddings"
			if flags[0] == "--rerank" {
				var ranked struct {
					Results []struct{} `json:"results"`
					Usage   struct {
						Tokens int `json:"total_tokens"`
					} `json:"usage"`
				}
				path = "/v1/rerank"
				s.post(t, path, map[string]any{"query": "main", "documents": texts}, &ranked)
				want = ranked.Usage.Tokens
				if len(ranked.Results) != len(texts) {
					t.Fatalf("%d results", len(ranked.Results))
				}
			} else {
				for _, input := range []any{texts[0], texts[1:], []int{5, 6, 7}} {
					var made struct {
						Usage struct {
							Tokens int `json:"total_tokens"`
						} `json:"usage"`
					}
					s.post(t, path, map[string]any{"input": input}, &made)
					want += made.Usage.Tokens
				}
				texts = append(texts, nil)
			}
			c := s.end(t).sealed(t)
			wantRows(t, c)
			if got := c.requests(); len(got) != len(texts) || len(c.tokens) != want || want == 0 ||
				len(c.ids("decode")) != 0 {
				t.Errorf("%d requests, %d tokens, %d of them decoded; want %d, %d, 0", len(got), len(c.tokens),
					len(c.ids("decode")), len(texts), want)
			}
			c.setup(t, map[bool]int64{false: 2 + 2, true: 2}[kind == "no cache"]) // a warm-up, and a trial of the cache
			records := s.recordedRequests(t)
			for i := range records {
				q := &records[i]
				times := []int64{q.ArrivalNS, q.LaunchNS, q.PromptNS, q.EndNS}
				if !slices.IsSorted(times) || times[0] == 0 || q.Said.Path != path ||
					q.End != kvcache.EndCompleted || q.Output != 0 || q.Cached != 0 || q.Again >= 0 {
					t.Errorf("record %+v", *q)
				}
				want -= int(q.Prompt)
			}
			if len(records) != len(texts) || want != 0 {
				t.Errorf("%d records of %d texts lack %d tokens", len(records), len(texts), want)
			}
		})
	}
}

// TestServerLoad lets a hundred clients ask at the same time, under the policy that loses nothing.
func TestServerLoad(t *testing.T) {
	testenv.Slow(t)
	clients, slots := 100, 8
	if testenv.Nightly() {
		clients = 400
	}
	s := serve(t, []string{"--tap-tensors", "l_out*", "--tap-overflow", "block"}, "-np", fmt.Sprint(slots),
		"-c", "8192", "-t", "1", "--no-webui")
	answers := make([]completionAnswer, clients)
	prompts := make([][]int32, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			q := question{prompt: fmt.Sprintf("func f%d() {", i), slot: -1, n: 16 + i%9}
			answers[i], prompts[i] = s.ask(t, q), s.tokenize(t, q.prompt)
		})
	}
	all.Wait()
	c := s.end(t).sealed(t)
	wantRows(t, c)
	got := c.requests()
	if len(got) != clients || len(c.meta.Losses) != 0 || c.meta.Lossy {
		t.Errorf("%d requests of %d; losses %+v", len(got), clients, c.meta.Losses)
	}
	for i := range clients {
		wantSome(t, got, prompts[i], answers[i])
	}
	layers, outputs := int64(c.meta.Model.NLayer), int64(0)
	for _, e := range c.execs() {
		for _, row := range e.Rows {
			if row.Output && e.Phase.String() != "setup" {
				outputs++
			}
		}
	}
	// the last layer's is of the output rows alone
	if got, want := tokenRows(c), (layers-1)*int64(len(c.tokens))+outputs; got != want {
		t.Errorf("%d rows of l_out for %d tokens, of which %d are outputs, of %d layers; want %d", got, len(c.tokens),
			outputs, layers, want)
	}
	tap, graphs := c.meta.Tap, c.meta.Phases["prefill"].NS+c.meta.Phases["decode"].NS
	t.Logf("own time %.2f %% of graph time, %.2f µs per token: %+v", 100*float64(*tap.OwnNS)/float64(graphs),
		float64(*tap.OwnNS)/1e3/float64(len(c.tokens)),
		map[string]int64{"own": *tap.OwnNS, "hook": *tap.HookNS, "ask": *tap.AskNS, "copy": *tap.CopyNS,
			"graphs": graphs})
}

// tokenRows is the number of token rows in all packets.
func tokenRows(c *capture) (n int64) {
	for i := range c.packets {
		n += int64(c.packets[i].TokenCount)
	}
	return n
}

// wantSome looks for a request that is what the server answered, and takes it out.
func wantSome(t *testing.T, all map[request][]rundir.TokenRecord, prompt []int32, a completionAnswer) {
	t.Helper()
	if a.Predicted == 0 || a.Evaluated != len(prompt) {
		t.Fatalf("the server says %+v", a)
	}
	want := slices.Concat(prompt, a.Tokens[:a.Predicted-1])[a.Timings.Cached:]
	for id, tokens := range all {
		if id.seq == a.Slot && tokens[0].Pos == int32(a.Timings.Cached) && slices.EqualFunc(tokens, want,
			func(token rundir.TokenRecord, id int32) bool { return token.ID == id }) {
			wantRequest(t, id, tokens, prompt, a)
			delete(all, id)
			return
		}
	}
	t.Errorf("no request of slot %d has the tokens %v", a.Slot, want)
}

// TestServerRestores asks one slot for two long texts in turn. The server keeps what it has computed and restores
// it, by copies of the whole state where a model's memory cannot be cut back, so that little of a prompt is
// evaluated again.
func TestServerRestores(t *testing.T) {
	for _, arch := range archs(t, "llama", "jamba") {
		t.Run(arch, func(t *testing.T) {
			model := synthetic(t, arch, gguf.Q8_0, nil)
			s := serve(t, residual, "-m", model, "-np", "1", "-c", "2048", "-t", "1", "--no-webui")
			var prompts [][]int32
			var answers []completionAnswer
			for i := range 6 {
				text := strings.Repeat([]string{long, "package http\n"}[i%2], 3)
				prompts = append(prompts, s.tokenize(t, text))
				answers = append(answers, s.ask(t, question{prompt: text, slot: -1, n: 3 + i%2}))
			}
			c := s.end(t).sealed(t)
			wantRows(t, c)
			got := c.requests()
			restored := 0
			for i, a := range answers {
				id := request{number: int32(i)}
				wantRequest(t, id, got[id], prompts[i], a)
				restored += a.Timings.Cached
			}
			if len(got) != len(answers) || restored == 0 {
				t.Errorf("%d requests, %d tokens restored; want %d requests, and some tokens", len(got), restored,
					len(answers))
			}
		})
	}
}
