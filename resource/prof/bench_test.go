//go:build linux

package prof_test

import (
	"encoding/json"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/llamatap/llamatap/resource"
	"github.com/llamatap/llamatap/resource/bpf"
	"github.com/llamatap/llamatap/resource/prof"
)

// BenchmarkPrograms measures the cost of the programs by the kernel's own count, of reads that are timed and of reads
// of which one in 100 is. An operation is a read.
func BenchmarkPrograms(b *testing.B) {
	for name, o := range map[string]prof.Options{"timed": {}, "sampled": {SampledOneOf: 100}, "plain": {Plain: true}} {
		b.Run(name, func(b *testing.B) {
			w := start(b, "many", strconv.Itoa(b.N/2+1))
			o.Target = of(w)
			c := open(b, o)
			stats, err := bpf.EnableStats()
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
			b.ResetTimer()
			w.work()
			b.StopTimer()
			programs, err := c.Programs()
			if err != nil {
				b.Fatal(err)
			}
			for _, p := range programs {
				if p.Runs > uint64(b.N) {
					b.ReportMetric(p.PerNS, p.Name+"_ns")
				}
			}
		})
	}
}

// BenchmarkSnapshot measures the cost of a snapshot that reports every call of one process.
func BenchmarkSnapshot(b *testing.B) {
	w := start(b, "calls", b.TempDir()+"/file")
	c := open(b, prof.Options{Target: of(w)})
	w.work()
	out := json.NewEncoder(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		said, err := c.Snapshot(time.Now())
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range bpf.LineOf(said).([]resource.ProfEvent) {
			if err := out.Encode(e); err != nil {
				b.Fatal(err)
			}
		}
	}
}
