package resources

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/resource"
)

// A script writes the events of a run that never was, with figures that are easy to add up in the head.
type script struct {
	bytes.Buffer
	exec uint64
	ns   int64
	at   int64 // graph entry of the next execution
}

func ptr[T any](v T) *T { return &v }

func (s *script) head(kind resource.Kind) resource.Header {
	s.ns += 1000
	unix := 1_790_000_000_000_000_000 + s.ns
	return resource.Header{Event: kind, Timestamp: resource.Timestamp(unix / 1000), UnixNS: unix, MonoNS: s.ns,
		SessionID: "s", Ctx: ptr(uint32(0)), Source: resource.Computed}
}

func (s *script) put(event any) {
	text, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	s.Write(append(text, '\n'))
}

func (s *script) begin(level resource.Level) {
	s.put(resource.SessionStart{Header: s.head(resource.KindSessionStart), Level: level, Version: resource.Version,
		Roofline: &resource.Roofline{GFLOPsPerS: 100, GBPerS: 10}})
	s.put(resource.TrackingBegin{Header: s.head(resource.KindTrackingBegin)})
	s.put(resource.Allocation{Header: s.head(resource.KindAllocation), ResourceID: "a", BufferID: 1, LayerID: -1,
		AllocationBytes: 8 << 20, MemoryType: "ram",
		BufferType: "CPU", MemoryAddress: "0x1000", LiveBytes: 8 << 20})
}

// op is a timed op of the current execution: n FLOPs in n ns, so that each runs at 1 GFLOP/s, and n bytes.
func (s *script) op(phase, op, name, component string, layer int, n int64) {
	s.put(resource.Compute{Header: s.head(resource.KindCompute), ResourceID: "r", Exec: s.exec, Graph: 1, Operation: op,
		Name: name, ComponentType: component,
		LayerID: layer, Phase: phase, NodeCount: 1, TimeSource: resource.TimeOp, DurationNS: &n,
		LookingNS: ptr(int64(10)), FLOPs: &n,
		BytesRead: ptr(n / 2), BytesWritten: ptr(n / 2), RooflineShare: ptr(0.1)})
}

// graph is an execution of two layers that takes 1000 ns for each token, of which 900 are timed inside.
func (s *script) graph(phase string, tokens int) {
	s.exec++
	n := int64(tokens)
	for layer := range 2 {
		s.op(phase, "MUL_MAT", "Qcur-"+string('0'+rune(layer)), "attention", layer, 100*n)
		s.op(phase, "SOFT_MAX", "kq_soft_max-"+string('0'+rune(layer)), "attention", layer, 50*n)
		s.op(phase, "MUL_MAT", "ffn_up-"+string('0'+rune(layer)), "mlp", layer, 200*n)
		if phase != "setup" {
			s.put(resource.KV{Header: s.head(resource.KindKV), ResourceID: "k", Exec: &s.exec, CacheType: "key_value",
				Cache: "base", LayerID: layer,
				SeqID: ptr(int32(0)), CacheStartPos: ptr(int32(s.exec)),
				CacheEndPos: ptr(int32(s.exec) + int32(tokens)), Cells: tokens, KeyBytes: ptr(64 * n),
				ValueBytes: ptr(64 * n),
				KeyWritten: ptr(64 * n), ValueWritten: ptr(64 * n), CacheOperation: "allocate"})
		}
	}
	s.op(phase, "MUL_MAT", "result_output", "output", -1, 200*n)
	head := s.head(resource.KindGraph)
	head.MonoNS = s.at
	s.put(resource.Graph{Header: head, Exec: s.exec, Graph: 1, Phase: phase, Tokens: tokens, NodeCount: 7,
		FLOPs:     ptr(900 * n),
		BytesRead: ptr(450 * n), BytesWritten: ptr(450 * n), DurationNS: ptr(1000 * n), TimedNS: ptr(900 * n),
		LookingNS: ptr(int64(10)), Looks: 7})
}

// token is a generated token that the next execution takes as input, a time after the execution before it.
func (s *script) token(index int64, text string, latency int64) {
	s.at += latency
	head := s.head(resource.KindOutputToken)
	head.MonoNS = s.at
	event := resource.OutputToken{Header: head, Exec: s.exec + 1, TokenIndex: index, TokenID: int32(index),
		TokenText: &text, Pos: int32(index),
		SeqID: ptr(int32(0)), LatencyNS: &latency}
	s.put(event)
}

func (s *script) end() {
	s.put(resource.Summary{Header: s.head(resource.KindSummary), PeakLiveBytes: 9 << 20, AllocatedBytes: 10 << 20,
		FreedBytes: 1 << 20})
	s.put(resource.SessionEnd{Header: s.head(resource.KindSessionEnd), DurationNS: s.ns})
}

// aRun is a prompt of 4 tokens and three that were generated, the first and the second one slowly.
func aRun() *script {
	s := &script{}
	s.begin(resource.Verbose)
	s.graph("setup", 2)
	s.graph("prefill", 4)
	for i, latency := range []int64{4100, 5000, 1200} {
		s.token(int64(4+i), []string{" a", "\n\"b\"", "c"}[i], latency)
		s.graph("decode", 1)
	}
	s.put(resource.Loss{Header: s.head(resource.KindLoss), Kind: "sampling_state", Cause: "rate", Count: 7})
	s.end()
	return s
}

// directory writes files and returns their folder.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const manifest = `{"version":1}`

const metadata = `{"version":1,"created":"2026-11-21T00:00:00Z","model":{"name":"never"},` +
	`"contexts":[{"ctx":0,"n_ctx":56}],"losses":[],"lossy":false}`
