//go:build llama

package tap_test

import (
	"testing"

	"github.com/llamatap/llamatap/cgo/tap"
)

func BenchmarkOff(b *testing.B) {
	through, direct := tap.OffCost(max(b.N, 1))
	b.ReportMetric(through-direct, "ns-own/token")
}
