package export

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
)

// streamSuffix ends the name of a stream; the tokens file has another in its place (COMPAT A-41).
const (
	streamSuffix = ".stream"
	tokensSuffix = "_tokens.json"
)

// StrapCodecs are the compressions that STRAP-LLM reads.
var StrapCodecs = []codec.ID{codec.None, codec.LZ4, codec.Zstd}

// strapper packs tensors as STRAP-LLM does.
type strapper struct {
	out     *bufio.Writer
	encoder *codec.Encoder
	losses  codec.Losses
	asIs    map[string]bool // tensors of types that are no float
	names   map[tensorKey]bool
	values  []float32 // buffers
	half    []byte
	single  []byte
	packed  []byte
}

// strap writes a stream and its tokens.
func (e *exporter) strap() error {
	if !strings.HasSuffix(e.draft.final, streamSuffix) {
		return fmt.Errorf("%s: STRAP-LLM's streams end in %s: give such a name with -o", e.draft.final, streamSuffix)
	}
	if !slices.Contains(StrapCodecs, e.o.Codec) {
		return fmt.Errorf("codec %v: STRAP-LLM reads %v", e.o.Codec, StrapCodecs)
	}
	file, err := e.draft.create(e.base())
	if err != nil {
		return err
	}
	defer file.Close()
	s := strapper{out: bufio.NewWriterSize(file, 1<<20), asIs: map[string]bool{}, names: map[tensorKey]bool{}}
	if s.encoder, err = codec.NewEncoder(e.o.Codec); err != nil {
		return err
	}
	if err := e.strapPackets(&s); err != nil {
		return err
	}
	if err := errors.Join(s.out.Flush(), file.Close()); err != nil {
		return err
	}
	if len(s.asIs) > 0 {
		e.note("%s: no floats, written as they are, as STRAP-LLM writes them; its reader takes them for float16", listed(slices.Sorted(maps.Keys(s.asIs))))
	}
	if s.losses != (codec.Losses{}) {
		e.note("as float16 %d values became infinite and %d became zero", s.losses.Saturated, s.losses.Underflow)
	}
	names := []string{e.base()}
	tokens := strings.ReplaceAll(e.base(), streamSuffix, tokensSuffix)
	switch err := e.strapTokens(tokens); {
	case errors.Is(err, fs.ErrNotExist):
		e.note("the capture has no tokens file, so this has none")
	case err != nil:
		return err
	default:
		names = []string{tokens, e.base()}
	}
	e.result.Tensors = len(s.names)
	e.measure()
	return e.draft.publishFiles(names...)
}

// strapPackets writes a packet per piece, in the stream's order.
func (e *exporter) strapPackets(s *strapper) error {
	var data, cut []byte
	err := e.each(func(p *piece) (err error) {
		if data, err = e.read(p, data); err != nil {
			return err
		}
		plain, err := e.plain(p, data)
		if err != nil {
			return err
		}
		s.names[tensorKey{p.Ctx, p.Name}] = true
		e.result.Rows += int64(len(p.rows))
		if int64(len(p.rows)) < p.Layout.Rows {
			cut = p.appendChosen(cut[:0], plain)
			plain = cut
		}
		return s.write(p, plain)
	})
	if err == nil && len(s.names) == 0 {
		err = e.nothing()
	}
	return err
}

// appendChosen appends the chosen rows of a piece, with the dimensions in the order that they have.
func (p *piece) appendChosen(dst, data []byte) []byte {
	inner := p.rowBytes() / p.Outer
	for o := range p.Outer {
		for i := range p.rows {
			at := (o*p.Layout.Rows + p.rows[i].at) * inner
			dst = append(dst, data[at:at+inner]...)
		}
	}
	return dst
}

// write writes a packet: the lengths of name and payload, big-endian, name, payload (COMPAT ).
func (s *strapper) write(p *piece, data []byte) (err error) {
	if data, err = s.halve(p, data); err != nil {
		return err
	}
	if s.packed, err = s.encoder.Append(s.packed[:0], data); err != nil {
		return err
	}
	if len(s.packed) > math.MaxUint32 {
		return fmt.Errorf("tensor %s, execution %d: %d bytes do not fit a packet of STRAP-LLM's: choose fewer tokens with --token", p.Name, p.Exec, len(s.packed))
	}
	var head [6]byte
	binary.BigEndian.PutUint16(head[:], uint16(len(p.Name)))
	binary.BigEndian.PutUint32(head[2:], uint32(len(s.packed)))
	for _, part := range [][]byte{head[:], []byte(p.Name), s.packed} {
		if _, err := s.out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// halve makes float16 of floats.
func (s *strapper) halve(p *piece, data []byte) ([]byte, error) {
	single := data
	switch p.DType {
	case codec.F16:
		return data, nil
	case codec.F32:
	case codec.BF16, codec.F64:
		values, err := codec.AppendFloat32(s.values[:0], data, p.DType)
		if err != nil {
			return nil, err
		}
		s.values, s.single = values, s.single[:0]
		for _, v := range values {
			s.single = binary.LittleEndian.AppendUint32(s.single, math.Float32bits(v))
		}
		single = s.single
	default:
		s.asIs[p.Name] = true
		return data, nil
	}
	half, losses, err := codec.Convert(s.half[:0], single, codec.F32, codec.F16)
	s.half = half
	s.losses.Saturated += losses.Saturated
	s.losses.Underflow += losses.Underflow
	return half, err
}

// strapToken is a token as STRAP-LLM writes it (COMPAT A-40).
type strapToken struct {
	Index int64  `json:"token_index"`
	ID    int32  `json:"token_id"`
	Text  string `json:"token_text"`
}

// strapTokens writes the chosen tokens; fs.ErrNotExist where the capture has none.
func (e *exporter) strapTokens(name string) error {
	seconds, err := e.run.CaptureSeconds()
	if err != nil {
		return err
	}
	file, err := e.draft.create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	io.WriteString(out, "{\n  \"tokens\": [")
	total := 0
	_, err = e.run.EachToken(func(t *tensors.Token) error {
		if !e.choosesToken(t) {
			return nil
		}
		comma := ","
		if total == 0 {
			comma = ""
		}
		total++
		text := new(strings.Builder)
		encoder := json.NewEncoder(text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("    ", "  ")
		if err := encoder.Encode(strapToken{t.Index, t.ID, t.Text}); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%s\n    %s", comma, strings.TrimSuffix(text.String(), "\n"))
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\n  ],\n  \"total_tokens\": %d,\n  \"capture_duration_seconds\": %v\n}\n", total, seconds)
	return errors.Join(out.Flush(), file.Close())
}

// choosesToken tells whether a token of the tokens file is chosen.
func (e *exporter) choosesToken(t *tensors.Token) bool {
	if e.choose.Ctx != nil && t.Ctx != *e.choose.Ctx {
		return false
	}
	r := row{index: t.Index, first: t.Index, end: t.Index + 1}
	r.phase.UnmarshalText([]byte(t.Phase)) // stays unknown where it is none
	if t.Seq != nil {
		r.seqs = []int32{*t.Seq}
	}
	return e.choose.row(&r)
}
