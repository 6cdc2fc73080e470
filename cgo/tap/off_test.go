package tap

import "testing"

func BenchmarkOff(b *testing.B) {
	through, direct := OffCost(max(b.N, 1))
	if through == 0 {
		b.Skip("slow: runs in make nightly; built without llama.cpp")
	}
	b.ReportMetric(through-direct, "ns-own/token")
}
