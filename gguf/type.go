package gguf

import (
	"fmt"
	"strings"
)

// Type is the storage type of a tensor, numbered as ggml numbers it.
type Type uint32

// Tensor types of ggml 0.27.0. Numbers that are missing belong to types that ggml has removed.
const (
	F32    Type = 0
	F16    Type = 1
	Q4_0   Type = 2
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q8_0   Type = 8
	Q8_1   Type = 9
	Q2_K   Type = 10
	Q3_K   Type = 11
	Q4_K   Type = 12
	Q5_K   Type = 13
	Q6_K   Type = 14
	Q8_K   Type = 15
	IQ2XXS Type = 16
	IQ2XS  Type = 17
	IQ3XXS Type = 18
	IQ1S   Type = 19
	IQ4NL  Type = 20
	IQ3S   Type = 21
	IQ2S   Type = 22
	IQ4XS  Type = 23
	I8     Type = 24
	I16    Type = 25
	I32    Type = 26
	I64    Type = 27
	F64    Type = 28
	IQ1M   Type = 29
	BF16   Type = 30
	TQ1_0  Type = 34
	TQ2_0  Type = 35
	MXFP4  Type = 39
	NVFP4  Type = 40
	Q1_0   Type = 41
	Q2_0   Type = 42
)

// typeTraits says how a tensor type lies on disk: values per block and bytes per block.
type typeTraits struct {
	name   string
	values uint32
	bytes  uint32
}

var traits = [...]typeTraits{
	F32: {"f32", 1, 4}, F16: {"f16", 1, 2}, F64: {"f64", 1, 8}, BF16: {"bf16", 1, 2},
	I8: {"i8", 1, 1}, I16: {"i16", 1, 2}, I32: {"i32", 1, 4}, I64: {"i64", 1, 8},
	Q4_0: {"q4_0", 32, 18}, Q4_1: {"q4_1", 32, 20}, Q5_0: {"q5_0", 32, 22}, Q5_1: {"q5_1", 32, 24},
	Q8_0: {"q8_0", 32, 34}, Q8_1: {"q8_1", 32, 36},
	Q2_K: {"q2_K", 256, 84}, Q3_K: {"q3_K", 256, 110}, Q4_K: {"q4_K", 256, 144}, Q5_K: {"q5_K", 256, 176},
	Q6_K: {"q6_K", 256, 210}, Q8_K: {"q8_K", 256, 292},
	IQ2XXS: {"iq2_xxs", 256, 66}, IQ2XS: {"iq2_xs", 256, 74}, IQ2S: {"iq2_s", 256, 82},
	IQ3XXS: {"iq3_xxs", 256, 98}, IQ3S: {"iq3_s", 256, 110},
	IQ1S: {"iq1_s", 256, 50}, IQ1M: {"iq1_m", 256, 56}, IQ4NL: {"iq4_nl", 32, 18}, IQ4XS: {"iq4_xs", 256, 136},
	TQ1_0: {"tq1_0", 256, 54}, TQ2_0: {"tq2_0", 256, 66},
	MXFP4: {"mxfp4", 32, 17}, NVFP4: {"nvfp4", 64, 36}, Q1_0: {"q1_0", 128, 18}, Q2_0: {"q2_0", 64, 18},
}

// Known reports whether ggml has this type.
func (t Type) Known() bool { return int64(t) < int64(len(traits)) && traits[t].values != 0 }

// String is ggml's name of the type, such as "q8_0", or "type 99" for a number that ggml does not know.
func (t Type) String() string {
	if !t.Known() {
		return fmt.Sprintf("type %d", uint32(t))
	}
	return traits[t].name
}

// BlockValues is the number of values that are stored together; a row is a whole number of blocks. 0 for an unknown
// type.
func (t Type) BlockValues() int64 {
	if !t.Known() {
		return 0
	}
	return int64(traits[t].values)
}

// BlockBytes is the size of one block in bytes. 0 for an unknown type.
func (t Type) BlockBytes() int64 {
	if !t.Known() {
		return 0
	}
	return int64(traits[t].bytes)
}

// RowBytes is the size in bytes of a row of n values. It fails where n is not a whole number of blocks.
func (t Type) RowBytes(n int64) (int64, error) {
	if !t.Known() {
		return 0, fmt.Errorf("unknown tensor %v", t)
	}
	if n < 0 || n%t.BlockValues() != 0 {
		return 0, fmt.Errorf("a row of %d values is not a whole number of %v blocks of %d", n, t, t.BlockValues())
	}
	return n / t.BlockValues() * t.BlockBytes(), nil
}

// ParseType finds a type by its ggml name, in either case.
func ParseType(name string) (Type, error) {
	for i := range traits {
		if Type(i).Known() && strings.EqualFold(traits[i].name, name) {
			return Type(i), nil
		}
	}
	return 0, fmt.Errorf("unknown tensor type %q", name)
}
