//go:build llama

package tap

import "testing"

func BenchmarkOff(b *testing.B) {
	through, direct := offCost(max(b.N, 1))
	b.ReportMetric(through-direct, "ns-own/token")
}
