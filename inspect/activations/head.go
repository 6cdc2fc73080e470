package activations

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"gonum.org/v1/gonum/blas/blas32"

	"github.com/llamatap/llamatap"
	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/rundir"
)

// testedArchs are the architectures whose logits the head was compared with (TestLens). Of others it is used only
// where the run's captured logits prove it.
var testedArchs = []string{"gemma2", "gemma3", "gpt-oss", "gpt2", "jamba", "llama", "mamba", "phi3", "qwen2",
	"qwen2moe", "qwen3", "qwen3moe", "starcoder2"}

// embedded begins the path of the embedded model in a run's metadata.
const embedded = "embedded:"

// head is a model's final norm and output matrix, which turn a hidden state into logits.
type head struct {
	file       io.ReaderAt
	closer     io.Closer
	arch       string
	vocab      gguf.Vocab
	norm, bias []float32 // of the final norm
	epsilon    float64
	isLayer    bool // LayerNorm; else RMSNorm
	output     *gguf.Tensor
	outputBias []float32
	softCap    float64 // 0: none
}

// openHead opens the model that a run names, or the file at path where it is not "".
func openHead(path string, m rundir.Model) (h *head, err error) {
	path = cmp.Or(path, m.Path)
	h = &head{}
	size := int64(0)
	switch {
	case path == "":
		return nil, errors.New("the run does not name its model: give its GGUF file with --model")
	case strings.HasPrefix(path, embedded):
		h.file, size = bytes.NewReader(llamatap.DefaultModel), int64(len(llamatap.DefaultModel))
	default:
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, fmt.Errorf("%w: give the model's GGUF file with --model", err)
		}
		f, err := rundir.OpenFile(target)
		if err != nil {
			return nil, fmt.Errorf("%w: give the model's GGUF file with --model", err)
		}
		info, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		h.file, h.closer, size = f, f, info.Size()
	}
	file, err := gguf.Read(h.file, size)
	if err == nil && m.SizeBytes > 0 && m.SizeBytes != file.TensorBytes() {
		err = fmt.Errorf("its tensors have %d bytes, and those of the run's model had %d: give that one with --model",
			file.TensorBytes(), m.SizeBytes)
	}
	if err == nil {
		err = h.load(file)
	}
	if err != nil {
		return nil, errors.Join(h.close(), fmt.Errorf("%s: %w", path, err))
	}
	return h, nil
}

func (h *head) close() error {
	if h.closer == nil {
		return nil
	}
	return h.closer.Close()
}

// load finds the tensors and keys of the head.
func (h *head) load(file *gguf.File) error {
	id := gguf.Identify(file, "")
	h.arch = id.Architecture
	if id.Splits > 1 {
		return fmt.Errorf("the model is split over %d files, which the lens does not join: merge them with "+
			"llama-gguf-split --merge, and give the file with --model", id.Splits)
	}
	rms, isRMS := file.Metadata.Float(h.arch + ".attention.layer_norm_rms_epsilon")
	layer, isLayer := file.Metadata.Float(h.arch + ".attention.layer_norm_epsilon")
	h.epsilon, h.isLayer = rms, !isRMS
	if !isRMS {
		h.epsilon = layer
	}
	_, isScaled := file.Metadata.Float(h.arch + ".logit_scale")
	h.output, _ = file.Tensor("output.weight")
	if h.output == nil {
		h.output, _ = file.Tensor("token_embd.weight")
	}
	norm, hasNorm := file.Tensor("output_norm.weight")
	var ok bool
	if h.vocab, ok = gguf.ReadVocab(&file.Metadata); !ok || h.output == nil || !hasNorm || !isRMS && !isLayer ||
		isScaled {
		return fmt.Errorf("the lens does not know the output head of architecture %q", h.arch)
	}
	h.softCap, _ = file.Metadata.Float(h.arch + ".final_logit_softcapping")
	width := h.output.RowValues()
	if len(h.output.Shape) != 2 || norm.Values() != width || width > maxWidth {
		return fmt.Errorf("the output head %v and the norm %v do not fit each other", h.output, norm)
	}
	var err error
	read := func(t *gguf.Tensor, n int64) []float32 {
		if err == nil && t.Values() != n {
			err = fmt.Errorf("%v has %d values, and %d are needed", t, t.Values(), n)
		}
		if err != nil {
			return nil
		}
		values, data := make([]float32, n), make([]byte, t.Bytes)
		if _, err = h.file.ReadAt(data, t.Offset); err == nil {
			err = gguf.DecodeRow(values, t.Type, data)
		}
		return values
	}
	h.norm = read(norm, width)
	if bias, ok := file.Tensor("output_norm.bias"); ok {
		h.bias = read(bias, width)
	}
	if bias, ok := file.Tensor("output.bias"); ok {
		h.outputBias = read(bias, h.output.Shape[1])
	}
	return err
}

// maxWidth bounds the width of a head.
const maxWidth = 1 << 20

// normalise applies the final norm to a hidden state.
func (h *head) normalise(state []float32) []float32 {
	mean, squares := 0.0, 0.0
	if h.isLayer {
		for _, v := range state {
			mean += float64(v)
		}
		mean /= float64(len(state))
	}
	for _, v := range state {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	scale := 1 / math.Sqrt(squares/float64(len(state))+h.epsilon)
	out := make([]float32, len(state))
	for i, v := range state {
		out[i] = float32((float64(v) - mean) * scale * float64(h.norm[i]))
		if h.bias != nil {
			out[i] += h.bias[i]
		}
	}
	return out
}

// headBlock and headRows are how many bytes and rows of the output matrix a worker reads at once, at most.
const (
	headBlock = 4 << 20
	headRows  = 1 << 10
)

// logits computes the logits of normalised states and calls fn with them: of state number i, from token first on. The
// matrix is read once, block by block, by one worker per CPU; fn is called by all of them, each with the worker's
// number, and may keep nothing.
func (h *head) logits(states [][]float32, fn func(worker, i int, first int32, logits []float32)) error {
	width, vocab := h.output.Shape[0], h.output.Shape[1]
	rowBytes, err := h.output.Type.RowBytes(width)
	if err != nil {
		return err
	}
	rows := max(1, min(headBlock/rowBytes, headRows))
	workers := min(runtime.GOMAXPROCS(0), int((vocab+rows-1)/rows))
	errs := make([]error, workers)
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			data, weights := make([]byte, rows*rowBytes), make([]float32, width)
			out := make([]float32, rows*int64(len(states)))
			for first := int64(w) * rows; first < vocab; first += int64(workers) * rows {
				n := min(rows, vocab-first)
				if _, errs[w] = h.file.ReadAt(data[:n*rowBytes], h.output.Offset+first*rowBytes); errs[w] != nil {
					return
				}
				for r := range n {
					errs[w] = gguf.DecodeRow(weights, h.output.Type, data[r*rowBytes:(r+1)*rowBytes])
					if errs[w] != nil {
						return
					}
					for i, state := range states {
						v := blas32.DDot(blas32.Vector{N: int(width), Inc: 1, Data: weights},
							blas32.Vector{N: int(width), Inc: 1, Data: state})
						if h.outputBias != nil {
							v += float64(h.outputBias[first+r])
						}
						if h.softCap != 0 {
							v = h.softCap * math.Tanh(v/h.softCap)
						}
						out[int64(i)*rows+r] = float32(v)
					}
				}
				for i := range states {
					fn(w, i, int32(first), out[int64(i)*rows:int64(i)*rows+n])
				}
			}
		})
	}
	wait.Wait()
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}
