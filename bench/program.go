package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/llamatap/llamatap/resource/process"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// Program is one of the four benchmark programs of STRAP-LLM, with their flags: tensors of normally distributed
// values are written or compressed, and a rate or a ratio is printed. The zero value of a field is not usable;
// NewProgram fills the defaults.
type Program struct {
	Name        string // one of ProgramNames
	Output      string // file to write
	Tensors     int
	Shape       string // dimensions, separated by commas
	DType       string // float32, float16 or int8
	Compression codec.ID
	Seed        uint64
	BufferSize  int64 // bytes that may wait for the writer
	Workers     int
	Trials      int // of compression_analysis
}

// ProgramNames are the programs, in the order in which STRAP-LLM's run_benchmarks.sh runs them.
var ProgramNames = []string{"baseline_dump", "optimized_streaming", "compression_analysis", "memory_profiling"}

// NewProgram returns a program with the defaults of its flags.
func NewProgram(name string) Program {
	p := Program{Name: name, Output: "test_output.bin", Tensors: 256, Shape: "1024,1024", DType: "float32",
		BufferSize: 128 << 20, Workers: 4, Trials: 16}
	switch name {
	case "optimized_streaming":
		p.Compression = codec.LZ4
	case "compression_analysis":
		p.Shape, p.Compression = "2048,2048", codec.LZ4
	case "memory_profiling":
		p.Tensors, p.BufferSize, p.Compression = 512, 256<<20, codec.LZ4
	}
	return p
}

// Result is what a program measured.
type Result struct {
	Elapsed  time.Duration
	Source   int64 // bytes of the tensors
	Written  int64 // bytes of the file
	PeakRSS  int64 // bytes; 0 = not measured
	Compress bool  // the program only compressed: Written is what would have been written
}

// String is the line that the program prints. A GB is 10⁹ bytes of the file.
func (r Result) String() string {
	if r.Compress {
		return fmt.Sprintf("elapsed %.3f s, %.1f MiB -> %.1f MiB, ratio %.3f", r.Elapsed.Seconds(), mib(r.Source),
			mib(r.Written), float64(r.Source)/float64(r.Written))
	}
	s := fmt.Sprintf("elapsed %.3f s, %.1f MiB, %.3f GB/s", r.Elapsed.Seconds(), mib(r.Written),
		float64(r.Written)/1e9/r.Elapsed.Seconds())
	if r.PeakRSS > 0 {
		s += fmt.Sprintf(", peak RSS %.1f MiB", mib(r.PeakRSS))
	}
	return s
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// programTypes are the element types that the programs take, with those of the store.
var programTypes = map[string]codec.DType{"float32": codec.F32, "float16": codec.F16, "int8": codec.I8}

// Run runs the program. It overwrites Output and leaves it there, with the index of a stream next to it.
func (p Program) Run(ctx context.Context) (Result, error) {
	shape, tensor, err := p.tensor()
	if err != nil {
		return Result{}, err
	}
	if p.Tensors < 1 || p.Trials < 1 || p.Workers < 1 || p.BufferSize < 1 {
		return Result{}, errors.New("--num-tensors, --trials, --workers and --buffer-size must be at least 1")
	}
	switch p.Name {
	case "baseline_dump":
		return p.dump(ctx, tensor)
	case "compression_analysis":
		r, err := p.pack(ctx, p.Trials, tensor, io.Discard)
		r.Compress = true
		return r, err
	case "optimized_streaming":
		return p.stream(ctx, shape, tensor)
	case "memory_profiling":
		peak := watchRSS(50 * time.Millisecond)
		r, err := p.stream(ctx, shape, tensor)
		r.PeakRSS = peak()
		return r, err
	}
	return Result{}, fmt.Errorf("unknown program %q: use one of %s", p.Name, strings.Join(ProgramNames, ", "))
}

// tensor returns the shape, fastest dimension first, and the values of the tensor that is written again and again.
func (p Program) tensor() (shape [4]int64, data []byte, err error) {
	dims := strings.Split(p.Shape, ",")
	shape, elements := [4]int64{1, 1, 1, 1}, int64(1)
	if len(dims) > len(shape) {
		return shape, nil, fmt.Errorf("invalid --shape %q: at most 4 dimensions", p.Shape)
	}
	for i, d := range dims {
		n, err := strconv.ParseInt(strings.TrimSpace(d), 10, 32)
		if err != nil || n < 1 || elements > (1<<30)/n {
			return shape, nil, fmt.Errorf("invalid --shape %q: use positive dimensions with a product of at most "+
				"2^30, such as 1024,1024", p.Shape)
		}
		shape[len(dims)-1-i], elements = n, elements*n
	}
	dtype, ok := programTypes[p.DType]
	if !ok {
		return shape, nil, fmt.Errorf("unknown --dtype %q: use float32, float16 or int8", p.DType)
	}
	normal := rand.New(rand.NewPCG(p.Seed, 0))
	if dtype == codec.I8 {
		data = make([]byte, elements)
		for i := range data {
			data[i] = byte(int8(max(-127, min(127, 32*normal.NormFloat64()))))
		}
		return shape, data, nil
	}
	data = make([]byte, 4*elements)
	for i := range elements {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(normal.NormFloat64())))
	}
	if dtype == codec.F16 {
		data, _, err = codec.Convert(nil, data, codec.F32, codec.F16)
	}
	return shape, data, err
}

// dump writes tensors one after the other with one thread; the sync at the end is part of the time.
func (p Program) dump(ctx context.Context, tensor []byte) (r Result, err error) {
	file, err := os.Create(p.Output)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(file, 1<<20)
	began := time.Now()
	if r, err = p.pack(ctx, p.Tensors, tensor, out); err != nil {
		return r, err
	}
	err = errors.Join(out.Flush(), file.Sync())
	r.Elapsed = time.Since(began)
	return r, err
}

// pack compresses a tensor n times, and writes each result.
func (p Program) pack(ctx context.Context, n int, tensor []byte, out io.Writer) (r Result, err error) {
	encoder, err := codec.NewEncoder(p.Compression)
	if err != nil {
		return r, err
	}
	began := time.Now()
	var packed []byte
	for range n {
		if packed, err = encoder.Append(packed[:0], tensor); err == nil {
			_, err = out.Write(packed)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return r, err
		}
		r.Source, r.Written = r.Source+int64(len(tensor)), r.Written+int64(len(packed))
	}
	r.Elapsed = time.Since(began)
	return r, nil
}

// stream writes tensors with the stream's writer, as a recording does; nothing is synced.
func (p Program) stream(ctx context.Context, shape [4]int64, tensor []byte) (r Result, err error) {
	dtype := programTypes[p.DType]
	o := stream.Options{Workers: p.Workers, Codec: p.Compression, DType: dtype, MemoryBound: p.BufferSize}
	if dtype == codec.I8 {
		o.DType = codec.Raw // it is stored as it is
	}
	for _, name := range []string{p.Output, p.Output + stream.IndexSuffix} { // no stream is written over another
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, err
		}
	}
	w, err := stream.Create(p.Output, o)
	if err != nil {
		return r, err
	}
	began := time.Now()
	release := func() {}
	for i := range p.Tensors {
		packet := stream.Packet{Name: fmt.Sprintf("tensor_%d", i), Node: fmt.Sprintf("tensor_%d", i),
			SrcType: ggmlTypes[dtype], NE: shape, Occurrence: 1, TokenFirst: -1}
		if err = errors.Join(w.Append(&packet, tensor, release), ctx.Err()); err != nil {
			return r, errors.Join(err, w.Close())
		}
	}
	err = w.Close()
	s := w.Stats()
	return Result{Elapsed: time.Since(began), Source: int64(s.SrcBytes), Written: int64(s.Stored)}, err
}

// ggmlTypes are ggml's numbers of element types.
var ggmlTypes = map[codec.DType]int{codec.F32: 0, codec.F16: 1, codec.I8: 24}

// watchRSS samples this process's resident memory until the function that it returns is called, which gives the
// largest sample; 0 where the system does not report it.
func watchRSS(interval time.Duration) (peak func() int64) {
	if runtime.GOOS != "linux" {
		return func() int64 { return 0 }
	}
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		resident := func() int64 { return process.StatusBytes(os.Getpid(), "VmRSS") }
		largest, tick := resident(), time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				largest = max(largest, resident())
			case <-stop:
				done <- max(largest, resident())
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-done }
}
