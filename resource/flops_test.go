package resource

import "testing"

// f32 is a tensor of 4-byte values.
func f32(ne ...int64) Tensor { return typed(1, 4, ne...) }

func q8(ne ...int64) Tensor { return typed(32, 34, ne...) }

func typed(values, bytes int64, ne ...int64) Tensor {
	t := Tensor{NE: [4]int64{1, 1, 1, 1}, BlockValues: values, BlockBytes: bytes}
	copy(t.NE[:], ne)
	return t
}

func op(name string, out Tensor, src ...Tensor) Op {
	o := Op{Name: name, Out: out}
	copy(o.Src[:], src)
	return o
}

// with sets one of the op's parameters.
func (o Op) with(at int, v int32) Op {
	o.Params[at] = v
	return o
}

// countedByHand are ops whose work was counted by going through their loops on paper.
var countedByHand = map[string]struct {
	op            Op
	flops         int64
	read, written int64
}{
	// 3 rows of 8 by 5 columns: 15 sums of 8 products
	"matrix": {op("MUL_MAT", f32(3, 5), f32(8, 3), f32(8, 5)), 15 * 16, (24 + 40) * 4, 60},
	// 2 matrices of K, each for 3 heads of Q (GQA): 6 heads · 4 queries · 7 cells, sums of 16 products
	"grouped heads": {op("MUL_MAT", f32(7, 4, 6), f32(16, 7, 2), f32(16, 4, 6)), 6 * 4 * 7 * 32, (16*7*2 + 16*4*6) * 4,
		7 * 4 * 6 * 4},
	// one token, 2 of 8 experts of 64→32: 2·32 sums of 64 products; two experts are read, 34 bytes per 32 values
	"experts of a token": {op("MUL_MAT_ID", f32(32, 2, 1), q8(64, 32, 8), f32(64, 1, 1), f32(2, 1)), 2 * 32 * 128,
		2*32*68 + 64*4 + 2*4, 64 * 4},
	// queries 3, heads 4, cells 10, 16 wide: per cell 64 + 5 + 2 (mask); per row 17
	"attention": {op("FLASH_ATTN_EXT", f32(16, 4, 3), f32(16, 3, 4), f32(16, 10, 2), f32(16, 10, 2),
		f32(10, 3)), 12 * (10*(32+32+7) + 17), (192 + 320 + 320 + 30) * 4, 192 * 4},
	"attention, soft cap": {op("FLASH_ATTN_EXT", f32(16, 1, 1), f32(16, 1, 1), f32(16, 10, 1), f32(16, 10, 1)).with(2,
		0x41200000), 10*(64+7) + 17, (16 + 320) * 4, 64},
	"soft-max":           {op("SOFT_MAX", f32(10, 4), f32(10, 4)), 4 * 61, 160, 160},
	"soft-max with mask": {op("SOFT_MAX", f32(10, 4), f32(10, 4), f32(10, 4)), 4 * 81, 320, 160},
	"RMS norm":           {op("RMS_NORM", f32(8, 2), f32(8, 2)), 2 * (24 + 4), 64, 64},
	"norm":               {op("NORM", f32(8, 2), f32(8, 2)), 2 * (40 + 5), 64, 64},
	"rope of half a head": {op("ROPE", f32(16, 4, 3), f32(16, 4, 3), f32(3)).with(1, 8), 12 * 4 * 6, (192 + 3) * 4,
		192 * 4},
	"convolution of Mamba": {op("SSM_CONV", f32(6, 5), f32(8, 6), f32(4, 6)), 30 * 8, (48 + 24) * 4, 120},
	// 3 tokens, 6 heads of one value, 4 states each; 2 of 9 stored states are of the batch
	"scan of Mamba": {op("SSM_SCAN", f32(6*3+4*6), f32(4, 1, 6, 9), f32(1, 6, 3), f32(6, 3), f32(4, 6), f32(4, 1, 3),
		f32(4, 1, 3), f32(2)),
		3 * 6 * (3 + 1 + 4*7), (4*6*2 + 18 + 18 + 24 + 12 + 12 + 2) * 4, (18 + 24) * 4},
	"scan of Mamba 2": {op("SSM_SCAN", f32(8*6*3), f32(4, 8, 6, 1), f32(8, 6, 3), f32(6, 3), f32(1, 6), f32(4, 1, 3),
		f32(4, 1, 3)),
		3 * 6 * (5 + 8*(1+4*5)), (4*8*6 + 144 + 18 + 6 + 12 + 12) * 4, 144 * 4},
	"RWKV 6":           {op("RWKV_WKV6", f32(24, 5+4), f32(4, 6, 5)), 7 * 16 * 6 * 5, 480, 24 * 9 * 4},
	"RWKV 7":           {op("RWKV_WKV7", f32(24, 5+4), f32(4, 6, 5)), 9 * 16 * 6 * 5, 480, 24 * 9 * 4},
	"linear attention": {op("GATED_LINEAR_ATTN", f32(24, 5+4), f32(4, 6, 5)), 6 * 5 * (5*16 + 4), 480, 24 * 9 * 4},
	"delta net": {op("GATED_DELTA_NET", f32(8), f32(4, 2, 5), f32(4, 2, 5), f32(4, 6, 5), f32(1, 6, 5)),
		30*(7*16+3*4) + 30, (40 + 40 + 120 + 30) * 4, 32},
	"indexer": {op("LIGHTNING_INDEXER", f32(9, 5), f32(4, 6, 5), f32(4, 1, 9)), 45 * (6*11 + 1),
		(120 + 36) * 4, 180},
	"triangle":         {op("SOLVE_TRI", f32(5, 2), f32(5, 5), f32(5, 2)), 50, 140, 40},
	"SiLU":             {op("SILU", f32(10), f32(10)), 40, 40, 40},
	"SwiGLU of halves": {op("SWIGLU", f32(10, 2), f32(20, 2)), 100, 160, 80},
	"sum":              {op("ADD", f32(10, 3), f32(10, 3), f32(10)), 30, 160, 120},
	"scale":            {op("SCALE", f32(10), f32(10)), 10, 40, 40},
	"scale and bias":   {op("SCALE", f32(10), f32(10)).with(1, 0x3f800000), 20, 40, 40},
	"sums of rows":     {op("SUM_ROWS", f32(1, 3), f32(10, 3)), 30, 120, 12},
	"embedding":        {op("GET_ROWS", f32(64, 3), q8(64, 1000), f32(3)), 0, 3*68 + 12, 64 * 3 * 4},
	"rows of a cache": {op("SET_ROWS", typed(1, 2, 64, 512), f32(64, 3), typed(1, 8, 3)), 0, 64*3*4 + 24,
		64 * 3 * 2},
	"conversion": {op("CPY", typed(1, 2, 10), f32(10), typed(1, 2, 10)), 0, 40, 20},
	"view":       {op("VIEW", f32(10), f32(20)), 0, 0, 0},
	"order":      {op("ARGSORT", f32(8, 3), f32(8, 3)), 0, 96, 96},
	"bias of an expert": {op("ADD_ID", f32(8, 2, 1), f32(8, 2, 1), f32(8, 4), f32(2, 1)), 16, (16 + 8*2 + 2) * 4,
		16 * 4},
	"no outputs": {op("MUL_MAT", f32(3, 0), f32(8, 3), f32(8, 0)), 0, 0, 0},
	"streams":    {op("DSV4_HC_PRE", f32(8, 3), f32(8, 4, 3), f32(4, 3)), 2 * 96, (96 + 12) * 4, 96},
	"streams, mixed": {op("DSV4_HC_POST", f32(8, 4, 3), f32(8, 3), f32(8, 4, 3), f32(4, 3), f32(4, 4, 3)), 96 * 9,
		(24 + 96 + 12 + 48) * 4, 384},
	"picture":            {op("CONV_2D", f32(5, 5, 7), f32(3, 3, 2, 7), f32(7, 7, 2)), 175 * 36, (126 + 98) * 4, 700},
	"averages":           {op("POOL_2D", f32(5, 5), f32(10, 10)).with(1, 2).with(2, 2), 100, 400, 100},
	"weights times rows": {op("OUT_PROD", f32(3, 4), f32(3, 5), f32(4, 5)), 12 * 10, 140, 48},
}

func TestFormulas(t *testing.T) {
	for name, c := range countedByHand {
		t.Run(name, func(t *testing.T) {
			flops, ok := c.op.FLOPs()
			if !ok || flops != c.flops {
				t.Errorf("%d FLOPs (%v), by hand %d", flops, ok, c.flops)
			}
			read, written, ok := c.op.Bytes()
			if !ok || read != c.read || written != c.written {
				t.Errorf("%d bytes read, %d written (%v), by hand %d and %d", read, written, ok, c.read, c.written)
			}
		})
	}
}

// TestUnknownIsAbsent: what the table does not have, and bytes that depend on a choice that was not seen.
func TestUnknownIsAbsent(t *testing.T) {
	for _, name := range []string{"CUSTOM", "MAP_CUSTOM1", "DSV4_HC_COMB", "UPSCALE", ""} {
		o := op(name, f32(10), f32(10))
		if n, ok := o.FLOPs(); ok {
			t.Errorf("%q has %d FLOPs", name, n)
		}
	}
	o := op("MUL_MAT_ID", f32(32, 2, 3), q8(64, 32, 8), f32(64, 1, 3), f32(2, 3))
	if _, _, ok := o.Bytes(); ok {
		t.Error("the experts of three tokens are known, although the op does not name them")
	}
	o.Experts = 4
	if read, _, ok := o.Bytes(); !ok || read != 4*32*68+64*3*4+6*4 {
		t.Errorf("four experts: %d bytes (%v)", read, ok)
	}
	o = op("ADD_ID", f32(8, 2, 3), f32(8, 2, 3), f32(8, 4), f32(2, 3))
	if _, _, ok := o.Bytes(); ok {
		t.Error("the biases of three tokens are known, although the op does not name the experts")
	}
	o.Experts = 3
	if read, _, ok := o.Bytes(); !ok || read != (48+3*8+6)*4 {
		t.Errorf("biases of three experts: %d bytes (%v)", read, ok)
	}
	o = op("ADD", typed(0, 0, 10), f32(10))
	if _, _, ok := o.Bytes(); ok {
		t.Error("an unknown type has a size")
	}
}

func TestFormulaTexts(t *testing.T) {
	for name, f := range Formulas() {
		if f.Text == "" || f.count == nil {
			t.Errorf("%s has no sentence", name)
		}
	}
	if !Moves("SET_ROWS") || !Moves("VIEW") || Moves("ADD") || Moves("CUSTOM") {
		t.Error("Moves is wrong")
	}
}
