package export

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/codec"
)

// The fields of a table of rows. Phases are UTF-32 text of phaseWidth characters.
const (
	phaseWidth = 11
	rowFields  = "('token_index', '<i8'), ('exec', '<u8'), ('token_id', '<i4'), ('ctx', '<u4'), ('seq_id', '<i4'), " +
		"('pos', '<i4'), ('request', '<i4'), ('phase', '<U11')"
	sampleFields = ", ('sample_seed', '<u8'), ('sample_total', '<i8')"
)

// npyArray is an array in the index of an npy export.
type npyArray struct {
	Name      string       `json:"name"`
	File      string       `json:"file"`
	Rows      string       `json:"rows"` // file that says whose the rows are
	Tensor    string       `json:"tensor"`
	Ctx       uint32       `json:"ctx"`
	Layer     *int32       `json:"layer"`
	Component string       `json:"component"`
	Op        string       `json:"op"`
	DType     string       `json:"dtype"` // as it is stored in the capture
	GGMLType  *int         `json:"ggml_type,omitempty"`
	Axis      tensors.Axis `json:"axis"`
	Shape     []int64      `json:"shape"`
}

// describe says what an array is.
func (a *array) describe(file, rows string) npyArray {
	d := npyArray{Name: a.label, File: file, Rows: rows, Tensor: a.tensor, Ctx: a.ctx, Component: a.component.String(),
		Op:    a.op,
		DType: a.dtype.String(), Axis: a.axis, Shape: append([]int64{a.count}, a.shape...)}
	if a.layer >= 0 {
		d.Layer = &a.layer
	}
	if a.dtype == codec.Raw {
		d.GGMLType = &a.ggmlType
	}
	return d
}

// npy writes a folder: a file per array, a file per table of rows, and index.json.
func (e npyExport) npy() error {
	all, err := plan(&e.source)
	if err != nil {
		return err
	}
	f := &files{draft: e.draft, open: map[string]*os.File{}}
	defer f.close()
	index := struct {
		Provenance
		Arrays []npyArray `json:"arrays"`
	}{Provenance: e.provenance()}
	names := fileNames{}
	for _, t := range all.tables {
		names.unique(t.name) // kept free for it
	}
	for _, a := range all.all {
		file := names.unique(a.label) + ".npy"
		index.Arrays = append(index.Arrays, a.describe(file, a.table.name+".npy"))
		a.out, err = e.beginNPY(f, file, tensors.NPYTypes[a.dtype], append([]int64{a.count}, a.shape...))
		if err != nil {
			return err
		}
	}
	for _, t := range all.tables {
		fields := rowFields
		if t.first.sampled {
			fields += sampleFields
		}
		out, err := e.beginNPY(f, t.name+".npy", "["+fields+"]", []int64{t.count})
		if err != nil {
			return err
		}
		t.outs = []place{out}
	}
	var record []byte
	err = all.fill(&e.source, true, func(t *rowTable, p *piece, r *row) error {
		record = appendRecord(record[:0], p, r, t.first.sampled)
		return t.outs[0].write(record)
	})
	if err == nil {
		err = f.close()
	}
	if err != nil {
		return err
	}
	e.count(all)
	text, err := json.MarshalIndent(index, "", "  ")
	if err == nil {
		err = e.writeFile("index.json", append(text, '\n'))
	}
	if err != nil {
		return err
	}
	return e.draft.publishFolder()
}

// beginNPY makes a file with its header; what follows is filled in later.
func (e npyExport) beginNPY(f *files, name, descr string, shape []int64) (place, error) {
	head, err := tensors.AppendNPYHeader(nil, descr, shape)
	if err == nil {
		err = e.writeFile(name, head)
	}
	return place{files: f, name: name, at: int64(len(head))}, err
}

// appendRecord appends a row of a table.
func appendRecord(dst []byte, p *piece, r *row, sampled bool) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, uint64(r.index))
	dst = le.AppendUint64(dst, p.Exec)
	for _, v := range []int32{r.id, int32(p.Ctx), r.seq(), r.pos, r.request} {
		dst = le.AppendUint32(dst, uint32(v))
	}
	phase := r.phase.String()
	for i := range phaseWidth {
		c := uint32(0)
		if i < len(phase) {
			c = uint32(phase[i])
		}
		dst = le.AppendUint32(dst, c)
	}
	if sampled {
		dst = le.AppendUint64(dst, p.SampleSeed)
		dst = le.AppendUint64(dst, uint64(p.SampleTotal))
	}
	return dst
}

// fileNames are names of files that are taken, in lower case, as some file systems see them.
type fileNames map[string]bool

// maxFileName bounds a name, ending not included.
const maxFileName = 180

// unique makes a name for a file of a tensor's: characters other than letters, digits and -_.+=@# become %XX.
func (taken fileNames) unique(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c >= utf8.RuneSelf, c <= ' ', strings.IndexByte("%\"'*/:<>?\\|", c) >= 0, c == '.' && i == 0:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	base := b.String()
	if base == "" {
		base = "unnamed"
	}
	if len(base) > maxFileName {
		base = base[:maxFileName]
	}
	free := base
	for n := 2; taken[strings.ToLower(free)]; n++ {
		free = fmt.Sprintf("%s~%d", base, n)
	}
	taken[strings.ToLower(free)] = true
	return free
}
