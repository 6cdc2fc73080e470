package export

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

// The layout is that of https://huggingface.co/docs/safetensors: the size of the header as a uint64, the header as
// JSON, filled up with blanks to a multiple of 8, and the tensors' bytes without gaps.

// defaultShardMB is the size at which an export is cut into several files, as Hugging Face's libraries do.
const defaultShardMB = 5000

// maxHeader is the largest header that readers of safetensors take.
const maxHeader = 100_000_000

// safetensorsTypes are the format's names of the element types.
var safetensorsTypes = map[codec.DType]string{
	codec.Raw: "U8", codec.F32: "F32", codec.F16: "F16", codec.BF16: "BF16", codec.F64: "F64",
	codec.I8: "I8", codec.I16: "I16", codec.I32: "I32", codec.I64: "I64",
}

// rowColumns are the arrays that say whose rows are, in the order of their element sizes.
var rowColumns = []struct {
	name, dtype string
	size        int64
}{
	{"token_index", "I64", 8}, {"exec", "I64", 8}, {"token_id", "I32", 4}, {"seq_id", "I32", 4}, {"pos", "I32", 4},
	{"request", "I32", 4}, {"phase", "U8", 1},
}

// entry is one tensor of a file.
type entry struct {
	name, dtype string
	size        int64 // of an element
	shape       []int64
	bytes       int64
	out         *place
}

// shard is one file of the export.
type shard struct {
	name    string
	arrays  []*array
	tables  []*rowTable
	bytes   int64
	entries []entry
}

// safetensors writes one file, or several and an index of them.
func (e safetensorsExport) safetensors() error {
	all, err := plan(&e.source)
	if err != nil {
		return err
	}
	shards := e.cut(all)
	f := &files{draft: e.draft, open: map[string]*os.File{}}
	defer f.close()
	for _, s := range shards {
		if err := e.beginShard(f, s); err != nil {
			return err
		}
	}
	err = all.fill(&e.source, false, putColumns)
	if err == nil {
		err = f.close()
	}
	if err != nil {
		return err
	}
	names := []string{}
	for _, s := range shards {
		names = append(names, s.name)
	}
	if len(shards) > 1 {
		index := e.base() + ".index.json"
		if err := e.writeShardIndex(index, shards); err != nil {
			return err
		}
		names = append(names, index)
		e.result.Path = filepath.Join(filepath.Dir(e.draft.Final), index)
	}
	e.count(all)
	return e.draft.publishFiles(names...)
}

// cut spreads the arrays over files of about the wanted size. Tables of rows stand in the file of the first array
// that they are of.
func (e safetensorsExport) cut(all *arrays) []*shard {
	limit := e.o.ShardMB * 1_000_000
	if limit == 0 {
		limit = defaultShardMB * 1_000_000
	}
	shards := []*shard{{}}
	for _, a := range all.all {
		last := shards[len(shards)-1]
		size := a.count * a.rowBytes()
		if last.bytes > 0 && last.bytes+size > limit {
			last = &shard{}
			shards = append(shards, last)
		}
		last.arrays = append(last.arrays, a)
		last.bytes += size
		if a.table.first == a {
			last.tables = append(last.tables, a.table)
		}
	}
	stem, suffix := e.base(), ".safetensors"
	stem = strings.TrimSuffix(stem, suffix)
	for i, s := range shards {
		s.name = e.base()
		if len(shards) > 1 {
			s.name = fmt.Sprintf("%s-%05d-of-%05d%s", stem, i+1, len(shards), suffix)
		}
	}
	return shards
}

// beginShard makes a file with its header and settles where each of its tensors goes.
func (e safetensorsExport) beginShard(f *files, s *shard) error {
	for _, t := range s.tables {
		t.outs = make([]place, len(rowColumns))
		for i, c := range rowColumns {
			s.entries = append(s.entries, entry{t.name + "." + c.name, c.dtype, c.size, []int64{t.count},
				t.count * c.size, &t.outs[i]})
		}
	}
	for _, a := range s.arrays {
		s.entries = append(s.entries, entry{a.label, safetensorsTypes[a.dtype], int64(a.dtype.Size()),
			append([]int64{a.count}, a.shape...),
			a.count * a.rowBytes(), &a.out})
	}
	// Large elements first, so that each tensor lies at a multiple of its element's size.
	slices.SortStableFunc(s.entries, func(a, b entry) int { return int(b.size - a.size) })
	head, err := e.header(s)
	if err != nil {
		return err
	}
	at := int64(len(head))
	for _, entry := range s.entries {
		*entry.out = place{files: f, name: s.name, at: at}
		at += entry.bytes
	}
	return e.writeFile(s.name, head)
}

// header is a file's, with its size before it.
func (e safetensorsExport) header(s *shard) ([]byte, error) {
	type tensor struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	about := struct {
		Provenance
		Phases []string   `json:"phases"` // names of the numbers in rows-N.phase
		Arrays []npyArray `json:"arrays"`
	}{Provenance: e.provenance()}
	for p := label.Phase(0); p <= label.PhaseTeardown; p++ {
		about.Phases = append(about.Phases, p.String())
	}
	for _, a := range s.arrays {
		about.Arrays = append(about.Arrays, a.describe("", a.table.name))
	}
	text, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt", "llamatap": string(text)}}
	at := int64(0)
	for _, entry := range s.entries {
		if _, twice := header[entry.name]; twice {
			return nil, fmt.Errorf("two tensors are named %q: choose one of them with --tensor", entry.name)
		}
		header[entry.name] = tensor{entry.dtype, entry.shape, [2]int64{at, at + entry.bytes}}
		at += entry.bytes
	}
	if text, err = json.Marshal(header); err != nil {
		return nil, err
	}
	if len(text) > maxHeader {
		return nil,
			fmt.Errorf(
				"the header would have %d bytes, and readers take %d: choose fewer tensors, or a smaller --shard-mb",
				len(text), maxHeader)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), nil
}

// putColumns writes a row of a table.
func putColumns(t *rowTable, p *piece, r *row) error {
	le := binary.LittleEndian
	var field [8]byte
	for i, v := range []int64{r.index, int64(p.Exec), int64(r.id), int64(r.seq()), int64(r.pos), int64(r.request),
		int64(r.phase)} {
		le.PutUint64(field[:], uint64(v)) // little-endian: the low bytes come first
		if err := t.outs[i].write(field[:rowColumns[i].size]); err != nil {
			return err
		}
	}
	return nil
}

// writeShardIndex writes which tensor is in which file, as Hugging Face's libraries do.
func (e safetensorsExport) writeShardIndex(name string, shards []*shard) error {
	weights, total := map[string]string{}, int64(0)
	for _, s := range shards {
		for _, entry := range s.entries {
			weights[entry.name] = s.name
			total += entry.bytes
		}
	}
	text, err := json.MarshalIndent(map[string]any{"metadata": map[string]any{"total_size": total},
		"weight_map": weights}, "", "  ")
	if err != nil {
		return err
	}
	return e.writeFile(name, append(text, '\n'))
}
