package table

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestPlanes: a general decoder reads the frames, whatever their bytes are; floats that were rounded to F16 are packed
// to less than the general encoder's size.
func TestPlanes(t *testing.T) {
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	random := rand.New(rand.NewPCG(1, 2))
	var p press
	check := func(data []byte, head int) int {
		t.Helper()
		packed := p.planes([]byte("before"), data, head)[len("before"):]
		got, err := decoder.DecodeAll(packed, nil)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %d before the floats: %v", len(data), head, err)
		}
		return len(packed)
	}
	rounds := 200
	if testing.Short() { // nothing of it is concurrent
		rounds = 10
	}
	for range rounds {
		data, kinds := make([]byte, 1+random.IntN(600_000)), []int{1, 2, 7, 40, 256}
		for at := 0; at < len(data); {
			kind, end := kinds[random.IntN(len(kinds))], min(at+1+random.IntN(200_000), len(data))
			for ; at < end; at++ {
				data[at] = byte(random.IntN(kind))
			}
		}
		check(data, random.IntN(min(len(data), 3000)+1))
	}
	for size := range 40 {
		check(make([]byte, size+1), size%5)
	}
	var plain []byte
	for range 1 << 16 {
		bits := math.Float32bits(float32(random.NormFloat64())) &^ (1<<13 - 1)
		plain = append(plain, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	data := split(nil, plain)
	general := newEncoder(zstd.SpeedDefault).EncodeAll(data, nil)
	if n := check(data, 0); n >= len(general) {
		t.Errorf("%d bytes, and %d by the general encoder", n, len(general))
	}
}
