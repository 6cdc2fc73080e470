package mrm_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"github.com/llamatap/llamatap/inspect/memory"
	"github.com/llamatap/llamatap/memtrace"
	"github.com/llamatap/llamatap/mrm"
)

// An experiment is read, its matrix shown; Run would run what has no result yet.
func Example() {
	config, err := mrm.Parse("experiment.yaml", []byte(`
experiment: {name: caches, repetitions: 2}
engine: {n_ctx: 512, kv_type: [f16, q8_0]}
workload: {prompts: ["func main() {"], max_tokens: 32}
`))
	if err != nil {
		log.Fatal(err) // a line for each problem, with file, line and column
	}
	plan, err := mrm.NewPlan(config, mrm.Machine{})
	if err != nil {
		log.Fatal(err)
	}
	for i, cell := range plan.Cells {
		fmt.Printf("%s: a cache of %.0f bytes, %s\n", cell.Name(), plan.Needs[i].Cache.Value, plan.Needs[i].Cache.Tag)
	}
	experiment := &mrm.Experiment{Config: config, Report: func(e mrm.Event) { fmt.Println(e.Cell.Name(), e.Dir) }}
	_ = experiment.Run // (ctx, nil)
	// Output:
	// gopher-6m-Q8_0/p0/c512/f16/r0: a cache of 1572864 bytes, computed
	// gopher-6m-Q8_0/p0/c512/q8_0/r0: a cache of 835584 bytes, computed
	// gopher-6m-Q8_0/p0/c512/f16/r1: a cache of 1572864 bytes, computed
	// gopher-6m-Q8_0/p0/c512/q8_0/r1: a cache of 835584 bytes, computed
}

// What mrm-trace calls TraceLabeller: accesses get the region that lay at their address then.
func ExampleLabel() {
	labeller := mrm.NewLabeller()
	if err := labeller.AddBuffer(memtrace.Buffer{ID: 1, Base: 0x7000_0000, Size: 8192, Host: true,
		Usage: memtrace.UsageWeights, Type: "CPU", From: 100}); err != nil {
		log.Fatal(err)
	}
	if _, err := labeller.Place(memtrace.Tensor{Name: "blk.0.attn_q.weight", Buffer: 1, Offset: 4096,
		Bytes: 4096}); err != nil {
		log.Fatal(err)
	}
	accesses := []memtrace.Access{
		{TimeNS: 200, Addr: 0x7000_1010, Size: 64, Op: memtrace.OpRead},
		{TimeNS: 201, Addr: 0x10, Size: 8, Op: memtrace.OpWrite},
	}
	for access, hit := range mrm.Label(labeller, slices.Values(accesses)) {
		name := "nothing that is known"
		if hit.Region != nil {
			name = hit.Region.Name
		}
		fmt.Printf("%v of %d bytes: %v, %s\n", access.Op, access.Size, hit.Type(), name)
	}
	// Output:
	// read of 64 bytes: weight, blk.0.attn_q.weight
	// write of 8 bytes: other, nothing that is known
}

// What mrm-trace calls compute_all and RunExporter: metrics of a recorded run, and a directory of its form.
func ExampleComputeAll() {
	const recorded = "llamatap-runs/MODEL/RUN" // by llamatap run --tap-ledger --tap-kv
	report, err := mrm.ComputeAll(context.Background(), recorded, mrm.Analysis{})
	if err != nil {
		log.Fatal(err)
	}
	metadata := &memory.Metadata{Cell: memory.Cell{ModelID: "mine"}}
	metadata.Validity = memory.Judge(&metadata.Observer)
	dir, err := mrm.RunExporter{Dir: "results"}.Export(
		mrm.Export{From: recorded, Metadata: metadata, Metrics: report.WriteMetrics})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dir)
}
