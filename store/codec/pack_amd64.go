//go:build amd64 && !noasm

package codec

// lookAVX2 looks at groups × 8 values, groups ≥ 1.
//
//go:noescape
func lookAVX2(part *byte, groups int, s *lookSums)

// quantizeAVX2 quantises groups × 8 values, groups ≥ 1.
//
//go:noescape
func quantizeAVX2(q *int32, values *byte, groups int, inverse, step float32, s *quantSums)

// packAVX2 packs groups × 8 values of width bits, 1 to 16, groups ≥ 1. It writes up to 8 bytes after them.
//
//go:noescape
func packAVX2(dst *byte, q *int32, groups, width int)

// lookVector looks at as many values as vectors take, and returns how many bytes they are.
func lookVector(part []byte, s *lookSums) int {
	groups := len(part) / 32
	if !hasAVX2 || groups == 0 {
		return 0
	}
	lookAVX2(&part[0], groups, s)
	return 32 * groups
}

// quantizeVector quantises as many values as vectors take, and returns how many.
func quantizeVector(q []int32, values []byte, inverse, step float32, s *quantSums) int {
	groups := len(q) / 8
	if !hasAVX2 || groups == 0 {
		return 0
	}
	_ = values[32*groups-1]
	quantizeAVX2(&q[0], &values[0], groups, inverse, step, s)
	return 8 * groups
}

// packVector does what packEights does, where it can, else nothing.
func packVector(dst []byte, q []int32, width int) int {
	groups := len(q) / 8
	if !hasAVX2 || groups == 0 {
		return 0
	}
	_ = dst[groups*width+7]
	packAVX2(&dst[0], &q[0], groups, width)
	return 8 * groups
}
