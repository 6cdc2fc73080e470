package resource

// Bytes is what an op reads of its sources and writes of its output, each value once, whatever caches do: of a view
// its own elements, of weights that are looked up only the rows used, of experts only the chosen ones, of a cache
// that is written only the new rows. An op without output is not computed and reads nothing. It is false where a
// type's size is not known, or which experts were chosen.
func (o *Op) Bytes() (read, written int64, ok bool) {
	switch o.Name {
	case "NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE":
		return 0, 0, true
	}
	if written, ok = o.Written(); !ok {
		return 0, 0, false
	}
	for k := range o.Src {
		n, ok := o.Read(k)
		if !ok {
			return 0, 0, false
		}
		read += n
	}
	return read, written, true
}

// Written is what the op writes of its output; see [Op.Bytes].
func (o *Op) Written() (bytes int64, ok bool) {
	n := o.Out.Elements()
	if o.Name == "SET_ROWS" {
		n = o.Src[0].Elements()
	}
	return o.Out.bytes(n)
}

// Read is what the op reads of its src[k], 0 where that is NULL; see [Op.Bytes].
func (o *Op) Read(k int) (bytes int64, ok bool) {
	if !o.has(k) || o.Out.Elements() == 0 {
		return 0, true
	}
	if o.OfExperts(k) && o.chosen() == 0 {
		return 0, false
	}
	return o.Src[k].bytes(o.readOf(k))
}

// readOf is how many values of src[k] the op reads.
func (o *Op) readOf(k int) int64 {
	s := &o.Src[k]
	switch {
	case k == 0 && o.Name == "GET_ROWS":
		return o.Out.Elements()
	case k == 1 && o.Name == "CPY": // where it writes to
		return 0
	case k == 2 && o.Name == "SET_ROWS": // where it writes to
		return 0
	case k == 0 && o.Name == "MUL_MAT_ID":
		return s.NE[0] * s.NE[1] * o.chosen()
	case k == 1 && o.Name == "ADD_ID":
		return s.NE[0] * o.chosen()
	case k == 0 && o.Name == "SSM_SCAN" && o.has(6): // states of the sequences of the batch
		return s.NE[0] * s.NE[1] * s.NE[2] * o.Src[6].NE[0]
	}
	return s.Elements()
}

// OfExperts reports whether src[k] has a part for each expert, of which the op reads those chosen.
func (o *Op) OfExperts(k int) bool {
	return k == 0 && o.Name == "MUL_MAT_ID" || k == 1 && o.Name == "ADD_ID"
}

// chosen is how many experts the op uses. Its src[2] has the experts of each token.
func (o *Op) chosen() int64 {
	if o.Src[2].Rows() == 1 {
		return o.Src[2].NE[0]
	}
	return o.Experts
}
