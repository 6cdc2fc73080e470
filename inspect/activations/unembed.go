package activations

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/llamatap/llamatap/gguf"
	"github.com/llamatap/llamatap/store/rundir"
)

// unembedBatch is how many hidden states share one pass over the output matrix: their logits are in memory.
const unembedBatch = 32

// Unembed reads hidden states from in, rows of little-endian float32 as wide as the residual stream, and writes the
// logits that the final norm and the output matrix of a model make of each, one row of the vocabulary's size, in the
// same form. path is its GGUF file; "" is the embedded model.
func Unembed(path string, in io.Reader, out io.Writer) (err error) {
	h, err := openHead(cmp.Or(path, embedded), rundir.Model{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if !slices.Contains(testedArchs, h.arch) {
		return fmt.Errorf("the head of architecture %q was not compared with llama.cpp's logits: capture lm_head "+
			"instead, with run --tap-point lm_head", h.arch)
	}
	width, vocab := int(h.output.Shape[0]), int(h.output.Shape[1])
	row, logits := make([]byte, 4*width), make([]float32, unembedBatch*vocab)
	for count, more := 0, true; more; {
		var states [][]float32
		for len(states) < unembedBatch {
			n, err := io.ReadFull(in, row)
			if more = !errors.Is(err, io.EOF); !more {
				break
			}
			if err != nil {
				return fmt.Errorf("row %d has %d bytes: %w: a row is %d float32, little-endian, of %d bytes", count, n,
					err,
					width, len(row))
			}
			state := make([]float32, width)
			for i := range state {
				state[i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
			}
			states, count = append(states, h.normalise(state)), count+1
		}
		if len(states) == 0 {
			break
		}
		err := h.logits(states, func(_, i int, first int32, part []float32) { copy(logits[i*vocab+int(first):], part) })
		if err == nil {
			err = binary.Write(out, binary.LittleEndian, logits[:len(states)*vocab])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// OutputRows writes the rows of a model's output matrix that belong to tokens: the directions of the residual stream,
// after the final norm, that raise their logits. Rows are little-endian float32. path is its GGUF file; "" is the
// embedded model.
func OutputRows(path string, tokens []int32, out io.Writer) (err error) {
	h, err := openHead(cmp.Or(path, embedded), rundir.Model{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	size, err := h.output.Type.RowBytes(h.output.Shape[0])
	if err != nil {
		return err
	}
	data, row := make([]byte, size), make([]float32, h.output.Shape[0])
	for _, token := range tokens {
		if token < 0 || int64(token) >= h.output.Shape[1] {
			return fmt.Errorf("token %d is unknown: the model has tokens 0 to %d", token, h.output.Shape[1]-1)
		}
		if _, err = h.file.ReadAt(data, h.output.Offset+int64(token)*size); err == nil {
			err = gguf.DecodeRow(row, h.output.Type, data)
		}
		if err == nil {
			err = binary.Write(out, binary.LittleEndian, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
