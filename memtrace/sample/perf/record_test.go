package perf

import (
	"errors"
	"reflect"
	"testing"
)

func TestSampleWithEverything(t *testing.T) {
	a, body, want := everything()
	var got Sample
	if err := a.decodeSample(body, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for n := range len(body) {
		if err := a.decodeSample(body[:n], &got); !errors.Is(err, ErrRecord) {
			t.Fatalf("%d of %d bytes are taken: %v", n, len(body), err)
		}
	}
	a.SampleType |= 1 << 40
	if err := a.decodeSample(body, &got); !errors.Is(err, ErrRecord) {
		t.Errorf("an unknown field is taken: %v", err)
	}
}

// TestSampleShort: of fields that may be empty nothing follows.
func TestSampleShort(t *testing.T) {
	a := Attr{SampleType: sampleRead | sampleRegsUser | sampleStackUser | sampleWeight | sampleDataSrc,
		ReadFormat: formatRunning | formatEnabled}
	var s Sample
	if err := a.decodeSample(words(1, 2, 3, 0, 0, 99, 0x42), &s); err != nil || s.Weight != 99 || s.DataSrc != 0x42 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestRecords(t *testing.T) {
	a := Attr{SampleType: sampleIdentifier | sampleTID | sampleTime | sampleCPU | sampleIP, Flags: flagSampleIDAll}
	d := newDecoder([]Event{{Attr: Attr{SampleType: a.SampleType | sampleAddr, Flags: a.Flags}, IDs: []uint64{5}},
		{Attr: a, IDs: []uint64{6}}})
	trailer := words(pair(20, 21), 999, pair(1, 0), 6)
	who := Sample{PID: 20, TID: 21, Time: 999, CPU: 1, ID: 6}
	for what, c := range map[string]struct {
		raw  []byte
		want Record
	}{
		"comm": {record(RecordComm, 0, words(pair(20, 21)), name("llama"), trailer),
			Record{Type: RecordComm, PID: 20, TID: 21, Name: []byte("llama")}},
		"exit": {record(RecordExit, 0, words(pair(20, 1), pair(22, 2), 998), trailer),
			Record{Type: RecordExit, PID: 20, ParentPID: 1, TID: 22, ParentTID: 2}},
		"fork": {record(RecordFork, 0, words(pair(20, 20), pair(23, 21), 998), trailer),
			Record{Type: RecordFork, PID: 20, ParentPID: 20, TID: 23, ParentTID: 21}},
		"mmap2": {record(RecordMmap2, 2, words(pair(20, 21), 0x1000, 0x2000, 0x3000, 0, 0, 0, pair(5, 2)),
			name("/lib/x"), trailer),
			Record{Type: RecordMmap2, Misc: 2, PID: 20, TID: 21, Addr: 0x1000, Length: 0x2000, Offset: 0x3000, Prot: 5,
				Name: []byte("/lib/x")}},
		"mmap": {record(RecordMmap, 0, words(pair(20, 21), 1, 2, 3), name("y"), trailer),
			Record{Type: RecordMmap, PID: 20, TID: 21, Addr: 1, Length: 2, Offset: 3, Name: []byte("y")}},
		"lost":     {record(recordLost, 0, words(6, 1234), trailer), Record{Type: recordLost, Lost: 1234}},
		"samples":  {record(recordLostSamples, 0, words(56), trailer), Record{Type: recordLostSamples, Lost: 56}},
		"throttle": {record(recordThrottle, 0, words(1, 2, 3), trailer), Record{Type: recordThrottle}},
		"aux": {record(recordAux, 0, words(1, 2, 3), trailer),
			Record{Type: recordAux, AuxOffset: 1, AuxSize: 2, AuxFlags: 3}},
	} {
		var got Record
		if err := d.Decode(c.raw, &got); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		c.want.Event, c.want.Sample, got.Body = 1, who, nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", what, got, c.want)
		}
		if err := d.Decode(c.raw[:len(c.raw)-8], &got); err == nil {
			t.Errorf("%s: torn, and taken", what)
		}
	}
}

func TestDecoderFindsEvents(t *testing.T) {
	type event = Event
	plain := Attr{SampleType: sampleIP}
	byID := Attr{SampleType: sampleIP | sampleTID | sampleID | sampleCPU}
	var r Record
	d := newDecoder([]event{{Attr: byID, IDs: []uint64{1, 2}}, {Attr: byID, IDs: []uint64{3}}})
	if err := d.Decode(record(recordSample, 0, words(0x10, 0, 3, 0)), &r); err != nil || r.Event != 1 ||
		r.Sample.ID != 3 {
		t.Errorf("by id: %v %+v", err, r)
	}
	if err := d.Decode(record(recordSample, 0, words(0x10, 0, 4, 0)), &r); !errors.Is(err, ErrRecord) {
		t.Errorf("an id that nobody has is taken: %v", err)
	}
	d = newDecoder([]event{{Attr: plain}, {Attr: plain}})
	if err := d.Decode(record(recordSample, 0, words(0x10)), &r); !errors.Is(err, ErrRecord) {
		t.Errorf("two events without ids: %v", err)
	}
	d = newDecoder([]event{{Attr: plain}})
	if err := d.Decode(record(recordSample, 0, words(0x10)), &r); err != nil || r.Sample.IP != 0x10 {
		t.Errorf("the only event: %v %+v", err, r)
	}
	if err := d.Decode(record(70, 0, words(1)), &r); err != nil || r.Event != -1 {
		t.Errorf("a record of perf: %v %+v", err, r)
	}
	for _, b := range [][]byte{nil, make([]byte, 8), record(recordSample, 0, words(1))[:12]} {
		if err := d.Decode(b, &r); !errors.Is(err, ErrRecord) {
			t.Errorf("%x is taken: %v", b, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	a, body, _ := everything()
	f.Add(a.Append(nil), record(recordSample, 0, body))
	f.Add(a.Append(nil), record(RecordMmap2, 0, words(1, 2, 3, 4, 5, 6, 7, 8), name("x"), words(1, 2, 3, 4)))
	f.Fuzz(func(t *testing.T, attr, raw []byte) {
		a, err := parseAttr(attr)
		if err != nil {
			return
		}
		var r Record
		d := newDecoder([]Event{{Attr: a}})
		if err := d.Decode(raw, &r); err == nil && len(r.Sample.Raw) > len(raw) {
			t.Error("more than there was")
		}
	})
}

// TestVectorRegisters reads samples of kernels that also write vector registers.
func TestVectorRegisters(t *testing.T) {
	a := Attr{SampleType: sampleIP | sampleRegsUser | sampleRegsIntr | samplePhysAddr, RegsUser: 0b11, RegsIntr: 0b1}
	vectors := words(2|4<<16|1<<32|1<<48, 1, 2, 3, 4, 5, 6, 7, 8, 9) // two of four words, one predicate of one
	body := append(words(0x10, 2|regsSIMD, 1, 2), vectors...)
	body = append(body, words(2, 5, 0xabc)...)
	var s Sample
	if err := a.decodeSample(body, &s); err != nil || s.PhysAddr != 0xabc {
		t.Errorf("%+v, %v", s, err)
	}
	if err := a.decodeSample(body[:len(body)-24], &s); !errors.Is(err, ErrRecord) {
		t.Errorf("torn, and taken: %v", err)
	}
}
