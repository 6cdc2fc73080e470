//go:build !amd64 || noasm

package codec

func convertF16(dst, src []byte) Losses  { return f16Plain(dst, src) }
func convertBF16(dst, src []byte) Losses { return bf16Plain(dst, src) }
func widenF16(dst []float32, src []byte) { widenF16Plain(dst, src) }
