package perf

import (
	"bytes"
	"testing"
)

// What perf record does, for tests: files byte by byte after tools/perf/Documentation/perf.data-file-format.txt.

// padded is a string, ended by a zero and filled up to a multiple.
func padded(s string, to int) []byte {
	b := append([]byte(s), 0)
	for len(b)%to != 0 {
		b = append(b, 0)
	}
	return b
}

// describe is the feature EVENT_DESC.
func describe(events []Event) []byte {
	b := le.AppendUint32(nil, uint32(len(events)))
	b = le.AppendUint32(b, 128)
	for _, e := range events {
		b = e.Attr.Append(b)
		b = le.AppendUint32(b, uint32(len(e.IDs)))
		name := padded(e.Name, 64)
		b = le.AppendUint32(b, uint32(len(name)))
		b = append(b, name...)
		b = append(b, words(e.IDs...)...)
	}
	return b
}

// dataOf makes a perf.data of events and records.
func dataOf(t testing.TB, events []Event, records ...[]byte) []byte {
	t.Helper()
	const attrSize = 128 + 16
	data := bytes.Join(records, nil)
	var ids, attrs []byte
	for _, e := range events {
		b := e.Attr.Append(nil)
		if len(b) != 128 {
			t.Fatal("an attribute of another size")
		}
		attrs = append(attrs, b...)
		attrs = append(attrs, words(uint64(headerBytes+len(ids)), uint64(8*len(e.IDs)))...)
		ids = append(ids, words(e.IDs...)...)
	}
	attrsAt := uint64(headerBytes + len(ids))
	dataAt := attrsAt + uint64(len(attrs))
	featuresAt := dataAt + uint64(len(data))
	desc := describe(events)
	file := append([]byte(magic), words(headerBytes, attrSize, attrsAt, uint64(len(attrs)), dataAt, uint64(len(data)),
		0, 0, 1<<featureEventDesc, 0, 0, 0)...)
	for _, part := range [][]byte{ids, attrs, data, words(featuresAt+16, uint64(len(desc))), desc} {
		file = append(file, part...)
	}
	return file
}

// comm names the program of a process, as perf script wants it before samples. id is that of any event.
func comm(pid, tid uint32, name string, id uint64) []byte {
	return record(RecordComm, 0, words(pair(pid, tid)), padded(name, 8), words(pair(pid, tid), 1, 0, id))
}
