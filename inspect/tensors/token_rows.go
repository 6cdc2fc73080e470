package tensors

import (
	"context"
	"fmt"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// TokenRow is what one captured tensor holds for one token.
type TokenRow struct {
	Packet *stream.Packet // of the row, or of its end where the tensor was cut into pieces
	Token  int64          // index in the run's tokens file
	Values []float32      // ggml order
}

// maxRowValues is how many values a row has at most. Rows of more are not read.
const maxRowValues = 1 << 22

// EachTokenRow calls fn with each row of the selected tensors, in stream order; the row is valid during the call. It
// leaves out packets that do not hold whole rows of tokens: samples, block-quantised bytes, tensors without tokens or
// whose row dimension is not the slowest. Memory holds one packet, and a row of each tensor that was cut into pieces.
func EachTokenRow(ctx context.Context, r *Run, f Filter, fn func(*TokenRow) error) error {
	if err := f.Check(); err != nil {
		return err
	}
	var values []float32
	cut := map[tensorKey][]float32{} // the beginning of a row whose rest is in the next piece
	for i, p := range r.Stream.Packets() {
		layout := LayoutOf(p)
		width := int64(1)
		for _, n := range layout.Shape {
			width = min(width*min(n, maxRowValues+1), maxRowValues+1)
		}
		if !f.Match(p) || p.Phase == label.PhaseSetup || p.TokenFirst < 0 || layout.Axis != AxisToken ||
			layout.Outer > 1 || width < 1 || width > maxRowValues || !isFloat(p.DType) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if values, err = r.Stream.Float32(p, values); err != nil {
			return fmt.Errorf("packet %d: %w", i, err)
		}
		row := TokenRow{Packet: p, Token: p.TokenFirst + p.BlockStart/width}
		rest, key := values, tensorKey{p.Ctx, p.Name}
		if p.Blocks > 1 {
			if p.Block == 0 {
				delete(cut, key)
			}
			if p.BlockStart%width != int64(len(cut[key])) {
				return fmt.Errorf("packet %d: the piece before it is missing: 'llamatap verify %s' reports more", i,
					r.Path)
			}
			rest = append(cut[key], rest...)
		}
		for ; int64(len(rest)) >= width && row.Token < p.TokenFirst+int64(p.TokenCount); rest = rest[width:] {
			row.Values = rest[:width]
			if err := fn(&row); err != nil {
				return err
			}
			row.Token++
		}
		if p.Blocks > 1 {
			cut[key] = append([]float32(nil), rest...)
		}
	}
	return r.Stream.Err()
}

// isFloat reports whether elements of a type are numbers of a model, and not indices or packed bytes.
func isFloat(d codec.DType) bool {
	return d == codec.F32 || d == codec.F16 || d == codec.BF16 || d == codec.F64
}
