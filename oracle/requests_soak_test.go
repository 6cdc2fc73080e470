//go:build linux

package oracle

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llamatap/llamatap/bench"
	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/kvcache"
)

// soakBlock is how many tokens a hash id of soakTrace stands for: a slot holds 512.
const soakBlock = 32

// soakTrace is half a minute of a load in Mooncake's form: three system prompts, conversations that continue, and
// prompts that nobody shares.
func soakTrace(t *testing.T) []kvcache.TraceRequest {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	var talks [12][]int64
	next, at := int64(1000), 0
	for range 320 {
		at += random.IntN(200)
		var ids []int64
		if k := random.IntN(len(talks) + 3); k < len(talks) {
			if len(talks[k]) == 0 || len(talks[k]) > 8 { // a new conversation with one of the system prompts
				talks[k] = []int64{int64(10 * (k % 3)), int64(10*(k%3) + 1), int64(10*(k%3) + 2)}
			}
			next++
			talks[k] = append(talks[k], next)
			ids = talks[k]
		} else {
			for range 1 + random.IntN(8) {
				next++
				ids = append(ids, next)
			}
		}
		input := len(ids)*soakBlock - random.IntN(soakBlock-1)
		row, err := json.Marshal(map[string]any{"timestamp": at, "input_length": input,
			"output_length": 1 + random.IntN(64), "hash_ids": ids})
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(row, '\n'))
	}
	all, err := kvcache.ReadTrace(strings.NewReader(text.String()), soakBlock, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// soakAnswer is what became of a request.
type soakAnswer struct {
	answer completionAnswer
	whole  bool // it is the whole answer
	most   int  // tokens after which the client leaves; 0: after some time, below 0: it does not
	heard  int  // tokens, where there is a most
}

// soakClient replays the trace again and again. Each round has blocks of its own beside the system prompts.
type soakClient struct {
	server  *server
	client  *http.Client
	mu      sync.Mutex
	answers map[int64]*soakAnswer // by the seed with which they were asked for
	failed  []error
}

// bodyOf is what the trace's request posts in a round.
func bodyOf(q *kvcache.TraceRequest, round int64) map[string]any {
	tokens := make([]int32, 0, q.Input)
	for _, id := range q.IDs {
		if id >= 1000 {
			id += 5000 * round
		}
		random := rand.New(rand.NewPCG(uint64(id), 1))
		for i := 0; i < soakBlock && int64(len(tokens)) < q.Input; i++ {
			tokens = append(tokens, 500+random.Int32N(1000))
		}
	}
	return map[string]any{"prompt": tokens, "n_predict": q.Output, "ignore_eos": true, "temperature": 0}
}

// send asks for completion n. Some are more than the trace's: they run over the end of their slot, must not be cached,
// or sample, so that drafts are rejected. One of eleven is broken off after some tokens, and a few before any came.
func (c *soakClient) send(q *kvcache.TraceRequest, n int64) error {
	body, done := bodyOf(q, n/320), &soakAnswer{most: -1}
	body["seed"] = n
	ctx, leave := context.WithTimeout(context.Background(), testenv.Patience())
	defer leave()
	switch {
	case n%11 == 3:
		done.most = 1 + int(n%17)
		body["n_predict"], body["stream"], body["return_tokens"] = 400, true, true
	case n%29 == 4:
		done.most = 0
		soon := time.AfterFunc(time.Duration(n%40)*time.Millisecond, leave)
		defer soon.Stop()
	case n%41 == 7:
		body["n_predict"], body["n_keep"] = 600, 4
	case n%13 == 5:
		body["cache_prompt"] = false
	case n%3 == 1:
		body["temperature"] = 1
	}
	err := c.post(ctx, body, done)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[n] = done
	if done.most == 0 && !done.whole {
		return nil
	}
	return err
}

// post asks for a completion and reads the answer, or as much of it as is wanted.
func (c *soakClient) post(ctx context.Context, body map[string]any, done *soakAnswer) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.url+"/completion", bytes.NewReader(text))
	if err != nil {
		return err
	}
	ask.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(ask)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("request %v: %s", body["seed"], response.Status)
	}
	if done.most <= 0 {
		err := json.NewDecoder(response.Body).Decode(&done.answer)
		done.whole = err == nil
		return err
	}
	for lines := bufio.NewScanner(response.Body); done.heard < done.most && lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var part completionAnswer
			if err := json.Unmarshal([]byte(data), &part); err != nil {
				return err
			}
			done.heard += len(part.Tokens)
		}
	}
	return nil
}

// replay sends the trace at its times until then, at most a dozen requests at once, and returns how many they were.
func (c *soakClient) replay(trace []kvcache.TraceRequest, end time.Time) (n int64) {
	var all sync.WaitGroup
	room := make(chan struct{}, 12)
	for begin := time.Now(); time.Now().Before(end); {
		for i := range trace {
			time.Sleep(time.Until(begin.Add(time.Duration(trace[i].TimeMS * 1e6))))
			room <- struct{}{}
			number := n
			all.Go(func() {
				if err := c.send(&trace[i], number); err != nil {
					c.mu.Lock()
					c.failed = append(c.failed, err)
					c.mu.Unlock()
				}
				<-room
			})
			if n++; time.Now().After(end) {
				break
			}
		}
		begin = time.Now()
	}
	all.Wait()
	return n
}

// TestRequestSoak replays a load with shared prefixes on four slots that draft, shift and lose clients, for SOAK: every
// record is what llama-server answered, their sums are its own counters, and neither process grows.
func TestRequestSoak(t *testing.T) {
	testenv.Slow(t)
	length := soakTime(t, 30*time.Minute)
	s := serve(t, []string{"--tap-requests", "--tap-kv"}, "-np", "4", "-c", "2048", "-t", "1", "--no-webui",
		"--metrics",
		"--context-shift", "--cache-ram", "16", "--spec-type", "draft-simple", "-md", testenv.Model(t), "-td", "1")
	c := &soakClient{server: s, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 12}},
		answers: map[int64]*soakAnswer{}}
	trace, done, sent := soakTrace(t), make(chan struct{}), int64(0)
	go func() { sent = c.replay(trace, time.Now().Add(length)); close(done) }()
	wantFlat(t, done, length, map[string]int{"collector": s.cmd.Process.Pid,
		"server": childrenOf(s.cmd.Process.Pid)[0]}, s.out)
	if len(c.failed) > 0 {
		t.Errorf("%d requests failed, such as: %v", len(c.failed), c.failed[0])
	}
	testenv.Until(t, "llama-server is idle", func() bool { return s.counters(t)["requests_processing"] == 0 })
	counters := s.counters(t)
	records := s.recordedRequests(t)
	t.Logf("%d requests sent in %v, %d recorded", sent, length, len(records))
	c.wantRecords(t, records)
	wantSums(t, records, counters, true)
	files, _ := filepath.Glob(filepath.Join(runDirs(t, s.out)[0], "*"))
	if most := 24 + 2*int(length/(30*time.Second)+1); len(files) > most {
		t.Errorf("%d files, want at most %d: %v", len(files), most, files)
	}
}

// wantRecords finds the record of each request by its seed.
func (c *soakClient) wantRecords(t *testing.T, records []kvcache.Request) {
	t.Helper()
	bySeed := map[int64]*kvcache.Request{}
	ends := map[string]int{}
	shifts := int64(0)
	for i := range records {
		q := &records[i]
		var set struct{ Seed *int64 }
		if err := json.Unmarshal([]byte(q.Said.Settings), &set); err != nil || set.Seed == nil ||
			bySeed[*set.Seed] != nil {
			t.Fatalf("record %d has no seed, or another one's: %+v", i, *q)
		}
		bySeed[*set.Seed] = q
		ends[kvcache.EndName(q.End)]++
		shifts += q.Shifts
	}
	wrong, whole := 0, 0
	var prompts, outputs []float64
	for n, a := range c.answers {
		q := bySeed[n]
		switch {
		case q == nil && (a.whole || a.heard > 0):
			wrong++
			t.Errorf("request %d has no record: %+v", n, *a)
		case q == nil: // it was broken off before it got a slot
		case a.whole:
			whole++
			wantOrder(t, q)
			if got, want := noted(q), answered(&a.answer); got != want {
				wrong++
				t.Errorf("request %d: %s, the server says %s", n, got, want)
			}
			prompts = append(prompts, abs(a.answer.Timings.PromptMS-float64(q.FirstNS-q.PromptNS)/1e6))
			outputs = append(outputs, abs(a.answer.Timings.PredictedMS-float64(q.LastNS-q.FirstNS)/1e6))
		case q.Output < int64(a.heard):
			wrong++
			t.Errorf("request %d: %s, after %d tokens were heard", n, noted(q), a.heard)
		}
		if wrong > 20 {
			t.Fatal("and more")
		}
	}
	slices.Sort(prompts)
	slices.Sort(outputs)
	t.Logf("%d answers are their records; ends %v, %d context shifts", whole-wrong, ends, shifts)
	t.Logf("differences of prompt_ms: median %.3f, p99 %.3f, largest %.3f; of predicted_ms: %.3f, %.3f, %.3f",
		prompts[whole/2], prompts[whole*99/100], prompts[whole-1], outputs[whole/2], outputs[whole*99/100],
		outputs[whole-1])
	if prompts[whole/2] > 1 || outputs[whole/2] > 1 || shifts == 0 || ends["cancelled"] == 0 || ends["length"] == 0 {
		t.Error("times differ, or the load has no shifts, or nothing was cancelled")
	}
}

func abs(v float64) float64 { return max(v, -v) }

// TestRequestRatio prints tokens per second of a llama-server whose requests are recorded, as a ratio of one that is
// not, in alternation: pairs until the ratio is known to reach 0.995 or not, at most for RATIO (3m). It judges nothing:
// what a machine with other work measures is no property of the program.
func TestRequestRatio(t *testing.T) {
	testenv.Slow(t)
	limit := 3 * time.Minute
	if text := os.Getenv("RATIO"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	model := filepath.Join(t.TempDir(), "125m.gguf")
	llamatap(t, "synth", "-o", model, "--params", "125m", "--type", "q8_0", "--quiet").good(t)
	round := map[string]int64{}
	side := func(name, out string, line ...string) bench.Side {
		s := serveBy(t, out, append(line, "-m", model, "-np", "4", "-c", "4096", "-t", fmt.Sprint(runtime.NumCPU()),
			"--no-webui")...)
		c := &soakClient{server: s, client: http.DefaultClient, answers: map[int64]*soakAnswer{}}
		return bench.Side{Name: name, Run: func(context.Context) (bench.Sample, error) {
			round[name]++
			tokens, took, err := c.burst(round[name])
			return bench.Sample{Decode: float64(tokens) / took.Seconds()}, err
		}}
	}
	out := t.TempDir()
	p := bench.Pair{Base: side("untapped", "", testenv.NeedTool(t, "llama-server").Path),
		Test:  side("--tap-requests", out, testenv.NeedBinary(t), "llama-server", "--tap-out", out, "--tap-requests"),
		Gates: []bench.Gate{{Name: "tokens/s", AtLeast: 0.995, Of: bench.Decode}}}
	o, err := p.Run(t.Context(), bench.Limits{MinPairs: 12, Time: limit}, rand.New(rand.NewPCG(5, 6)),
		func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ratio of tokens/s: %v of %d pairs: %s", o.Ratios[0], len(o.Base), o.Ratios[0].AtLeast(0.995))
}

// burst lets four clients ask three times each, with a shared prefix, and returns how many tokens were chosen, and the
// time that took.
func (c *soakClient) burst(round int64) (tokens int, took time.Duration, err error) {
	begin := time.Now()
	var all sync.WaitGroup
	for client := range int64(4) {
		all.Go(func() {
			for i := range int64(3) {
				q := kvcache.TraceRequest{Input: 5 * soakBlock, Output: 24, IDs: []int64{0, 1, 2, 3,
					1000*round + 10*i + client}}
				done := &soakAnswer{most: -1}
				failed := c.post(context.Background(), bodyOf(&q, 0), done)
				c.mu.Lock()
				if tokens += done.answer.Predicted; failed != nil {
					err = failed
				}
				c.mu.Unlock()
			}
		})
	}
	all.Wait()
	return tokens, time.Since(begin), err
}
