package vector_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/llamatap/llamatap/cgo/vector"
)

// A processor does at least one multiply-add of its vectors every other cycle of 500 MHz, and none does a thousand
// times that. Beside other load a measurement may get a small share of one: another is made then.
func TestPeak(t *testing.T) {
	rate, bits, err := vector.Peak(1, 50*time.Millisecond)
	for try := 0; try < 20 && err == nil && rate < 0.25e9*2*float64(bits/32); try++ {
		rate, bits, err = vector.Peak(1, 50*time.Millisecond)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		t.Log("built without llama.cpp")
		return
	}
	if err != nil || bits < 128 || bits > 512 || bits%128 != 0 {
		t.Fatalf("%d bits: %v", bits, err)
	}
	if least := 0.25e9 * 2 * float64(bits/32); rate < least || rate > 1000*least {
		t.Errorf("%g operations per second on vectors of %d bits", rate, bits)
	}
	if all, _, err := vector.Peak(runtime.NumCPU(), 50*time.Millisecond); err != nil || all <= 0 {
		t.Errorf("%g on all processors: %v", all, err)
	}
}
