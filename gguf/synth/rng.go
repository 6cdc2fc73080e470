package synth

import "math"

// golden is 2^64 divided by the golden ratio: the step of a SplitMix64 counter.
const golden = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit of x changes half of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// tensorKey is where the counter of a tensor begins.
func tensorKey(seed uint64, name string) uint64 {
	k := mix(seed + golden)
	for _, b := range []byte(name) {
		k = mix(k ^ uint64(b) + golden)
	}
	return k
}

// laneSigma is the standard deviation of the sum of four uniform 16-bit numbers.
var laneSigma = math.Sqrt(4 * (65536.0*65536.0 - 1) / 12)

// fillNormal fills dst with values first, first+1, … of the sequence key: mean mu, standard deviation sigma, nearly
// normal (sums of four uniform numbers, so within 3.47 sigma).
func fillNormal(dst []float32, key uint64, first int64, mu, sigma float32) {
	const mean = 4 * 65535 / 2
	scale := float32(float64(sigma) / laneSigma)
	c := key + uint64(first)*golden
	for i := range dst {
		c += golden
		x := mix(c)
		sum := int32(x&0xffff) + int32(x>>16&0xffff) + int32(x>>32&0xffff) + int32(x>>48)
		dst[i] = mu + float32(float32(sum-mean)*scale)
	}
}
