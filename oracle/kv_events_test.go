//go:build linux

package oracle

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// subscriber is a Python program that follows KV events.
type subscriber struct {
	in  io.Writer
	out *bufio.Scanner
}

// view is what it knows.
type view struct {
	Leading, Held, Published, Replayed, Cleared, Removed, Shared int
}

const eventBlock = 16

// subscribe makes a server publish its events, and somebody follow them.
func subscribe(t *testing.T, form string, args ...string) (*server, *subscriber) {
	t.Helper()
	python := testenv.NeedPython(t, "zmq", "msgspec", "cbor2")
	events, replay := "tcp://127.0.0.1:"+freePort(t), "tcp://127.0.0.1:"+freePort(t)
	s := serve(t, []string{"--tap-requests", "--tap-kv-events", events, "--tap-kv-events-replay", replay,
		"--tap-kv-events-topic", "kv@pod@model", "--tap-kv-events-seed", "42", "--tap-kv-events-format", form,
		"--tap-kv-events-block", fmt.Sprint(eventBlock)}, args...)
	cmd := exec.Command(python, filepath.Join(testenv.Root(t), "oracle", "testdata", "kv_events.py"), events, replay,
		"kv@pod@model", form, "42", fmt.Sprint(eventBlock))
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sub := &subscriber{in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the subscriber: %v\n%s", err, said.String())
		}
	})
	if !sub.out.Scan() {
		t.Fatal("the subscriber does not begin")
	}
	return s, sub
}

// about asks how many blocks of a prompt the server holds.
func (u *subscriber) about(t *testing.T, prompt []int32) (a view) {
	t.Helper()
	line, err := json.Marshal(prompt)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(u.in, "%s\n", line)
	if !u.out.Scan() {
		t.Fatal("the subscriber ended")
	}
	if err := json.Unmarshal(u.out.Bytes(), &a); err != nil {
		t.Fatalf("%q: %v", u.out.Text(), err)
	}
	return a
}

// TestKVEvents asks a server for prompts that share beginnings, on two slots, over the end of a context, and after its
// slots were erased. Before each request a subscriber that reads events as vLLM's are read knows how many blocks of its
// prompt the server will find in its cache.
func TestKVEvents(t *testing.T) {
	for _, form := range []string{"map", "array"} {
		t.Run(form, func(t *testing.T) { kvEvents(t, form) })
	}
}

func kvEvents(t *testing.T, form string) {
	const room = 256
	s, sub := subscribe(t, form, "-np", "2", "-c", fmt.Sprint(2*room), "-b", "64", "-t", "1", "--no-webui",
		"--context-shift", "--cache-ram", "0", "--slot-save-path", t.TempDir())
	tokens := func(from int32, n int) (list []int32) {
		for i := range int32(n) {
			list = append(list, 300+(from*37+i*11)%1000)
		}
		return list
	}
	a, b := tokens(1, 100), tokens(2, 70)
	reused := 0
	for i, c := range []struct {
		prompt []int32
		n      int
	}{
		{a, 20}, {b, 3}, {a, 3}, {slices.Concat(a[:60], b[:30]), 30}, {a, 40}, {slices.Concat(b[:64], a), 7},
		{a, room}, {a, 2}, {b[:48], 25}, {slices.Concat(b[:48], a[:7]), 9},
	} {
		before := sub.about(t, c.prompt)
		var answer completionAnswer
		s.post(t, "/completion", map[string]any{"prompt": c.prompt, "n_predict": c.n, "ignore_eos": true, "n_keep": 40,
			"temperature": 0, "cache_prompt": true, "return_tokens": true}, &answer)
		if answer.Predicted != c.n {
			t.Fatalf("request %d: %+v", i, answer)
		}
		// the last token of a prompt is always computed
		want := min(before.Leading*eventBlock, len(c.prompt)-1) / eventBlock
		if got := answer.Timings.Cached / eventBlock; got != want {
			t.Errorf("request %d: the server had %d tokens, %d blocks of a prompt of %d; events say %d", i,
				answer.Timings.Cached, got, len(c.prompt), want)
		}
		reused += want
		if len(c.prompt)+c.n > room { // shifted: what it holds begins with what it keeps
			testenv.Until(t, "the blocks of the context before its shift are gone", func() bool {
				return sub.about(t, c.prompt).Leading == 40/eventBlock
			})
			continue
		}
		all := slices.Concat(c.prompt, answer.Tokens[:c.n-1]) // the last one is not decoded
		testenv.Until(t, "the request's blocks are published", func() bool {
			return sub.about(t, all).Leading == len(all)/eventBlock
		})
	}
	if reused < 12 {
		t.Errorf("%d blocks were reused: the load proves little", reused)
	}
	for slot := range 2 {
		response, err := http.Post(fmt.Sprintf("%s/slots/%d?action=erase", s.url, slot), "application/json", nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("erase slot %d: %v, %+v", slot, err, response)
		}
		response.Body.Close()
	}
	var end view
	testenv.Until(t, "nothing is held", func() bool { end = sub.about(t, a); return end.Held == 0 })
	if end.Published == 0 || end.Cleared == 0 || end.Removed == 0 || end.Shared == 0 {
		t.Errorf("%+v", end)
	}
	s.stop()
	said := s.stderr.String()
	want := fmt.Sprintf("published %d batches of KV events at tcp://", end.Published+end.Replayed)
	said = strings.Join(strings.Fields(said), " ") // of columns
	if !strings.Contains(said, want) || strings.Contains(said, "subscribers lost") {
		t.Errorf("the summary lacks %q, or some were lost:\n%s", want, said[max(len(said)-500, 0):])
	}
}
