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
	"math/bits"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/internal/present"
	"github.com/llamatap/llamatap/store/codec"
)

// streamSuffix ends the name of a stream; the tokens file has another in its place.
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
	asIs    map[string]bool // tensors of types that are not a float
	names   map[tensorKey]bool
	values  []float32 // buffers
	half    []byte
	single  []byte
	packed  []byte
}

// strap writes a stream and its tokens.
func (e strapExport) strap() error {
	if !strings.HasSuffix(e.draft.Final, streamSuffix) {
		return fmt.Errorf("%s: STRAP-LLM's streams end in %s: give such a name with -o", e.draft.Final, streamSuffix)
	}
	if !slices.Contains(StrapCodecs, e.o.Codec) {
		return fmt.Errorf("codec %v: STRAP-LLM reads %v", e.o.Codec, StrapCodecs)
	}
	file, err := e.draft.Create(e.base())
	if err != nil {
		return err
	}
	defer file.Close()
	s := strapper{out: bufio.NewWriterSize(file, 1<<20), asIs: map[string]bool{}, names: map[tensorKey]bool{}}
	if s.encoder, err = codec.NewEncoder(e.o.Codec); err != nil {
		return err
	}
	plan, err := e.strapPackets(&s)
	if err != nil {
		return err
	}
	if err := errors.Join(s.out.Flush(), file.Close()); err != nil {
		return err
	}
	if len(s.asIs) > 0 {
		e.note("%s: no floats, written as they are, as STRAP-LLM writes them; its reader takes them for float16",
			listed(slices.Sorted(maps.Keys(s.asIs))))
	}
	if s.losses != (codec.Losses{}) {
		e.note("as float16 %s became infinite and %d became zero", present.Plural(s.losses.Saturated, "value"),
			s.losses.Underflow)
	}
	e.describeStrap(plan)
	names := []string{e.base()}
	tokens := strings.ReplaceAll(e.base(), streamSuffix, tokensSuffix)
	switch err := e.strapTokens(tokens, plan); {
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

// A strapPlan says which packets a stream of STRAP-LLM gets. Its format has no token numbers: its analysis gives each
// token the same number of packets, in the stream's order. So every token gets one packet of each of the same tensors.
type strapPlan struct {
	tensors map[tensorKey]int // tensors that have a row of every token, and their order
	lacking []string          // chosen tensors that do not, by name
	tokens  tokenSet          // tokens of the tensor with the most rows; none where the capture does not know them
	left    int               // chosen tokens that are not among them
}

// tokenSet is a set of token indexes.
type tokenSet map[int64]uint64 // by index / 64

func (s tokenSet) add(token int64)      { s[token>>6] |= 1 << (token & 63) }
func (s tokenSet) has(token int64) bool { return token >= 0 && s[token>>6]>>(token&63)&1 == 1 }

func (s tokenSet) size() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// contains reports whether every token of t is in s.
func (s tokenSet) contains(t tokenSet) bool {
	for i, word := range t {
		if word&^s[i] != 0 {
			return false
		}
	}
	return true
}

// planStrap goes through the index and finds the tokens, and the tensors that have a row of each.
func (e strapExport) planStrap() (*strapPlan, error) {
	plan := &strapPlan{tensors: map[tensorKey]int{}, tokens: tokenSet{}}
	var order []tensorKey
	rows, all, contexts := map[tensorKey]tokenSet{}, tokenSet{}, map[uint32]bool{}
	err := e.eachPiece(func(p *piece) error {
		key := tensorKey{p.Ctx, p.Name}
		if rows[key] == nil {
			order = append(order, key)
			rows[key] = tokenSet{}
		}
		contexts[p.Ctx] = true
		for i := range p.rows {
			if token := p.rows[i].index; token >= 0 {
				rows[key].add(token)
				all.add(token)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(order) == 0:
		return nil, e.emptySelectionError()
	case len(contexts) > 1 && len(all) > 0:
		return nil,
			fmt.Errorf("%s: tensors of several contexts are chosen, and STRAP-LLM has one: choose it with --ctx, of %v",
				e.run.Path, slices.Sorted(maps.Keys(contexts)))
	}
	for _, key := range order {
		if rows[key].size() > plan.tokens.size() {
			plan.tokens = rows[key]
		}
	}
	for i, key := range order {
		if rows[key].contains(plan.tokens) {
			plan.tensors[key] = i
		} else {
			plan.lacking = append(plan.lacking, key.name)
		}
	}
	plan.left = all.size() - plan.tokens.size()
	return plan, nil
}

// strapPackets writes a packet per token and tensor, token by token; where the capture does not know tokens, per
// piece as it is.
func (e strapExport) strapPackets(s *strapper) (*strapPlan, error) {
	plan, err := e.planStrap()
	if err != nil {
		return nil, err
	}
	turn := turner{spool: spool{path: e.draft.Path(spoolName)}, write: func(name string, packet []byte) error {
		e.result.Rows++
		return s.writePacket(name, packet)
	}}
	defer turn.spool.discard()
	var data, cut []byte
	err = e.eachPiece(func(p *piece) (err error) {
		order, chosen := plan.tensors[tensorKey{p.Ctx, p.Name}]
		if !chosen {
			return nil
		}
		if data, err = e.read(p, data); err != nil {
			return err
		}
		plain, err := e.plain(p, data)
		if err != nil {
			return err
		}
		s.names[tensorKey{p.Ctx, p.Name}] = true
		if len(plan.tokens) == 0 {
			if plain, err = s.pack(p, plain); err != nil {
				return err
			}
			return turn.write(p.Name, plain)
		}
		if err := turn.execution(p.Exec); err != nil {
			return err
		}
		for i := range p.rows {
			if !plan.tokens.has(p.rows[i].index) {
				continue
			}
			cut = p.appendRow(cut[:0], plain, p.rows[i].at)
			packed, err := s.pack(p, cut)
			if err != nil {
				return err
			}
			if err := turn.add(turned{token: p.rows[i].index, order: order, name: p.Name}, packed); err != nil {
				return err
			}
		}
		return nil
	})
	return plan, errors.Join(err, turn.flush())
}

// pack returns a payload: float16 of floats, compressed. It is valid until the next call.
func (s *strapper) pack(p *piece, data []byte) (packed []byte, err error) {
	if data, err = s.halve(p, data); err != nil {
		return nil, err
	}
	s.packed, err = s.encoder.Append(s.packed[:0], data)
	return s.packed, err
}

// writePacket writes the lengths of name and payload, big-endian, name, payload.
func (s *strapper) writePacket(name string, packed []byte) error {
	if len(packed) > math.MaxUint32 {
		return fmt.Errorf("tensor %s: %d bytes do not fit a packet of STRAP-LLM's: choose fewer tokens with --token",
			name, len(packed))
	}
	var head [6]byte
	binary.BigEndian.PutUint16(head[:], uint16(len(name)))
	binary.BigEndian.PutUint32(head[2:], uint32(len(packed)))
	for _, part := range [][]byte{head[:], []byte(name), packed} {
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

// describeStrap notes what the stream lacks.
func (e strapExport) describeStrap(plan *strapPlan) {
	if len(plan.tokens) == 0 {
		e.note("the capture does not say which tokens its packets are of: they are written as they are, and " +
			"STRAP-LLM's analysis per token is wrong for packets of several")
	}
	if len(plan.lacking) > 0 {
		remedy := "--token chooses tokens that have them"
		if len(e.o.Select.Phases) == 0 {
			remedy = "--phase decode chooses those with output rows, which are all that the last layer computes"
		}
		e.note("%s: left out, for they lack a row of some of the %d tokens: %s", listed(plan.lacking),
			plan.tokens.size(), remedy)
	}
	if plan.left > 0 {
		e.note("left out: %s without a row of any of these tensors", present.Plural(plan.left, "token"))
	}
}

// strapToken is a token as STRAP-LLM writes it.
type strapToken struct {
	Index int64  `json:"token_index"`
	ID    int32  `json:"token_id"`
	Text  string `json:"token_text"`
}

// strapTokens writes the tokens that have packets; fs.ErrNotExist where the capture has no tokens file.
func (e strapExport) strapTokens(name string, plan *strapPlan) error {
	seconds, err := e.run.CaptureSeconds()
	if err != nil {
		return err
	}
	file, err := e.draft.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	out := bufio.NewWriter(file)
	io.WriteString(out, "{\n  \"tokens\": [")
	total := 0
	_, err = e.run.EachToken(func(t *tensors.Token) error {
		if len(plan.tokens) > 0 && !plan.tokens.has(t.Index) {
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
