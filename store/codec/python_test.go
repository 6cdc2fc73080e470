package codec

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// unpackServer answers each request (codec, length, size, payload) with the length and the bytes that the reader
// package unpacks, or with the length ^0 and the refusal's text.
const unpackServer = `
import struct, sys, resource
sys.path.insert(0, sys.argv[1])
from llamatap import codecs
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
read, write = sys.stdin.buffer.read, sys.stdout.buffer.write
while head := read(12):
    codec, n, size = struct.unpack("<III", head)
    data = read(n)
    try:
        out = codecs.unpack(codec, data, size)
        write(struct.pack("<I", len(out)) + out)
    except (ValueError, IndexError, OverflowError, KeyError) as e:
        text = repr(e).encode()
        write(struct.pack("<II", 0xFFFFFFFF, len(text)) + text)
    sys.stdout.buffer.flush()
`

// A pythonDecoder is the decoder of the reader package, in a process of its own.
type pythonDecoder struct {
	in  io.Writer
	out *bufio.Reader
}

func startPythonDecoder(t testing.TB) *pythonDecoder {
	t.Helper()
	python := testenv.NeedPython(t, "numpy", "pyarrow")
	cmd := exec.Command(python, "-c", unpackServer, filepath.Join(testenv.Root(t), "python"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &pythonDecoder{in, bufio.NewReader(out)}
}

// unpack returns what the reader package makes of a payload, or the text with which it refuses it.
func (p *pythonDecoder) unpack(t testing.TB, packed []byte, id ID, size int) (out []byte, refusal string) {
	t.Helper()
	head := binary.LittleEndian.AppendUint32(nil, uint32(id))
	head = binary.LittleEndian.AppendUint32(head, uint32(len(packed)))
	head = binary.LittleEndian.AppendUint32(head, uint32(size))
	next := func() (n uint32) {
		if err := binary.Read(p.out, binary.LittleEndian, &n); err != nil {
			t.Fatalf("the reader package ended at %d bytes of %v for %d: %v", len(packed), id, size, err)
		}
		return n
	}
	if _, err := p.in.Write(append(head, packed...)); err != nil {
		t.Fatal(err)
	}
	n := next()
	refused := n == ^uint32(0)
	if refused {
		n = next()
	}
	out = make([]byte, n)
	if _, err := io.ReadFull(p.out, out); err != nil {
		t.Fatal(err)
	}
	if refused {
		return nil, string(out)
	}
	return out, ""
}

// What Go unpacks, the reader package unpacks to the same bytes; what Go refuses, it refuses. That is for both
// codecs that quantise, of which it has a decoder of its own, whatever the bytes are.
func FuzzPython(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, id := range []ID{Q, QFSE} {
		e, _ := NewEncoder(id)
		for _, row := range rowsFor(r, 300) {
			packed, _, _ := e.AppendRows(nil, row, 150)
			f.Add(uint8(id), packed, uint16(len(row)/4))
		}
	}
	python := startPythonDecoder(f)
	var d Decoder
	f.Fuzz(func(t *testing.T, id uint8, packed []byte, words uint16) {
		codec := ID(id)
		if codec != Q && codec != QFSE || len(packed) == 0 || packed[0] != 2 {
			return // the rest is LZ4, which libraries decode
		}
		size := 4 * int(words)
		want, err := d.Append(nil, packed, codec, size)
		got, refusal := python.unpack(t, packed, codec, size)
		switch {
		case err != nil && refusal == "":
			t.Fatalf("Go refuses (%v), Python does not: %x", err, packed)
		case err == nil && refusal != "":
			t.Fatalf("Python refuses (%s): %x", refusal, packed)
		case err == nil && !bytes.Equal(got, want):
			t.Fatalf("%x is %x in Go and %x in Python", packed, want, got)
		}
	})
}
