package resource

// Tensor is what a formula needs to know of a tensor: its shape, ne[0] first, and how its type stores values. A row
// is whole blocks.
type Tensor struct {
	NE          [4]int64
	BlockValues int64 // values per block of its type, 0 = unknown
	BlockBytes  int64 // bytes per block
}

// Elements is the number of values.
func (t Tensor) Elements() int64 { return t.NE[0] * t.NE[1] * t.NE[2] * t.NE[3] }

// Rows is the number of rows.
func (t Tensor) Rows() int64 { return t.NE[1] * t.NE[2] * t.NE[3] }

// bytes returns the size of n values of the tensor's type, in whole blocks; false where the type is not known.
func (t Tensor) bytes(n int64) (int64, bool) {
	if t.BlockValues <= 0 || n%t.BlockValues != 0 {
		return 0, false
	}
	return n / t.BlockValues * t.BlockBytes, true
}

// Op is a node of a graph, as formulas see it.
type Op struct {
	// Name is ggml's name of the op: MUL_MAT, ROPE …; for UNARY and GLU that of the function: SILU, SWIGLU …
	Name string
	Out  Tensor
	// Src are ggml's src[0], src[1] …; those that are NULL have no elements.
	Src    [10]Tensor
	Params [8]int32 // the op's first parameters, as ggml stores them
	// Experts is how many different experts were chosen for all tokens together, 0 = not known. With one token it
	// need not be.
	Experts int64
}

// has reports whether ggml's src[k] is not NULL.
func (o *Op) has(k int) bool { return o.Src[k].Elements() > 0 }

// Formula is how the FLOPs of an op follow from its shapes. One arithmetic operation, comparison that selects a
// value, or call of an elementary function (exp, tanh, erf, sqrt …) counts as one; conversion, copying, ordering
// and the arithmetic of addresses as none. A sum of n products counts 2n. Where a function branches by value, its
// longer branch counts. Masked elements count as others do.
type Formula struct {
	// Text is the formula in words. n are the elements of the output unless it says otherwise.
	Text  string
	count func(o *Op) int64
}

// FLOPs is the number of floating-point operations of the op, exactly by its formula. It is false for an op that
// the table does not have.
func (o *Op) FLOPs() (int64, bool) {
	f, ok := formulas[o.Name]
	if !ok {
		return 0, false
	}
	return f.count(o), true
}

// Formulas are the formulas of all ops that the table has, by the op's name.
func Formulas() map[string]Formula {
	all := make(map[string]Formula, len(formulas))
	for name, f := range formulas {
		all[name] = f
	}
	return all
}
