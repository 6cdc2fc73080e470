//go:build linux

package oracle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/store/rundir"
)

// segmentTokens are the ids of the tokens of every request in the segments that are there, and all their tokens.
func segmentTokens(t *testing.T, dir string) (ids map[request][]int32, n int64) {
	t.Helper()
	names, err := rundir.Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	ids = map[request][]int32{}
	for _, name := range names {
		for _, token := range tokensOf(t, filepath.Join(dir, name)) {
			id := request{token.Ctx, *token.Seq, *token.Request}
			ids[id], n = append(ids[id], token.ID), n+1
		}
	}
	return ids, n
}

// decoded are the tokens of a request that were computed: its prompt but for what was cached, and what was chosen but
// for the last.
func decoded(prompt []int32, a completionAnswer) []int32 {
	return slices.Concat(prompt, a.Tokens[:a.Predicted-1])[a.Timings.Cached:]
}

// TestRequestSample: of a mixed load on two slots those requests stay that the rules name, worked out here from their
// rows; of them every token is there that the server answered. What is there and what was given back are all tokens.
func TestRequestSample(t *testing.T) {
	const slow = 800e6
	s := serve(t, []string{"--tap-requests", "--tap-tensors", "l_out*", "--tap-codec", "none", "--tap-segment", "64K",
		"--tap-request-sample", "1/7,slower:800ms"}, "-np", "2", "-c", "4096", "-t", "1", "--no-webui")
	counts := [2][]int{{4, 6, 800, 5, 4}, {8, 3, 5, 7, 4, 6, 9, 5}}
	var answers [2][]completionAnswer
	var prompts [2][][]int32
	ask := func(slot, i, n int) {
		q := question{prompt: fmt.Sprintf("package p%d_%d\n", slot, i), slot: int32(slot), n: n}
		prompts[slot] = append(prompts[slot], s.tokenize(t, q.prompt))
		answers[slot] = append(answers[slot], s.ask(t, q))
	}
	var all sync.WaitGroup
	all.Go(func() { // the long request takes longer than the rule says on every machine
		time.Sleep(100 * time.Millisecond)
		s.signalProgram(t, syscall.SIGSTOP)
		time.Sleep(slow)
		s.signalProgram(t, syscall.SIGCONT)
	})
	for slot := range 2 {
		all.Go(func() {
			for i, n := range counts[slot] {
				ask(slot, i, n)
			}
		})
	}
	all.Wait()
	dir, n := runDirs(t, s.out)[0], int64(13)
	for by := time.Now().Add(testenv.Patience()); n < 37 || !hasGap(t, dir); n++ { // nothing long runs meanwhile
		if time.Now().After(by) {
			t.Fatalf("no segment was given back while %d requests were answered", n)
		}
		ask(1, int(n), 20)
	}
	records := s.recordedRequests(t)
	m, v := metadata(t, dir), verifyJSON(t, dir)
	ids, left := segmentTokens(t, dir)
	kept, next := map[string]int64{}, [2]int{}
	for i := range records {
		q := &records[i]
		want := "none"
		switch {
		case q.ID%7 == 0:
			want = "1/7"
		case q.EndNS-q.ArrivalNS >= slow:
			want = "slower:800ms"
		}
		if q.ArrivalNS == 0 || q.KeptBy != want {
			t.Errorf("request %d is kept by %q, want %q", q.ID, q.KeptBy, want)
		}
		at := next[q.Seq]
		next[q.Seq]++
		if want == "none" {
			continue
		}
		kept[want]++
		wantIDs(t, fmt.Sprintf("request %d", q.ID), ids[request{uint32(q.Ctx), int32(q.Seq), int32(q.Number)}],
			decoded(prompts[q.Seq][at], answers[q.Seq][at]))
	}
	var use struct {
		Requests int64
		Kept     map[string]int64
		Segments int
		Tokens   int64
		Packets  uint64
		Bytes    int64
	}
	if err := json.Unmarshal(m.Extra["request_sample"], &use); err != nil {
		t.Fatal(err)
	}
	a, r := m.Account, m.Rotated
	if !v.OK || int64(len(records)) != n || use.Requests != n || fmt.Sprint(use.Kept) != fmt.Sprint(kept) ||
		kept["slower:800ms"] == 0 || kept["1/7"] != (n+6)/7 {
		t.Errorf("%+v: %d requests, kept %v; %+v", v, len(records), kept, use)
	}
	if use.Segments == 0 || r == nil || use.Segments != r.Segments || use.Tokens != r.Tokens || use.Bytes != r.Bytes ||
		use.Packets != *r.Packets || r.Causes["request_sample"] != r.Segments ||
		left+r.Tokens != m.Tokens.Prompt+m.Tokens.Generated ||
		a.Captured.Packets+a.Rotated.Packets != a.Selected.Packets || a.Captured.Packets != uint64(v.Packets) {
		t.Errorf("%d tokens are there of %+v; %+v, %+v, %+v", left, m.Tokens, use, r, a)
	}
	none := int64(len(records)) - kept["1/7"] - kept["slower:800ms"]
	if text := llamatap(t, "requests", dir).good(t).stdout; !strings.Contains(text,
		fmt.Sprintf("%d of them are not of the sample", none)) {
		t.Errorf("llamatap requests does not say that %d requests are not kept:\n%s", none, text)
	}
}

// TestRequestSampleKilled kills server and collector in the middle of a request: of every request of the sample whose
// segments were sealed, all tokens are there after the repair, which counts what had been given back.
func TestRequestSampleKilled(t *testing.T) {
	s := serve(t, []string{"--tap-requests", "--tap-tensors", "l_out*", "--tap-codec", "none", "--tap-segment", "64K",
		"--tap-request-sample", "1/5"}, "-np", "1", "-c", "4096", "-t", "1", "--no-webui")
	const sealed = 11 // requests whose tokens are in sealed segments before the kill
	var want [][]int32
	sum, dir := int64(0), ""
	for by := time.Now().Add(testenv.Patience()); len(want) < sealed || !sealedFrom(t, dir, sum) || !hasGap(t, dir); {
		if time.Now().After(by) {
			t.Fatalf("no segment after token %d was sealed, or none was given back", sum)
		}
		q := question{prompt: fmt.Sprintf("package p%d\n", len(want)), n: 20}
		prompt := s.tokenize(t, q.prompt)
		want = append(want, decoded(prompt, s.ask(t, q)))
		if len(want) <= sealed {
			sum += int64(len(want[len(want)-1]))
		}
		dir = runDirs(t, s.out)[0]
	}
	long := question{prompt: "func main", n: 2000, options: map[string]any{"stream": true}}
	s.hearSome(t, long, 1, func() {
		children := s.programs(t)
		s.cmd.Process.Kill()
		for _, child := range children {
			syscall.Kill(child, syscall.SIGKILL)
		}
	})
	<-s.exited
	llamatap(t, "verify", "--repair", dir)
	v, m := verifyJSON(t, dir), metadata(t, dir)
	if !v.Sealed || slices.Contains(v.kinds(), "damage") {
		t.Errorf("%+v", v)
	}
	ids, left := segmentTokens(t, dir)
	for i := 0; i < sealed; i += 5 {
		wantIDs(t, fmt.Sprintf("request %d", i), ids[request{0, 0, int32(i)}], want[i])
	}
	names, _ := rundir.Segments(dir)
	for i := len(names) - 1; i >= 0; i-- { // the newest one may be empty
		if tokens := tokensOf(t, filepath.Join(dir, names[i])); len(tokens) > 0 {
			if m.Rotated == nil || m.Rotated.Segments == 0 ||
				left+m.Rotated.Tokens != int64(tokens[len(tokens)-1].Index)+1 {
				t.Errorf("%d tokens are there and %+v were given back, up to token %d", left, m.Rotated,
					tokens[len(tokens)-1].Index)
			}
			return
		}
	}
	t.Error("no segment has tokens")
}

// programs are the processes that the collector started: llama-server.
func (s *server) programs(t *testing.T) (pids []int) {
	t.Helper()
	var children []byte
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.cmd.Process.Pid))
	for _, path := range tasks { // whichever thread started it
		more, _ := os.ReadFile(path)
		children = append(append(children, ' '), more...)
	}
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil && !slices.Contains(pids, n) {
			pids = append(pids, n)
		}
	}
	if len(pids) == 0 {
		t.Error("the collector has no child")
	}
	return pids
}

// signalProgram sends llama-server a signal.
func (s *server) signalProgram(t *testing.T, signal syscall.Signal) {
	t.Helper()
	for _, pid := range s.programs(t) {
		syscall.Kill(pid, signal)
	}
}

// hasGap reports whether a segment was given back that others follow.
func hasGap(t *testing.T, dir string) bool {
	t.Helper()
	names, err := rundir.Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(names) > 0 && names[len(names)-1] != rundir.SegmentName(len(names))
}

// sealedFrom reports whether a segment is sealed that begins at a token or later.
func sealedFrom(t *testing.T, dir string, token int64) bool {
	t.Helper()
	names, err := rundir.Segments(dir)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		m, err := rundir.ReadMetadata(filepath.Join(dir, name))
		return err == nil && m.Segment != nil && m.Segment.FirstToken != nil && *m.Segment.FirstToken >= token
	})
}
