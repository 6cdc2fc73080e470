package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"github.com/llamatap/llamatap/cgo/llama"
	"github.com/llamatap/llamatap/store/codec"
)

// LoadVariable makes this binary a load: its value is the nice level. See Load.
const LoadVariable = "LLAMATAP_BENCH_LOAD"

// Load keeps as many codec workers as there are CPUs busy on dummy tensors, at the nice level that it is started
// with, until it is killed. lower is called on each worker's thread.
func Load(workers int, lower func()) error {
	var group sync.WaitGroup
	errs := make(chan error, workers)
	for i := range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			lower()
			errs <- work(uint64(i))
		}()
	}
	group.Wait()
	return <-errs
}

// work converts and compresses the same megabyte for ever.
func work(seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 1))
	source := make([]byte, 0, 1<<20)
	for len(source) < cap(source) {
		bits := math.Float32bits(float32(random.NormFloat64()))
		source = append(source, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	}
	encoder, err := codec.NewEncoder(codec.LZ4)
	if err != nil {
		return err
	}
	var half, packed []byte
	for {
		if half, _, err = codec.Convert(half[:0], source, codec.F32, codec.F16); err != nil {
			return err
		}
		if packed, err = encoder.Append(packed[:0], half); err != nil {
			return err
		}
	}
}

// startLoad starts this binary as a load at a nice level.
func startLoad(ctx context.Context, nice int) (stop func(), err error) {
	self, err := llama.Self()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "bench")
	cmd.Env = append(os.Environ(), LoadVariable+"="+strconv.Itoa(nice))
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the load: %w", err)
	}
	return func() { cmd.Process.Kill(); cmd.Wait() }, nil
}
