package ggmlhooks

// SampleSize is the number of elements that sampled_slices keeps of n at a rate in (0, 1]: the whole part of n ·
// rate, at least one.
func SampleSize(n int64, rate float64) int64 {
	return min(max(int64(float64(n)*rate), 1), n)
}

// SampleSeed is the seed of one packet's choice, made from the run's seed, the execution, the node and the first
// row, so that each packet's choice differs and every one can be made again.
func SampleSeed(seed, exec uint64, node, row int) uint64 {
	x := seed
	for _, v := range [...]uint64{exec, uint64(int64(node)), uint64(int64(row))} {
		x += 0x9e3779b97f4a7c15 ^ v // splitmix64's step, with v mixed in
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		x ^= x >> 31
	}
	return x
}
