package stream

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
)

var update = flag.Bool("update", false, "write golden files")

// golden, written as version 1.2, is the example of docs/STREAM_FORMAT.md and docs/INDEX_FORMAT.md: one token, one
// tensor.
func golden(t *testing.T) (stream, index []byte) {
	t.Helper()
	h := Header{Major: versionMajor, Minor: 2, Salt: [8]byte{0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7},
		TimeNS: 1_800_000_000_000_000_000, MonoNS: 5_000_000_000,
		Sync: Sync{Policy: SyncInterval, Interval: time.Second}}
	for i := range h.RunID {
		h.RunID[i] = byte(i)
	}
	s, x := newMemory(), newMemory()
	streamOut, indexOut := newOutput("stream", s, streamBuffer), newOutput("index", x, indexBuffer)
	j, err := newJournal(h, indexOut, streamOut)
	if err != nil {
		t.Fatal(err)
	}
	w := &files{stream: streamOut, index: indexOut, journal: j}
	e := Execution{
		Exec: 7, Graph: 2, Phase: label.PhasePrefill, TimeNS: h.TimeNS + 1000, MonoNS: h.MonoNS + 1000,
		Rows: []label.Row{{Token: 300, Seqs: []int32{0}, Phase: label.PhasePrefill, Output: true}},
	}
	p := Packet{
		Name: "layer1", Node: "layer1", Op: "ADD", Occurrence: 1, Layer: 1, Component: label.ComponentResidual,
		Rows:   label.RowsTokens,
		RowDim: 1, Graph: 2, Exec: 7, NodeIndex: 42, Phase: label.PhasePrefill, NE: [4]int64{3, 1, 1, 1}, TokenCount: 1,
		TimeNS: h.TimeNS + 2000, MonoNS: h.MonoNS + 2000,
	}
	b := &batch{items: []item{
		{kind: recordRequest, payload: appendRequest(nil, &label.RequestBegin{})},
		{kind: recordExecution, payload: h.appendExecution(nil, &e), rows: 1},
		{kind: recordPacket, packet: p, data: f32(1, -2, 0.5)},
		{kind: recordCommit},
	}}
	k, err := newPacker(&Options{DType: codec.F16})
	if err != nil {
		t.Fatal(err)
	}
	b.pack(k, false)
	_, err = w.write(b, &Stats{})
	if err := errors.Join(b.err, err, w.finish()); err != nil {
		t.Fatal(err)
	}
	return s.Bytes(), x.Bytes()
}

// The bytes of format version 1 do not change, and the documentation shows them.
func TestGolden(t *testing.T) {
	stream, index := golden(t)
	for name, got := range map[string][]byte{"testdata/golden.stream": stream, "testdata/golden.stream.idx": index} {
		if *update {
			if err := os.WriteFile(name, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v; got\n%swant\n%s", name, err, hex.Dump(got), hex.Dump(want))
		}
	}
	r, err := Open("testdata/golden.stream")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Verify(nil); err != nil || r.Len() != 1 {
		t.Errorf("%d packets, %v", r.Len(), err)
	}
}

func TestDocumentedBytes(t *testing.T) {
	var text []byte
	for _, name := range []string{"STREAM_FORMAT.md", "INDEX_FORMAT.md"} {
		part, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	var shown strings.Builder // every hexadecimal byte of the blocks marked as bytes, in order
	for _, block := range strings.Split(string(text), "```bytes\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, line := range strings.Split(block, "\n") {
			line, _, _ = strings.Cut(line, "|")
			shown.WriteString(strings.ReplaceAll(line, " ", ""))
		}
	}
	stream, index := golden(t)
	want := hex.EncodeToString(stream) + "0000000000040000ff7b" + "000f00000002626c6b2e302e6174746e5f6e6f726d5535" +
		hex.EncodeToString(index)
	if shown.String() != want {
		t.Errorf("the documentation shows\n%s\nand the bytes are\n%s", shown.String(), want)
	}
}
