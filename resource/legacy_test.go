package resource

import (
	"math"
	"testing"
)

// TestLegacyFormulas are values of LRI's own formulas, its documented example among them.
func TestLegacyFormulas(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*math.Abs(want) {
			t.Errorf("%s is %g, want %g", what, got, want)
		}
	}
	a, b := [4]int64{4096, 12288, 1, 1}, [4]int64{4096, 512, 1, 1}
	gflop := LegacyGFLOP("mul_mat", a, b)
	near("work", gflop, 51.539607552)
	near("work of a soft-max", LegacyGFLOP("softmax", a, b), 3*4096*12288/1e9)
	near("work of a GELU", LegacyGFLOP("gelu", a, b), 8*4096*12288/1e9)
	near("work of an addition", LegacyGFLOP("add", a, b), 4096*12288/1e9)
	near("work of a copy", LegacyGFLOP("copy", a, b), 0)
	near("bandwidth of 96 MiB of F16", LegacyBandwidth("allocation", 96<<20, LegacyRatio("f16")), 768)
	near("bandwidth of a little", LegacyBandwidth("cache", 1, 1), 400)
	near("duration", float64(LegacyDurationUS("mul_mat", gflop)), 540)
	near("shortest", float64(LegacyDurationUS("cache", 0)), 20)
	near("parallelism", float64(LegacyParallelism(50_331_648)), 64)
	near("parallelism of little", float64(LegacyParallelism(10_000)), 4)
	near("multiprocessors", LegacySM("mul_mat", 50_331_648), 95)
	near("multiprocessors of half", LegacySM("silu", 500_000), 35)
	near("ratio", LegacyRatio("q2_K"), 16)
	near("ratio of others", LegacyRatio("q5_K"), 4)
	near("peak", float64(LegacyMLPPeak("gate_proj", 10, 3)), 16)
	near("peak below", float64(LegacyMLPPeak("down_proj", 10, 3)), 13)
	if n, gbps, pressure := LegacyHandoff("attention", "mlp"); n != 16384 || gbps != 500 || pressure != "medium" {
		t.Errorf("hand-over %d %g %s", n, gbps, pressure)
	}
	if LegacyOperation("SOFT_MAX") != "softmax" || LegacyOperation("RMS_NORM") != "norm" ||
		LegacyOperation("MUL_MAT") != "mul_mat" || LegacyOperation("ADD") != "add" {
		t.Error("names")
	}
}
