package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
)

// forge is a file of one column whose pages hold what is given, with checksums that are right.
func forge(c Column, rows, encoding int, dictionary, body []byte) []byte {
	p := &press{raw: body}
	m := chunkMeta{physical: c.Kind.physical(), path: []string{c.Name}, codec: codecZstd, values: int64(rows),
		raw:  1 << 40,
		data: 4, stats: statistics{nulls: -1}}
	out := []byte(magic)
	if dictionary != nil {
		d := &press{raw: dictionary}
		out, _ = d.page(out, pageHead{kind: pageDict, values: 1, encoding: encodePlain})
		m.dict, m.data = 4, int64(len(out))
	}
	out, _ = p.page(out, pageHead{kind: pageData, values: min(rows, 1<<30), encoding: encoding})
	m.packed = int64(len(out) - 4)
	root := element{name: "schema", physical: physicalNone, repetition: -1, children: 1, converted: convertedNone}
	meta := fileMeta{schema: append([]element{root}, elements(c)...), rows: int64(rows),
		groups: []groupMeta{{rows: int64(rows), chunks: []chunkMeta{m}}}}
	return append(out, meta.footer()...)
}

// readForged reads a forged file in both ways, of a scan some steps.
func readForged(t *testing.T, text []byte, c Column) (err error) {
	r, err := NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Column(0, c.Name)
	scan, scanErr := NewScan([]*Reader{r}, []string{c.Name}, ScanOptions{Ahead: 1})
	if scanErr != nil {
		t.Fatal(scanErr)
	}
	defer scan.Close()
	for range 3 {
		rows, scanErr := scan.Next()
		if scanErr != nil {
			break
		}
		for i := range rows.Columns[0].Codes {
			rows.Columns[0].Text(i)
		}
	}
	return err
}

// FuzzPage reads pages that hold anything, of every kind and encoding.
func FuzzPage(f *testing.F) {
	for kind := range uint8(Bool + 1) {
		for _, encoding := range []int{encodePlain, encodeRuns, encodeDelta, encodeDeltaLength, encodeDeltaBytes,
			encodeDict, encodeSplit} {
			f.Add(kind, uint8(encoding), kind%2 == 0, uint16(20), []byte{1, 0, 0, 0, 'x', 0, 0, 0},
				[]byte{2, 0, 0, 0, 40, 1, 8, 40, 0, 0, 0})
		}
	}
	f.Fuzz(func(t *testing.T, kind, encoding uint8, null bool, rows uint16, dictionary, body []byte) {
		c := Column{Name: "x", Kind: Kind(kind % uint8(Bool+1)), Null: null}
		if c.Kind == Int32List || c.Kind == Float32List {
			return
		}
		readForged(t, forge(c, int(rows), int(encoding%10), dictionary, body), c)
	})
}

// TestHostile: what a few bytes say to be huge is refused, or read step by step, and takes little memory in any case.
func TestHostile(t *testing.T) {
	const rows = 1 << 30
	run := binary.AppendUvarint([]byte{8}, rows<<1)
	lengths := func(block, minis uint64) []byte { // as many texts of no length as a few bytes can say
		b := binary.AppendUvarint(binary.AppendUvarint(nil, block), minis)
		return append(binary.AppendVarint(binary.AppendUvarint(b, rows), 0), make([]byte, 4<<10)...)
	}
	texts, numbers := Column{Name: "x", Kind: Text}, Column{Name: "x", Kind: Int64}
	for _, c := range []struct {
		name   string
		column Column
		text   []byte
	}{
		{"a run of texts", texts, forge(texts, rows, encodeDict, []byte{0, 0, 0, 0}, append(run, 0))},
		{"a run of numbers", numbers, forge(numbers, rows, encodeDict, make([]byte, 8), append(run, 0))},
		{"differences of nothing", numbers, forge(numbers, rows, encodeDelta, nil, lengths(1<<16, 1<<8))},
		{"texts of nothing", texts, forge(texts, 1<<20, encodeDeltaLength, nil, lengths(1<<16, 1<<8))},
		{"a page that claims to be huge", numbers, oversized(numbers)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := readForged(t, c.text, c.column)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrTable) || took > 16<<20 {
			t.Errorf("%s: %d bytes were taken; %v", c.name, took, err)
		}
	}
	for _, footer := range [][]byte{
		{2<<4 | thriftList, 15<<4 | thriftStruct, 0xff, 0xff, 0xff, 0xff, 0x0f, 0},
		{4<<4 | thriftList, 15<<4 | thriftStruct, 0xff, 0xff, 0xff, 0xff, 0x0f, 0},
		bytes.Repeat([]byte{1<<4 | thriftStruct}, 10000),
		bytes.Repeat([]byte{1<<4 | thriftList, 1<<4 | thriftList}, 10000),
	} {
		if _, err := parseFooter(footer); !errors.Is(err, errThrift) {
			t.Errorf("%x…: %v", footer[:2], err)
		}
	}
}

// oversized has a page that says that it is 60 MiB of what 30 bytes are.
func oversized(c Column) []byte {
	out := []byte(magic)
	head := pageHead{kind: pageData, raw: 60 << 20, packed: 30, values: 1 << 20, crc: crc(make([]byte, 30))}
	out = append(head.append(out), make([]byte, 30)...)
	root := element{name: "schema", physical: physicalNone, repetition: -1, children: 1, converted: convertedNone}
	m := chunkMeta{physical: physicalInt64, path: []string{c.Name}, codec: codecZstd, values: 1 << 20, raw: 1 << 40,
		packed: int64(len(out) - 4), data: 4}
	meta := fileMeta{schema: append([]element{root}, elements(c)...), rows: 1 << 20,
		groups: []groupMeta{{rows: 1 << 20, chunks: []chunkMeta{m}}}}
	return append(out, meta.footer()...)
}
