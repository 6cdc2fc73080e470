package resource

import (
	"fmt"
	"slices"
)

// formulas has every op of ggml that llama.cpp's graphs of language models hold, and most others.
var formulas = map[string]Formula{
	"MUL_MAT": {"2·k per element of the output, k being the length of a row of src[0]; broadcast over its " +
		"dimensions 2 and 3", func(o *Op) int64 { return 2 * o.Src[0].NE[0] * o.Out.Elements() }},
	"MUL_MAT_ID": {"2·k per element of the output, which has a row per token and chosen expert",
		func(o *Op) int64 { return 2 * o.Src[0].NE[0] * o.Out.Elements() }},
	"OUT_PROD": {"2·k per element of the output, k being the number of rows of src[0]",
		func(o *Op) int64 { return 2 * o.Src[0].NE[1] * o.Out.Elements() }},
	"FLASH_ATTN_EXT": {"per query, head and cell: 2·dk (scores), 2·dv (sum of values), 1 (scale), 4 (soft-max), 2 " +
		"with a mask, 2 with a soft cap; per query and head dv + 1 (division), 4 with sinks", flashAttention},
	"SOFT_MAX": {"per element 6 (scale, largest, difference, exp, sum, quotient), 2 more with a mask; per row " +
		"1, 4 more with sinks", softMax},

	"RMS_NORM": {"3 per element, 4 per row", func(o *Op) int64 { return 3*o.Out.Elements() + 4*o.Out.Rows() }},
	"NORM": {"5 per element (sum, difference, variance 2, scale), 5 per row",
		func(o *Op) int64 { return 5*o.Out.Elements() + 5*o.Out.Rows() }},
	"L2_NORM": {"3 per element, 3 per row", func(o *Op) int64 { return 3*o.Out.Elements() + 3*o.Out.Rows() }},
	"GROUP_NORM": {"5 per element, 5 per group", func(o *Op) int64 {
		return 5*o.Out.Elements() + 5*int64(o.Params[0])*o.Out.NE[3]
	}},

	"ROPE": {"6 per pair of values that is rotated (two per element of the first n_dims of a row and 2 " +
		"additions); the sines and cosines, made once per position, are not counted", rope},
	"ROPE_BACK": {"as ROPE", rope},

	"SSM_CONV": {"2·k per element of the output, k being the width of the kernel",
		func(o *Op) int64 { return 2 * o.Src[1].NE[0] * o.Out.Elements() }},
	"SSM_SCAN": {"per token and head 3 (soft-plus), 2 where A is one value per head (decay); per value of " +
		"it 1; per state of that 5, or 7 where A is one value per state", ssmScan},
	"RWKV_WKV6": {"7 per token, head and element of the square state",
		func(o *Op) int64 { return 7 * o.Src[0].NE[0] * o.Src[0].NE[0] * o.Src[0].NE[1] * o.Src[0].NE[2] }},
	"RWKV_WKV7": {"9 per token, head and element of the square state",
		func(o *Op) int64 { return 9 * o.Src[0].NE[0] * o.Src[0].NE[0] * o.Src[0].NE[1] * o.Src[0].NE[2] }},
	"GATED_LINEAR_ATTN": {"5 per token, head and element of the square state, 1 per row of it", gatedLinear},
	"GATED_DELTA_NET":   {"7 per token, head and element of the square state, 3 per row of it, 1 per gate", gatedDelta},
	"LIGHTNING_INDEXER": {"per query and cell: 2·d + 3 per head, 1 for the mask", lightning},
	"DSV4_HC_PRE": {"2 per value of the streams; 6 with a gate per value, and 1 per element of the output",
		hyperPre},
	"DSV4_HC_POST": {"per element of the output 1, and 2 per stream that is mixed in, or 1 where none are mixed",
		hyperPost},
	"SOLVE_TRI": {"n² per right-hand side of n values",
		func(o *Op) int64 { return o.Src[0].NE[0] * o.Out.Elements() }},

	"SCALE": {"1 per element, 2 with a bias", func(o *Op) int64 {
		if o.Params[1]&0x7fffffff != 0 { // the bias, a float: neither 0 nor -0
			return 2 * o.Out.Elements()
		}
		return o.Out.Elements()
	}},
	"ACC":         {"1 per element that is added", func(o *Op) int64 { return o.Src[1].Elements() }},
	"ADD_REL_POS": {"2 per element", elementFLOPs(2)},
	"CLAMP":       {"2 per element (two comparisons)", elementFLOPs(2)},
	"LEAKY_RELU":  {"2 per element", elementFLOPs(2)},
	"ARANGE":      {"2 per element", elementFLOPs(2)},

	"SUM": {"1 per element of src[0]", ofSource}, "SUM_ROWS": {"1 per element of src[0]", ofSource},
	"CUMSUM": {"1 per element of src[0]", ofSource}, "ARGMAX": {"1 per element of src[0]", ofSource},
	"COUNT_EQUAL": {"1 per element of src[0]", ofSource}, "REPEAT_BACK": {"1 per element of src[0]", ofSource},
	"MEAN": {"1 per element of src[0], 1 per row", func(o *Op) int64 { return o.Src[0].Elements() + o.Out.Elements() }},

	"CONV_2D": {"2·kw·kh·c per element of the output, for a kernel of kw·kh and c channels",
		func(o *Op) int64 { return 2 * plane(&o.Src[0], 3) * o.Out.Elements() }},
	"CONV_2D_DW": {"2·kw·kh per element of the output",
		func(o *Op) int64 { return 2 * plane(&o.Src[0], 2) * o.Out.Elements() }},
	"CONV_TRANSPOSE_1D": {"2·k·c per element of the input, for a kernel of k and c output channels",
		func(o *Op) int64 { return 2 * plane(&o.Src[0], 2) * o.Src[1].Elements() }},
	"CONV_TRANSPOSE_2D": {"2·kw·kh·c per element of the input, for a kernel of kw·kh and c output channels",
		func(o *Op) int64 { return 2 * plane(&o.Src[0], 3) * o.Src[1].Elements() }},
	"POOL_1D": {"k per element of the output",
		func(o *Op) int64 { return int64(o.Params[1]) * o.Out.Elements() }},
	"POOL_2D": {"kw·kh per element of the output",
		func(o *Op) int64 { return int64(o.Params[1]) * int64(o.Params[2]) * o.Out.Elements() }},
}

// perElement are the ops that cost the same for each element of their output.
var perElement = map[string]int64{
	"ADD": 1, "ADD1": 1, "ADD_ID": 1, "SUB": 1, "MUL": 1, "DIV": 1, "SQR": 1, "SQRT": 1, "LOG": 1, "SIN": 1, "COS": 1,
	// functions of one value
	"ABS": 1, "SGN": 1, "NEG": 1, "STEP": 1, "TANH": 1, "RELU": 1, "EXP": 1, "EXPM1": 1, "FLOOR": 1, "CEIL": 1,
	"ROUND": 1, "TRUNC": 1,
	"ELU":         2, // comparison, expm1
	"SOFTPLUS":    3, // exp, sum, log
	"SIGMOID":     4, // 1 / (1 + exp(-x))
	"SILU":        4, // x / (1 + exp(-x))
	"HARDSIGMOID": 4, // sum, quotient, two comparisons
	"HARDSWISH":   5,
	"GELU_QUICK":  5, // x · 1 / (1 + exp(c·x))
	"GELU_ERF":    5, // ½·x·(1 + erf(x/√2))
	"XIELU":       6, // of a negative value: smallest, expm1, difference, two products, sum
	"GELU":        9, // ½·x·(1 + tanh(c·x·(1 + a·x²)))
	// gated: the function of one half, times the other
	"REGLU": 2, "SWIGLU": 5, "GEGLU_QUICK": 6, "GEGLU_ERF": 6, "GEGLU": 10,
	"SWIGLU_CLAMP": 8,  // three comparisons before
	"SWIGLU_OAI":   10, // three comparisons, and exp(-α·x), and one added to the other half
}

// moves are the ops that compute nothing with values: they copy, order or convert them, or only show them otherwise.
var moves = []string{
	"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", "DUP", "CPY", "CONT", "SET", "GET_ROWS", "SET_ROWS", "CONCAT",
	"REPEAT", "DIAG",
	"DIAG_MASK_INF", "DIAG_MASK_ZERO", "IM2COL", "IM2COL_3D", "PAD", "PAD_REFLECT_1D", "ROLL", "TRI", "FILL", "ARGSORT",
	"TOP_K", "WIN_PART",
	"WIN_UNPART", "GET_REL_POS",
}

func init() {
	for name, n := range perElement {
		formulas[name] = Formula{fmt.Sprintf("%d per element", n), elementFLOPs(n)}
	}
	for _, name := range moves {
		formulas[name] = Formula{"0: no arithmetic with values", elementFLOPs(0)}
	}
}

// Moves reports whether an op only copies, reorders, converts or views values.
func Moves(op string) bool { return slices.Contains(moves, op) }

func elementFLOPs(n int64) func(*Op) int64 { return func(o *Op) int64 { return n * o.Out.Elements() } }

func ofSource(o *Op) int64 { return o.Src[0].Elements() }

// plane is the product of a tensor's first dims dimensions.
func plane(t *Tensor, dims int) int64 {
	n := int64(1)
	for _, d := range t.NE[:dims] {
		n *= d
	}
	return n
}

// flashAttention: q is (dk, queries, heads, streams), v (dv, cells, heads of K and V, streams); src[3] the mask,
// src[4] the sinks.
func flashAttention(o *Op) int64 {
	q, v := &o.Src[0], &o.Src[2]
	per := 2*q.NE[0] + 2*v.NE[0] + 5
	if o.has(3) {
		per += 2
	}
	if o.Params[2]&0x7fffffff != 0 { // logit_softcap, a float
		per += 2
	}
	return q.Rows()*v.NE[1]*per + flashRows(o)
}

// Unmasked is the number of floating-point operations of flash attention without the cells that its mask rules out:
// pairs is how many pairs there are of a token and a cell that it may read. It is false for another op, and where
// there are more pairs than cells.
func (o *Op) Unmasked(pairs int64) (int64, bool) {
	q, v := &o.Src[0], &o.Src[2]
	all := q.NE[1] * q.NE[3] * v.NE[1]
	if o.Name != "FLASH_ATTN_EXT" || pairs < 0 || pairs > all || v.NE[1] <= 0 {
		return 0, false
	}
	perPair := (flashAttention(o) - flashRows(o)) / (q.Rows() * v.NE[1])
	return q.NE[2]*pairs*perPair + flashRows(o), true
}

// flashRows is what flash attention does once per query and head.
func flashRows(o *Op) int64 {
	row := o.Src[2].NE[0] + 1
	if o.has(4) {
		row += 4
	}
	return o.Src[0].Rows() * row
}

func softMax(o *Op) int64 {
	per, row := int64(6), int64(1)
	if o.has(1) {
		per += 2
	}
	if o.has(2) {
		row += 4
	}
	return per*o.Out.Elements() + row*o.Out.Rows()
}

func rope(o *Op) int64 { return 3 * int64(o.Params[1]) * o.Out.Rows() }

// ssmScan: s is (states, values per head, heads, sequences), x (values per head, heads, tokens, sequences), A
// (states or 1, heads).
func ssmScan(o *Op) int64 {
	s, x, a := &o.Src[0], &o.Src[1], &o.Src[3]
	perState, perHead := int64(7), int64(3)
	if a.NE[0] == 1 {
		perState, perHead = 5, 5
	}
	return x.NE[1] * x.NE[2] * x.NE[3] * (perHead + x.NE[0]*(1+perState*s.NE[0]))
}

// gatedLinear: k is (width of a head, heads, tokens).
func gatedLinear(o *Op) int64 {
	k := &o.Src[0]
	return k.NE[1] * k.NE[2] * (5*k.NE[0]*k.NE[0] + k.NE[0])
}

// gatedDelta: v is (width, heads, tokens, sequences), g (1 or width, heads, tokens, sequences).
func gatedDelta(o *Op) int64 {
	v, g := &o.Src[2], &o.Src[3]
	return v.Rows()*(7*v.NE[0]*v.NE[0]+3*v.NE[0]) + g.Elements()
}

// lightning: q is (width, heads, queries, streams), the output (cells, queries, 1, streams).
func lightning(o *Op) int64 {
	q := &o.Src[0]
	return o.Out.Elements() * (q.NE[1]*(2*q.NE[0]+3) + 1)
}

// hyperPre: x is (width, streams, tokens); src[1] a weight per stream and token, or a gate as large as x.
func hyperPre(o *Op) int64 {
	x := o.Src[0].Elements()
	if o.Src[1].Elements() == x && o.Src[1].NE[0] == o.Src[0].NE[0] {
		return 6*x + o.Out.Elements()
	}
	return 2 * x
}

// hyperPost: the output is (width, streams, tokens); src[3] mixes the streams.
func hyperPost(o *Op) int64 {
	if o.has(3) {
		return o.Out.Elements() * (1 + 2*o.Src[1].NE[1])
	}
	return 2 * o.Out.Elements()
}
