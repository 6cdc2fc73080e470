//go:build linux

package oracle

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/llamatap/llamatap/inspect/resources"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
)

// answered is a request as llama-server's answer has it.
func answered(a *completionAnswer) string {
	end := map[string]string{"limit": "length", "eos": "stop", "word": "stop"}[a.StopType]
	return fmt.Sprintf("slot %d: %d cached, %d computed, %d predicted, %d drafted, %d accepted, %s", a.Slot,
		a.Timings.Cached, a.Timings.Prompt, a.Timings.Predicted, a.Timings.Drafted, a.Timings.Accepted, end)
}

// noted is a request in the same words.
func noted(q *kvcache.Request) string {
	return fmt.Sprintf("slot %d: %d cached, %d computed, %d predicted, %d drafted, %d accepted, %s", q.Seq, q.Cached,
		q.Computed, q.Output, q.Drafted, q.Accepted, kvcache.EndName(q.End))
}

// recordedRequests stops the server and reads the requests that were recorded.
func (s *server) recordedRequests(t *testing.T) []kvcache.Request {
	t.Helper()
	s.stop()
	dirs := runDirs(t, s.out)
	if len(dirs) != 1 {
		t.Fatalf("runs: %v\n%s", dirs, s.stderr.String())
	}
	r, err := resources.OpenRequests(context.Background(), dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	if r.Cut {
		t.Error("the table was not completed")
	}
	return r.All
}

// counters are llama-server's own, by name.
func (s *server) counters(t *testing.T) map[string]int64 {
	t.Helper()
	response, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all := map[string]int64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			all[strings.TrimPrefix(name, "llamacpp:")] = int64(v)
		}
	}
	return all
}

// sixDigits is a count as llama-server prints it: six digits of it.
func sixDigits(n int64) int64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'g', 6, 64), 64)
	return int64(v)
}

// TestRequestRecords asks four slots for completions of all kinds at the same time: prompts whose beginnings are
// shared, answers that end by themselves, by a word and by their limit, streams, grammars, requests that fail and one
// that is cut off. Each request's record is what its answer says, and their sums are what /metrics says.
func TestRequestRecords(t *testing.T) {
	drafts := []string{"--spec-type", "draft-simple", "-md", testenv.Model(t), "-td", "1"}
	for name, flags := range map[string][]string{"plain": nil, "drafts": drafts} {
		t.Run(name, func(t *testing.T) { requestRecords(t, flags) })
	}
}

func requestRecords(t *testing.T, flags []string) {
	to := receive(t)
	s := serve(t, []string{"--tap-requests", "--tap-kv", "--tap-otlp", to.url}, append(flags, "-np", "4", "-c", "4096",
		"-b", "64", "-t", "1",
		"--no-webui", "--metrics")...)
	kinds := []map[string]any{
		{"ignore_eos": false}, {"stop": []string{"\n"}}, {"ignore_eos": true}, {"grammar": "root ::= [a-z ]+"},
		{"ignore_eos": true, "cache_prompt": false}, {"n_probs": 3},
	}
	var lock sync.Mutex
	var answers []completionAnswer
	var all sync.WaitGroup
	for client := range 7 {
		all.Go(func() {
			for i := range 8 {
				prompt := fmt.Sprintf("package p%d\n", client%3) + strings.Repeat("func main() {\n", i%5)
				q := question{prompt: prompt, slot: -1, n: 1 + (7*i+client)%23, options: kinds[(i+client)%len(kinds)]}
				s.tokenize(t, prompt) // it arrives, and waits for no slot
				a := s.ask(t, q)
				lock.Lock()
				answers = append(answers, a)
				lock.Unlock()
			}
		})
	}
	all.Go(func() {
		s.hearSome(t, question{prompt: "var x = ", slot: -1, n: 500, options: map[string]any{"stream": true}}, 3, nil)
	})
	all.Wait()
	failed, err := http.Post(s.url+"/completion", "application/json",
		strings.NewReader(`{"prompt": "`+strings.Repeat("x ", 4000)+`"}`))
	if err != nil || failed.StatusCode != http.StatusBadRequest {
		t.Fatalf("a prompt that is too long: %v %v", failed, err)
	}
	failed.Body.Close()
	counters := s.counters(t)
	records := s.recordedRequests(t)
	wantRecords(t, answers, records)
	wantSpans(t, to, records)
	if counts := s.exportedCounts(t); counts.Spans != int64(len(to.spans)) || counts.Dropped() != 0 ||
		!counts.LastMetrics {
		t.Errorf("%d spans came, %+v", len(to.spans), counts)
	}
	wantSums(t, records, counters, flags != nil)
}

// wantSums compares the sums of records with llama-server's own counters.
func wantSums(t *testing.T, records []kvcache.Request, counters map[string]int64, drafts bool) {
	t.Helper()
	sums := map[string]int64{}
	for i := range records {
		q := &records[i]
		sums["prompt_tokens_total"] += q.Computed
		sums["prompt_tokens_cached_total"] += max(q.Cached, 0)
		sums["tokens_predicted_total"] += q.Output
		sums["spec_decode_num_draft_tokens_total"] += q.Drafted
		sums["spec_decode_num_accepted_tokens_total"] += q.Accepted
	}
	for name, sum := range sums {
		if counters[name] != sixDigits(sum) {
			t.Errorf("%s: llama-server counts %d, the records %d", name, counters[name], sum)
		}
	}
	accepted := sums["spec_decode_num_accepted_tokens_total"] > 0
	if sums["prompt_tokens_cached_total"] == 0 || accepted != drafts {
		t.Errorf("the load has nothing cached, or nothing drafted: %v", sums)
	}
	t.Logf("sums: %v", sums)
}

// wantRecords compares answers with the records of a load, which has one request more that was cut off, and one that
// failed.
func wantRecords(t *testing.T, answers []completionAnswer, records []kvcache.Request) {
	t.Helper()
	ends := map[int64]int{}
	byWords := map[string][]*kvcache.Request{}
	for i := range records {
		q := &records[i]
		ends[q.End]++
		wantOrder(t, q)
		if q.End != kvcache.EndCancelled && q.End != kvcache.EndError {
			byWords[noted(q)] = append(byWords[noted(q)], q)
		}
	}
	if len(records) != len(answers)+2 || ends[kvcache.EndCancelled] != 1 || ends[kvcache.EndError] != 1 ||
		ends[kvcache.EndStop] == 0 || ends[kvcache.EndUnknown] != 0 {
		t.Errorf("%d records of %d requests, by end: %v", len(records), len(answers)+2, ends)
	}
	slices.SortFunc(answers, func(a, b completionAnswer) int {
		return cmp.Compare(a.Timings.PromptMS, b.Timings.PromptMS)
	})
	for _, same := range byWords {
		slices.SortFunc(same, func(a, b *kvcache.Request) int {
			return cmp.Compare(a.FirstNS-a.PromptNS, b.FirstNS-b.PromptNS)
		})
	}
	var prompts, outputs []float64
	for i := range answers {
		a := &answers[i]
		same := byWords[answered(a)]
		if len(same) == 0 {
			t.Errorf("no record is %s", answered(a))
			continue
		}
		q := same[0]
		byWords[answered(a)] = same[1:]
		prompts = append(prompts, math.Abs(a.Timings.PromptMS-float64(q.FirstNS-q.PromptNS)/1e6))
		outputs = append(outputs, math.Abs(a.Timings.PredictedMS-float64(q.LastNS-q.FirstNS)/1e6))
	}
	slices.Sort(prompts)
	slices.Sort(outputs)
	middle := len(prompts) / 2
	t.Logf("differences of prompt_ms: median %.3f, largest %.3f; of predicted_ms: %.3f, %.3f", prompts[middle],
		prompts[len(prompts)-1], outputs[middle], outputs[len(outputs)-1])
	if prompts[middle] > 1 || outputs[middle] > 1 { // a thread may lose its processor between the two clocks
		t.Errorf("prompt_ms differs by %.3f ms in the middle, predicted_ms by %.3f", prompts[middle], outputs[middle])
	}
}

// wantOrder checks what holds of every record.
func wantOrder(t *testing.T, q *kvcache.Request) {
	t.Helper()
	if q.End == kvcache.EndError {
		return
	}
	times := []int64{q.ArrivalNS, q.LaunchNS, q.PromptNS, q.FirstNS, q.LastNS, q.EndNS}
	if !slices.IsSorted(times) || times[0] == 0 {
		t.Errorf("request %d: %v", q.ID, times)
	}
	if q.Prompt != q.Cached+q.Computed || q.Taken < q.Computed || q.SampleNS <= 0 || q.GrammarNS > q.SampleNS {
		t.Errorf("request %d: %+v", q.ID, *q)
	}
}

// TestResponses: requests to /responses end as their answers say, whole or as a stream. Those name stop and length
// alike; records distinguish them where the request has a limit or the model ends.
func TestResponses(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "1", "-c", "2048", "-t", "1", "--no-webui", "--predict", "9",
		"--chat-template", "chatml")
	type response struct {
		ID, Status string
		Usage      struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
		}
	}
	var answers []response
	for _, body := range []map[string]any{
		{"input": "func main", "max_output_tokens": 4}, {"input": "package p"},
		{"input": "func main() {", "max_output_tokens": 3, "stream": true}, {"input": "type T", "stream": true},
		{"input": "a", "max_output_tokens": 8, "logit_bias": [][]any{{s.ending(t), 100}}},
	} {
		body["model"], body["ignore_eos"] = "m", body["logit_bias"] == nil
		var r response
		if body["stream"] == nil {
			s.post(t, "/v1/responses", body, &r)
		} else {
			r = hear[response](t, s, body, 1<<20)
		}
		answers = append(answers, r)
	}
	hear[response](t, s, map[string]any{"model": "m", "input": "cancelled", "stream": true, "max_output_tokens": 1500,
		"ignore_eos": true}, 5)
	s.ask(t, question{prompt: "func", slot: -1, n: 1}) // it gets the slot when the server has noticed that
	records := s.recordedRequests(t)
	if len(records) != len(answers)+2 || records[len(answers)].End != kvcache.EndCancelled {
		t.Fatalf("%d records: %+v", len(records), records[len(records)-1])
	}
	ends := []kvcache.RequestEnd{kvcache.EndLength, kvcache.EndCompleted, kvcache.EndLength, kvcache.EndCompleted,
		kvcache.EndStop}
	for i, a := range answers {
		q := &records[i]
		if a.Status != "completed" || q.End != ends[i] || q.Output != a.Usage.Output || q.Prompt != a.Usage.Input ||
			q.Said.AnswerID != a.ID || a.ID == "" {
			t.Errorf("%+v, answered %+v", *q, a)
		}
	}
}

// ending is the token that ends generation.
func (s *server) ending(t *testing.T) int32 {
	t.Helper()
	answer, err := http.Get(s.url + "/props")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var props struct {
		EOS string `json:"eos_token"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&props); err != nil || props.EOS == "" {
		t.Fatalf("%+v, %v", props, err)
	}
	ids := s.tokenize(t, props.EOS)
	return ids[len(ids)-1]
}

// hear reads a stream of /responses until it is completed, or leaves it after most events.
func hear[T any](t *testing.T, s *server, body map[string]any, most int) T {
	t.Helper()
	var event struct {
		Type     string
		Response T
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ask, err := http.NewRequest(http.MethodPost, s.url+"/v1/responses", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	ask.Close = true // llama-server closes the connection behind a stream, and another request may be on its way
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); most > 0 && lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			most--
		}
	}
	if most > 0 && event.Type != "response.completed" {
		t.Errorf("the stream ends with %+v", event)
	}
	return event.Response
}

// TestRequestInterfaces asks for chats, for several answers to one prompt, for several prompts at once and for a prompt
// that the server has kept in its memory: each answer is a record, and has its end.
func TestRequestInterfaces(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "3", "-c", "3072", "-t", "1", "--no-webui")
	type choice struct {
		FinishReason string `json:"finish_reason"`
	}
	var chat struct {
		Choices []choice
		Usage   struct {
			Prompt int64 `json:"prompt_tokens"`
			Output int64 `json:"completion_tokens"`
		}
	}
	messages := []map[string]string{{"role": "user", "content": "func main"}}
	s.post(t, "/v1/chat/completions", map[string]any{"messages": messages, "max_tokens": 7}, &chat)
	var several, prompts []completionAnswer
	s.post(t, "/completion", map[string]any{"prompt": "package http", "n_predict": 5, "n": 3,
		"ignore_eos": true}, &several)
	s.post(t, "/completion", map[string]any{"prompt": []string{"var x", "type T struct"}, "n_predict": 4,
		"ignore_eos": true}, &prompts)
	first := s.ask(t, question{prompt: long, slot: 0, n: 3})
	s.ask(t, question{prompt: "type T struct {", slot: 0, n: 3})
	again := s.ask(t, question{prompt: long, slot: 0, n: 3})
	if len(chat.Choices) != 1 || len(several) != 3 || len(prompts) != 2 {
		t.Fatalf("%+v, %d answers to one prompt, %d to two", chat, len(several), len(prompts))
	}
	records := s.recordedRequests(t)
	if len(records) != 9 {
		t.Fatalf("%d records of 9 requests", len(records))
	}
	for i := range records {
		wantOrder(t, &records[i])
	}
	end := map[string]int64{"length": kvcache.EndLength, "stop": kvcache.EndStop}[chat.Choices[0].FinishReason]
	if q := &records[0]; q.Prompt != chat.Usage.Prompt || q.Output != chat.Usage.Output || q.End != end {
		t.Errorf("a chat: %+v, want %+v", *q, chat)
	}
	computed := int64(0)
	for i := range records[1:4] {
		q := &records[1+i]
		if computed += q.Computed; q.Prompt != int64(several[0].Evaluated) || q.Output != 5 ||
			q.End != kvcache.EndLength || q.ArrivalNS != records[1].ArrivalNS {
			t.Errorf("one of several answers: %+v", *q)
		}
	}
	if computed != int64(several[0].Timings.Prompt) {
		t.Errorf("%d tokens were computed for several answers, the server says %d", computed, several[0].Timings.Prompt)
	}
	for i := range prompts {
		q := &records[4+i]
		if q.Prompt != int64(prompts[i].Evaluated) || q.Output != 4 || q.End != kvcache.EndLength ||
			q.ArrivalNS != records[4].ArrivalNS {
			t.Errorf("prompt %d of two: %+v", i, *q)
		}
	}
	last := &records[8]
	if noted(&records[6]) != answered(&first) || noted(last) != answered(&again) {
		t.Errorf("%s, then %s; want %s, %s", noted(&records[6]), noted(last), answered(&first), answered(&again))
	}
	if last.Cached == 0 || last.Cause != kvcache.CauseNone && last.Again >= last.Cached {
		t.Errorf("a prompt that was kept: %+v", *last)
	}
}

// TestUnanswered: llama-server closes a connection after a stream, and reads before that what came meanwhile, which
// nobody answers. The next request of that thread has nothing of it.
func TestUnanswered(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "1", "-c", "1024", "-t", "1", "--no-webui")
	const streams, asked = 4, 24 // more than the server has threads
	message := func(path, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	}
	for range streams {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, message("/completion", `{"prompt":"func","n_predict":2,"stream":true}`))
		heard := make([]byte, 16)
		if _, err := io.ReadFull(c, heard); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, message("/apply-template", `{"messages":[],"seed":7}`))
		io.Copy(io.Discard, c)
		c.Close()
	}
	for range asked {
		s.ask(t, question{prompt: "package http", n: 1})
	}
	records := s.recordedRequests(t)
	if len(records) != streams+asked {
		t.Fatalf("%d records, want %d", len(records), streams+asked)
	}
	for i := range records {
		wantOrder(t, &records[i])
		if q := &records[i]; q.Said.Path != "/completion" || i > 0 && q.ArrivalNS < records[i-1].LastNS {
			t.Errorf("request %d, of %s, arrived at %d, before the last token of the one before", i, q.Said.Path,
				q.ArrivalNS)
		}
	}
}

// TestSamplerThrows: a grammar that has ended, of a request that wants no end, throws an exception through the tap.
// Requests beside and after it have records as ever.
func TestSamplerThrows(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "1", "-c", "1024", "-t", "1", "--no-webui")
	body, err := json.Marshal(question{prompt: "func", n: 9, options: map[string]any{"grammar": `root ::= "a"`}}.body())
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(s.url+"/completion", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode == http.StatusOK {
		t.Fatal("the grammar did not fail")
	}
	answer := s.ask(t, question{prompt: "package http", n: 5})
	records := s.recordedRequests(t)
	if len(records) != 2 || records[0].End != kvcache.EndError {
		t.Fatalf("%+v", records)
	}
	if wantOrder(t, &records[1]); noted(&records[1]) != answered(&answer) {
		t.Errorf("%s, want %s", noted(&records[1]), answered(&answer))
	}
}

// TestRequestsOfRestoredSlots: nobody sees which tokens are in a slot that is restored from a file. Requests that find
// them there have their arrivals and ends all the same, also where two have prompts of one length at a time.
func TestRequestsOfRestoredSlots(t *testing.T) {
	s := serve(t, []string{"--tap-requests"}, "-np", "2", "-c", "4096", "-t", "1", "--no-webui", "--cache-ram", "0",
		"--slot-save-path", t.TempDir())
	slot := func(slot int32, action string) {
		t.Helper()
		var answer map[string]any
		s.post(t, fmt.Sprintf("/slots/%d?action=%s", slot, action), map[string]any{"filename": "slot.bin"}, &answer)
	}
	answers := []completionAnswer{s.ask(t, question{prompt: long, slot: 0, n: 3})}
	slot(0, "save")
	slot(1, "restore")
	slot(0, "restore")
	ends := []string{" {", " ("}
	both := make([]completionAnswer, len(ends))
	var group sync.WaitGroup
	for i, end := range ends {
		group.Go(func() { both[i] = s.ask(t, question{prompt: long + end, slot: int32(i), n: 20 + 9*i}) })
	}
	group.Wait()
	answers = append(answers, both...)
	slot(1, "restore")
	streamed := question{prompt: long + " [", slot: 1, n: 5, options: map[string]any{"stream": true}}
	body, err := json.Marshal(streamed.body())
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(s.url+"/completion", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	if response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	records := s.recordedRequests(t)
	if len(records) != len(answers)+1 {
		t.Fatalf("%d records of %d requests", len(records), len(answers)+1)
	}
	for i := range records {
		q := &records[i]
		if q.ArrivalNS == 0 || q.End != kvcache.EndLength || i > 0 && q.Cached < 20 {
			t.Errorf("request %d: arrival %d, end %d, %d cached", i, q.ArrivalNS, q.End, q.Cached)
		}
		wantOrder(t, q)
	}
	for _, a := range answers {
		if !slices.ContainsFunc(records, func(q kvcache.Request) bool { return noted(&q) == answered(&a) }) {
			t.Errorf("no record of %s", answered(&a))
		}
	}
}
