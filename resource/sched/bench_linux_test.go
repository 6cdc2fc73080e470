package sched

import (
	"testing"
	"time"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/resource/bpf"
)

// BenchmarkPrograms measures the cost of the programs by the kernel's own count, while threads alternate, sleep and
// fault. An operation is 10 ms.
func BenchmarkPrograms(b *testing.B) {
	testenv.NeedBPF(b)
	for name, o := range hooks {
		b.Run(name, func(b *testing.B) {
			j := started(b, 4, "ping", "pong", "doze", "touch")
			o.Target = j.target()
			stats, err := bpf.EnableStats()
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
			c := opened(b, o)
			j.send("g")
			for b.Loop() {
				time.Sleep(10 * time.Millisecond)
			}
			programs, err := c.Programs()
			if err != nil {
				b.Fatal(err)
			}
			for _, p := range programs {
				if p.Runs > 0 {
					b.ReportMetric(p.PerNS, p.Name+"_ns")
				}
			}
		})
	}
}

// BenchmarkSnapshot measures the cost of a snapshot of a process with 33 threads.
func BenchmarkSnapshot(b *testing.B) {
	testenv.NeedBPF(b)
	for name, o := range sources {
		b.Run(name, func(b *testing.B) {
			kinds := make([]string, 32)
			for i := range kinds {
				kinds[i] = "doze"
			}
			j := started(b, len(kinds), kinds...)
			o.Target = j.target()
			c := opened(b, o)
			j.send("g")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Snapshot(time.Now()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
