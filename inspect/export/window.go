package export

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"os"
	"slices"

	"github.com/llamatap/llamatap/store/rundir"
	"github.com/llamatap/llamatap/store/stream"
	"github.com/llamatap/llamatap/store/table"
)

// window is the tokens that are shuffled together: all, or Options.Window of them.
type window struct {
	number int64
	spills []spill // by ranges of keys
	bytes  int64   // of its elements as float32
	taken  taken
}

const spillFolder = "spill"

// windowRanges is into how many ranges a window's keys are cut, and the most shards that it has.
const windowRanges = 64

// spillHead is what precedes a row's elements in a spill: token, id, seq, pos, request, phase, column.
const spillHead = 8 + 4*4 + 1 + 4

// windowOf is the window of a token.
func (d *dataset) windowOf(token int64) (*window, error) {
	number := int64(0)
	if d.o.Window > 0 {
		number = token / d.o.Window
	}
	w := d.windows[number]
	if w != nil {
		return w, nil
	}
	w = &window{number: number, spills: make([]spill, d.ranges)}
	d.windows[number] = w
	limit := min(max(bufferBytes/4/len(w.spills), minBuffer), maxBuffer) &^ (stream.BlockAlign - 1)
	for i := range w.spills {
		name := fmt.Sprintf("%s/%d-%05d", spillFolder, number, i)
		w.spills[i] = spill{path: d.draft.Path(name), limit: limit, waiting: &d.waiting}
		if err := d.writeFile(name, nil); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// put writes the chosen rows of a piece to the spills of their windows.
func (d *dataset) put(p *piece, data []byte) error {
	var head [spillHead]byte
	le, column := binary.LittleEndian, d.columns[d.all.byKey[keyOf(p)]]
	for i := range p.rows {
		r := &p.rows[i]
		if r.index < 0 {
			return fmt.Errorf(
				"%s: tensor %s, execution %d: rows without token numbers cannot be shuffled: choose others with "+
					"--phase or --token", d.run.Path, p.Name, p.Exec)
		}
		w, err := d.windowOf(r.index)
		if err != nil {
			return err
		}
		le.PutUint64(head[:], uint64(r.index))
		for i, v := range []int32{r.id, r.seq(), r.pos, r.request} {
			le.PutUint32(head[8+4*i:], uint32(v))
		}
		head[24] = byte(r.phase)
		le.PutUint32(head[25:], uint32(column))
		shard, _ := bits.Mul64(shuffleKey(d.o.Seed, r.index), uint64(len(w.spills))) // the key's share of all keys
		if d.record, err = w.spills[shard].row(head[:], p, data, r.at, d.record); err != nil {
			return err
		}
		d.held.Add(spillHead + p.rowBytes())
		w.bytes += 4 * elementsOf(p.Shape)
	}
	return nil
}

// ended takes out, in order, the windows that end before a token.
func (d *dataset) ended(token int64) []*window {
	if d.o.Window == 0 {
		return nil
	}
	return d.takeWindows(token / d.o.Window)
}

// takeWindows takes out, in order, the windows of numbers below end.
func (d *dataset) takeWindows(end int64) (windows []*window) {
	for _, number := range slices.Sorted(maps.Keys(d.windows)) {
		if number < end {
			windows = append(windows, d.windows[number])
			delete(d.windows, number)
		}
	}
	return windows
}

// spill goes through the run, and writes the shards of each window.
func (d *dataset) spill() error {
	var data []byte
	err := d.eachPiece(func(p *piece) (err error) {
		for _, w := range d.ended(p.TokenFirst) {
			if err := d.finish(w); err != nil {
				return err
			}
		}
		if data, err = d.read(p, data); err != nil {
			return err
		}
		return d.put(p, data)
	})
	if err != nil {
		return err
	}
	for _, w := range d.takeWindows(math.MaxInt64) {
		if err := d.finish(w); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the shards of a window: with Options.Window, as many as its bytes fill.
func (d *dataset) finish(w *window) error {
	for i := range w.spills {
		if err := w.spills[i].flush(0); err != nil {
			return err
		}
		w.spills[i].buffer = nil
	}
	shards := len(w.spills)
	if d.o.Window > 0 {
		size := shardBytes(&d.o)
		shards = int(min(int64(shards), max(1, (w.bytes+size-1)/size)))
	}
	for i := range shards {
		if err := d.shard(w.spills[i*len(w.spills)/shards : (i+1)*len(w.spills)/shards]); err != nil {
			for _, s := range d.written {
				os.Remove(d.draft.Path(s.name + partSuffix))
			}
			return err
		}
	}
	for len(d.written) > 0 {
		s := d.written[0]
		if err := d.draft.publish(s.name); err != nil {
			return err
		}
		d.written = d.written[1:]
		d.info.Shards++
		d.info.Rows += s.all
		for key, n := range s.rows {
			d.kept[key] += n
		}
	}
	return nil
}

// writtenShard is a shard that has no name yet: there are shards of whole windows alone, as all figures say.
type writtenShard struct {
	name string
	rows map[promptKey]int64 // by prompt, where dataset.kept counts them
	all  int64
}

// spilled is a row of one tensor in a spill.
type spilled struct {
	key    uint64
	column int
	data   []byte // head and elements
}

// shard sorts spills into a file of the dataset.
func (d *dataset) shard(from []spill) error {
	var rows []spilled
	freed := int64(0)
	defer func() {
		d.held.Add(-freed)
		d.waiting.Add(-freed)
	}()
	for i := range from {
		data, err := os.ReadFile(from[i].path)
		if err == nil {
			err = os.Remove(from[i].path)
		}
		if err != nil {
			return err
		}
		freed += int64(len(data))
		d.waiting.Add(int64(len(data))) // the disk has it no more, and the shard not yet
		for len(data) > 0 {
			column := int(binary.LittleEndian.Uint32(data[spillHead-4:]))
			size := spillHead + int(d.all.all[column].rowBytes())
			rows = append(rows, spilled{shuffleKey(d.o.Seed, int64(binary.LittleEndian.Uint64(data))), column,
				data[:size]})
			data = data[size:]
		}
	}
	slices.SortFunc(rows, func(a, b spilled) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.column, b.column))
	})
	var whole [][]spilled
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].key == rows[0].key {
			n++
		}
		if n == len(d.all.all) {
			whole = append(whole, rows[:n])
		} else {
			d.info.LeftOut++
		}
		rows = rows[n:]
	}
	if len(whole) == 0 {
		return nil
	}
	return d.writeShard(whole)
}

// writeShard writes rows, each of all tensors, to the next file, which gets its name when it is whole.
func (d *dataset) writeShard(rows [][]spilled) error {
	s := writtenShard{name: fmt.Sprintf("data/train-%05d.parquet", d.info.Shards+len(d.written)),
		rows: map[promptKey]int64{}, all: int64(len(rows))}
	name := s.name
	file, err := d.draft.Create(name + partSuffix)
	if err != nil {
		return err
	}
	defer file.Close()
	buffered := bufio.NewWriterSize(file, 1<<20)
	out, err := table.NewParquet(buffered, d.schema)
	if err != nil {
		return err
	}
	batch := table.NewBatch(d.schema)
	for _, r := range rows {
		if le, head := binary.LittleEndian, r[0].data; d.kept != nil {
			s.rows[promptKey{int32(le.Uint32(head[12:])), int32(le.Uint32(head[20:]))}]++
		}
		if err := d.row(batch, r); err != nil {
			return err
		}
		if batch.Bytes() < rowGroupBytes {
			continue
		}
		if err := out.Write(batch); err != nil {
			return err
		}
		batch.Reset()
		if d.ctx.Err() != nil {
			return d.ctx.Err()
		}
	}
	if err := errors.Join(out.Write(batch), out.Close(), buffered.Flush()); err != nil {
		return err
	}
	info, err := file.Stat()
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	d.held.Add(info.Size())
	d.written = append(d.written, s)
	return nil
}

const partSuffix = ".part"

// publish gives a file of the draft its name.
func (d draft) publish(name string) error {
	path := d.Path(name)
	if err := rundir.Sync(path + partSuffix); err != nil {
		return err
	}
	return os.Rename(path+partSuffix, path)
}
