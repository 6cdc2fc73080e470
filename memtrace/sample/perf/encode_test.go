package perf

import (
	"encoding/binary"
)

// What the kernel does, for tests: records byte by byte after linux/perf_event.h.

var le = binary.LittleEndian

func words(v ...uint64) (b []byte) {
	for _, w := range v {
		b = le.AppendUint64(b, w)
	}
	return b
}

func pair(first, second uint32) uint64 { return uint64(first) | uint64(second)<<32 }

// record puts a header before a body.
func record(kind uint32, misc uint16, body ...[]byte) []byte {
	b := le.AppendUint32(nil, kind)
	b = le.AppendUint16(b, misc)
	b = append(b, 0, 0)
	for _, part := range body {
		b = append(b, part...)
	}
	le.PutUint16(b[6:], uint16(len(b)))
	return b
}

// name is a string as records have it: ended by a zero, filled up to words.
func name(s string) []byte {
	b := append([]byte(s), 0)
	for len(b)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// everything is a sample with each field that there is, and its attribute.
func everything() (Attr, []byte, Sample) {
	a := Attr{
		SampleType: sampleKnown &^ sampleWeight, ReadFormat: formatGroup | formatID | formatLost | formatEnabled,
		BranchType: branchHWIndex | branchCounters, RegsUser: 0b1011, RegsIntr: 0b1,
	}
	body := words(77, 0x401000, pair(10, 11), 12345, 0x7f0000001000, 77, 78, pair(3, 0), 1000)
	body = append(body, words(2, 500, 1, 2, 3, 4, 5, 6)...)                     // read: two of value, id, lost
	body = append(body, words(3, 1, 2, 3)...)                                   // call chain
	body = append(body, append(le.AppendUint32(nil, 12), "raw data 123"...)...) // raw
	body = append(body, words(2, 9, 1, 2, 3, 4, 5, 6, 7, 8)...)                 // branches: index, two, counters
	body = append(body, words(2, 1, 2, 3)...)                                   // registers
	body = append(body, words(8, 42, 8)...)                                     // stack
	body = append(body, words(250|7<<32|9<<48, 0x68100142, 0)...)               // weight, data source, transaction
	body = append(body, words(2, 1)...)                                         // registers at the interrupt
	body = append(body, words(0xabc000, 5, 4096, 2<<20)...)                     // physical address, cgroup, page sizes
	body = append(body, words(8, 0x11)...)                                      // aux
	return a, body, Sample{
		ID: 77, StreamID: 78, IP: 0x401000, PID: 10, TID: 11, Time: 12345, Addr: 0x7f0000001000, CPU: 3, Period: 1000,
		Raw: []byte("raw data 123"),
		Aux: words(0x11), Weight: 250, Weight2: 7, Weight3: 9, DataSrc: 0x68100142, PhysAddr: 0xabc000,
		DataPageSize: 4096, CodePageSize: 2 << 20,
	}
}
