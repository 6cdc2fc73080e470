package label

import "math/rand/v2"

// SampleIndices appends to dst the k indices out of n that seed chooses: without replacement, ascending, each
// choice of k equally likely (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S), drawn from PCG seeded
// with (seed, 0).
func SampleIndices(dst []int64, seed uint64, n, k int64) []int64 {
	random := rand.New(rand.NewPCG(seed, 0))
	for i := int64(0); i < n && k > 0; i++ {
		if random.Uint64N(uint64(n-i)) < uint64(k) {
			dst = append(dst, i)
			k--
		}
	}
	return dst
}
