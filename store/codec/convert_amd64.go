//go:build amd64 && !noasm

package codec

import "golang.org/x/sys/cpu"

var (
	hasAVX2 = cpu.X86.HasAVX2
	hasF16C = cpu.X86.HasAVX2 && cpu.X86.HasF16C
)

// f16AVX2 converts groups × 8 elements, groups ≥ 1.
//
//go:noescape
func f16AVX2(dst, src *byte, groups int) (saturated, underflow uint64)

// bf16AVX2 converts groups × 16 elements, groups ≥ 1.
//
//go:noescape
func bf16AVX2(dst, src *byte, groups int) (saturated, underflow uint64)

// widenF16AVX2 converts groups × 8 elements, groups ≥ 1.
//
//go:noescape
func widenF16AVX2(dst *float32, src *byte, groups int)

// widenF16 converts as many binary16 as dst has room for.
func widenF16(dst []float32, src []byte) {
	groups := len(dst) / 8
	if !hasF16C || groups == 0 {
		widenF16Plain(dst, src)
		return
	}
	_ = src[groups*16-1]
	widenF16AVX2(&dst[0], &src[0], groups)
	widenF16Plain(dst[groups*8:], src[groups*16:])
}

func convertF16(dst, src []byte) Losses {
	groups := len(src) / 32
	if !hasF16C || groups == 0 {
		return f16Plain(dst, src)
	}
	_ = dst[groups*16-1]
	saturated, underflow := f16AVX2(&dst[0], &src[0], groups)
	rest := f16Plain(dst[groups*16:], src[groups*32:])
	return Losses{saturated + rest.Saturated, underflow + rest.Underflow}
}

func convertBF16(dst, src []byte) Losses {
	groups := len(src) / 64
	if !hasAVX2 || groups == 0 {
		return bf16Plain(dst, src)
	}
	_ = dst[groups*32-1]
	saturated, underflow := bf16AVX2(&dst[0], &src[0], groups)
	rest := bf16Plain(dst[groups*32:], src[groups*64:])
	return Losses{saturated + rest.Saturated, underflow + rest.Underflow}
}
