package writing

import (
	"errors"
	"strings"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/stream"
)

// Read takes the F32 tensors of prefill and decode out of a stream: those of the residual stream (l_out, attn_out
// and ffn_out), and all others.
func Read(path string) (residual, others []Piece, err error) {
	r, err := stream.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	for _, p := range r.Packets() {
		if p.DType != codec.F32 || p.SrcBytes == 0 || p.Phase == ggmlhooks.PhaseSetup {
			continue
		}
		data, err := r.ReadInto(p, nil)
		if err != nil {
			return nil, nil, err
		}
		piece := Piece{Packet: stream.Packet{
			Name: p.Name, Node: p.Node, Op: p.Op, Occurrence: p.Occurrence, Layer: p.Layer, Component: p.Component, Rows: p.Rows, RowDim: p.RowDim,
			NE: p.NE, TokenCount: p.TokenCount, Phase: p.Phase,
		}, Data: data}
		switch base, _, _ := strings.Cut(p.Name, "-"); base {
		case "l_out", "attn_out", "ffn_out":
			residual = append(residual, piece)
		default:
			others = append(others, piece)
		}
	}
	if err = r.Err(); err == nil && len(residual) == 0 {
		err = errors.New("no l_out, attn_out or ffn_out as F32 was recorded: record with --tap-granularity full_tensor --tap-dtype f32")
	}
	return residual, others, err
}

// Ratio packs every piece once and tells bytes of F32 per byte of payload, and the error made. empty are the pieces
// of which more than half the values are zero: they are left out, and counted.
func Ratio(pieces []Piece, id codec.ID, bound codec.Bound) (ratio float64, made codec.Achieved, empty int, err error) {
	e, err := codec.NewEncoder(id)
	if err == nil {
		err = e.SetBound(bound)
	}
	var dst []byte
	in, out := 0, 0
	for i := 0; i < len(pieces) && err == nil; i++ {
		p := &pieces[i]
		if sparse(p.Data) {
			empty++
			continue
		}
		var achieved codec.Achieved
		row := int(p.Packet.NE[0])
		if row <= 0 || len(p.Data)%(4*row) != 0 {
			row = len(p.Data) / 4
		}
		dst, achieved, err = e.AppendRows(dst[:0], p.Data, row)
		in, out, made = in+len(p.Data), out+len(dst), made.Or(achieved)
	}
	return float64(in) / float64(max(out, 1)), made, empty, err
}

// sparse tells whether more than half of the values are zero.
func sparse(data []byte) bool {
	zeros := 0
	for i := 0; i+4 <= len(data); i += 4 {
		if data[i]|data[i+1]|data[i+2]|data[i+3]&0x7f == 0 {
			zeros++
		}
	}
	return 2*zeros > len(data)/4
}
