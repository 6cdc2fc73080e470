package resource

import "strings"

// The formulas of LRI. None of them is measured: they take a GPU of 150 TFLOPS for
// granted. They are there only for who asks for them (--tap-legacy-estimates), and what they give is tagged as
// estimated.

// LegacyGFLOP is B-40, the work of an op in GFLOP: a and b are its first two inputs' shapes.
func LegacyGFLOP(op string, a, b [4]int64) float64 {
	n := float64(a[0]) * float64(a[1]) * float64(a[2]) * float64(a[3])
	switch {
	case legacyMatrix(op):
		return 2 * float64(a[0]) * float64(a[1]) * float64(b[1]) / 1e9
	case op == "softmax":
		return 3 * n / 1e9
	case op == "silu", op == "norm":
		return 5 * n / 1e9
	case op == "gelu":
		return 8 * n / 1e9
	case op == "add", op == "mul":
		return n / 1e9
	}
	return 0
}

func legacyMatrix(op string) bool { return strings.Contains(op, "mul_mat") || op == "gemm" }

// LegacyOperation is LRI's name of an op of ggml: "softmax" for SOFT_MAX.
func LegacyOperation(op string) string {
	switch op {
	case "SOFT_MAX":
		return "softmax"
	case "RMS_NORM", "L2_NORM", "GROUP_NORM":
		return "norm"
	case "MUL_MAT_ID":
		return "mul_mat"
	case "CPY", "CONT", "DUP":
		return "copy"
	}
	return strings.ToLower(op)
}

// LegacyBandwidth is B-41, GB/s: what an op moves at, of a tensor's bytes and the compression ratio of its type.
func LegacyBandwidth(op string, bytes int64, ratio float64) float64 {
	base := 450.0
	switch op {
	case "matrix_load", "weight_load", "allocation":
		base = 400
	case "mul_mat", "gemm":
		base = 600
	case "gelu", "silu":
		base = 300
	case "cache":
		base = 800
	case "softmax", "norm":
		base = 350
	}
	return base * ratio * min(max(float64(bytes)/(100<<20), 0.5), 1)
}

// LegacyDurationUS is B-42, microseconds.
func LegacyDurationUS(op string, gflop float64) int64 {
	overhead := int64(35)
	switch {
	case op == "mul_mat", op == "gemm":
		overhead = 50
	case op == "cache":
		overhead = 20
	case op == "softmax", op == "norm":
		overhead = 30
	case op == "gelu", op == "silu":
		overhead = 25
	}
	return max(10, int64(gflop*1000/(150*0.7))+overhead)
}

// LegacyParallelism is B-43, of a number of elements.
func LegacyParallelism(elements int64) int {
	switch {
	case elements > 10_000_000:
		return 64
	case elements > 1_000_000:
		return 32
	case elements > 100_000:
		return 16
	case elements > 10_000:
		return 8
	}
	return 4
}

// LegacySM is B-44, percent of a GPU's multiprocessors.
func LegacySM(op string, elements int64) float64 {
	base := 50.0
	switch {
	case legacyMatrix(op):
		base = 85
	case op == "softmax", op == "norm":
		base = 60
	case op == "gelu", op == "silu":
		base = 70
	}
	return min(95, base*min(1.2, float64(elements)/1e6))
}

// LegacyRatio is B-45, by the name of a ggml type.
func LegacyRatio(kind string) float64 {
	switch strings.ToUpper(kind) {
	case "F32":
		return 1
	case "F16":
		return 2
	case "Q4_0", "Q4_1":
		return 8
	case "Q2_K":
		return 16
	}
	return 4
}

// LegacyMLPPeak is B-47, bytes, of a projection's weights and activations.
func LegacyMLPPeak(op string, weights, activation int64) int64 {
	switch op {
	case "gate_proj", "up_proj":
		return weights + 2*activation
	case "down_proj":
		return weights + activation
	}
	return weights
}

// LegacyHandoff is B-48: bytes, GB/s and memory pressure that B writes for a pair of components.
func LegacyHandoff(from, to string) (bytes int64, gbps float64, pressure string) {
	switch {
	case from == "attention" && to == "mlp":
		return 16384, 500, "medium"
	case from == "mlp" && to == "attention":
		return 16384, 500, "low"
	case from == "input" && to == "attention":
		return 8192, 400, "low"
	}
	return 4096, 300, "low"
}

// LegacyHitRatio is B-49: the share of a cache's lookups that hit.
const LegacyHitRatio = 0.85
