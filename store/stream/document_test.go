package stream_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/store/codec"
	"github.com/llamatap/llamatap/store/label"
	"github.com/llamatap/llamatap/store/stream"
)

// documented returns the rows of the first table of a document that follows a text, without its head.
func documented(t *testing.T, name, after string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), after)
	if !found {
		t.Fatalf("%s has no %q", name, after)
	}
	var rows [][]string
	for _, line := range strings.Split(rest, "\n") {
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "")
		}
		rows = append(rows, cells)
	}
	if len(rows) < 3 {
		t.Fatalf("%s has no table after %q", name, after)
	}
	return rows[2:]
}

// fieldBytes takes fields out of b by a table of offset, size and field; sizes may be sums of numbers and of fields
// before.
func fieldBytes(t *testing.T, rows [][]string, b []byte, order binary.ByteOrder) map[string][]byte {
	t.Helper()
	fields, numbers := map[string][]byte{}, map[string]int{}
	sum := func(text string) int {
		n := 0
		for _, part := range strings.Split(text, "+") {
			part = strings.TrimSpace(part)
			value, err := strconv.Atoi(part)
			if known, ok := numbers[part]; err != nil && ok {
				value = known
			} else if err != nil {
				t.Fatalf("%q is no number, and no field before it", part)
			}
			n += value
		}
		return n
	}
	word := regexp.MustCompile(`^[a-z_]+`)
	for _, row := range rows {
		if row[0] == "" || row[1] == "" { // what follows is described in words
			continue
		}
		name, at := word.FindString(strings.ToLower(row[2])), sum(row[0])
		if name == "" {
			t.Fatalf("a field without a name: %v", row)
		}
		if strings.Contains(row[2], "size of the payload") {
			name = "size"
		}
		size := sum(row[1])
		if at+size > len(b) {
			t.Fatalf("%s ends at %d of %d bytes", name, at+size, len(b))
		}
		if _, twice := fields[name]; twice {
			name += "2"
		}
		fields[name] = b[at : at+size]
		if size <= 8 {
			numbers[name] = int(integer(fields[name], order))
		}
	}
	return fields
}

func integer(b []byte, order binary.ByteOrder) uint64 {
	wide := make([]byte, 8)
	if order == binary.BigEndian {
		copy(wide[8-len(b):], b)
	} else {
		copy(wide, b)
	}
	return order.Uint64(wide)
}

// documentRun writes a stream whose packets have what a packet's record may have.
func documentRun(t *testing.T, o stream.Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "activations.stream")
	w, err := stream.Create(path, o)
	must(t, err)
	must(t, w.AppendExecution(&stream.Execution{Exec: 7, Graph: 3, Rows: []label.Row{{Seqs: []int32{0}}, {Index: 1,
		Seqs: []int32{0}}}}))
	for i, p := range []stream.Packet{{}, {SampleSeed: 5, SampleTotal: 4096}, {Block: 1, Blocks: 3, BlockStart: 1024},
		{}} {
		p.Name, p.Op, p.Occurrence, p.Layer, p.Exec, p.Graph, p.NodeIndex = fmt.Sprintf("l_out-%d",
			i), "ADD", 1, int32(i), 7, 3, int32(i+4)
		p.Node, p.Rows, p.RowDim, p.NE, p.TokenCount = p.Name, label.RowsTokens, 1, [4]int64{512, 2, 1, 1}, 2
		data := make([]byte, 4*1024)
		for k := range 1024 {
			value := math.Sin(float64(k * (i + 1)))
			if i == 3 {
				value *= 1e-9 // is lost in F16
			}
			binary.LittleEndian.PutUint32(data[4*k:], math.Float32bits(float32(value)))
		}
		must(t, w.Append(&p, data, nil))
	}
	must(t, w.Close())
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocumentedStream reads a stream by the table of its document alone.
func TestDocumentedStream(t *testing.T) {
	path := documentRun(t, stream.Options{Codec: codec.LZ4})
	file, err := os.ReadFile(path)
	must(t, err)
	rows := documented(t, "STREAM_FORMAT.md", "## 1. activations.stream")
	var names []string
	for len(file) > 0 {
		f := fieldBytes(t, rows, file, binary.BigEndian)
		names = append(names, string(f["name"]))
		file = file[6+len(f["name"])+len(f["payload"]):]
	}
	if got := strings.Join(names, " "); got != "l_out-0 l_out-1 l_out-2 l_out-3" {
		t.Errorf("packets %s", got)
	}
}

// TestDocumentedQuantised reads the head of a payload of q by the document's table.
func TestDocumentedQuantised(t *testing.T) {
	rows := documented(t, "STREAM_FORMAT.md", "### Quantised rows")
	version := regexp.MustCompile(`version, (\d+)`).FindStringSubmatch(rows[0][2])
	for _, id := range []codec.ID{codec.Q, codec.QFSE} {
		path := documentRun(t, stream.Options{Codec: id, Bound: codec.Bound{Error: 0.004, Metric: codec.NRMSE}})
		file, err := os.ReadFile(path)
		must(t, err)
		r, err := stream.Open(path)
		must(t, err)
		defer r.Close()
		for _, p := range r.Packets() {
			payload := file[p.Offset+6+int64(len(p.Name)):][:p.Stored]
			f := fieldBytes(t, rows, payload, binary.LittleEndian)
			if version == nil || fmt.Sprint(f["version"][0]) != version[1] {
				t.Fatalf("the document says version %v, a packet has %d", version, f["version"][0])
			}
			float := func(name string) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(f[name])) }
			if f["metric"][0]&127 != byte(codec.NRMSE) || float("bound") != 0.004 ||
				float("largest") != p.Error.MaxAbs || float("the") != p.Error.NRMSE {
				t.Errorf("%v: metric %d, bound %v, errors %v and %v, want %+v", id, f["metric"][0], float("bound"),
					float("largest"), float("the"), p.Error)
			}
			n, at := binary.Uvarint(payload[14:])
			count, _ := binary.Uvarint(payload[14+at:])
			// a piece has no rows of the tensor's
			if whole := p.SampleTotal == 0 && p.Blocks <= 1; n*count != 1024 || whole && n != 512 {
				t.Errorf("%v: %d rows of %d", id, count, n)
			}
		}
	}
}

// TestDocumentedIndex reads the packet records of an index by the tables of its document.
func TestDocumentedIndex(t *testing.T) {
	for _, o := range []stream.Options{{}, {Codec: codec.Q}} {
		path := documentRun(t, o)
		index, err := os.ReadFile(path + stream.IndexSuffix)
		must(t, err)
		head := fieldBytes(t, documented(t, "INDEX_FORMAT.md", "## 1. Header"), index, binary.LittleEndian)
		magic := regexp.MustCompile(`magic ([0-9a-f ]+)`).FindStringSubmatch(
			documented(t, "INDEX_FORMAT.md", "## 1. Header")[0][2])
		if got := fmt.Sprintf("% x", head["magic"]); got != strings.TrimSpace(magic[1]) || head["major"][0] != 1 ||
			head["size"][0] != 64 {
			t.Errorf("magic %s, version %d, head of %d bytes", got, head["major"], head["size"])
		}
		r, err := stream.Open(path)
		must(t, err)
		defer r.Close()
		var want []stream.Packet
		for i := range r.Packets() {
			var p stream.Packet
			must(t, r.Packet(i, &p))
			want = append(want, p)
		}
		records, packets := documented(t, "INDEX_FORMAT.md", "## 2. Records"), documented(t, "INDEX_FORMAT.md",
			"**Packet** (2):")
		read, kinds := 0, ""
		for at := int(integer(head["size"], binary.LittleEndian)); at < len(index); {
			f := fieldBytes(t, records, index[at:], binary.LittleEndian)
			at += 12 + len(f["payload"])
			kinds += fmt.Sprint(f["type"][0])
			if f["type"][0] == 2 {
				comparePacket(t, packets, f["payload"], &want[read])
				read++
			}
		}
		if read != len(want) || !strings.HasSuffix(kinds, "7") {
			t.Errorf("%d packets of %d, records %s", read, len(want), kinds)
		}
	}
}

// comparePacket decodes a packet's record field by field.
func comparePacket(t *testing.T, rows [][]string, b []byte, p *stream.Packet) {
	t.Helper()
	got := map[string][]int64{}
	shape := regexp.MustCompile(`^(?:(\d) × )?(uint|int|u8|u32|f32)$`)
	optional := int64(1)
	for _, row := range rows {
		form := shape.FindStringSubmatch(row[1])
		if form == nil {
			t.Fatalf("type %q of field %s", row[1], row[0])
		}
		if strings.HasPrefix(row[0], "*") { // there if its flag is set
			there := got["flags"][0]&optional != 0
			optional <<= 1
			if !there {
				continue
			}
		}
		times, _ := strconv.Atoi(form[1])
		for range max(times, 1) {
			value, n := int64(0), 0
			switch form[2] {
			case "uint":
				var u uint64
				u, n = binary.Uvarint(b)
				value = int64(u)
			case "int":
				value, n = binary.Varint(b)
			case "u8":
				value, n = int64(b[0]), 1
			default:
				value, n = int64(binary.LittleEndian.Uint32(b)), 4
			}
			if n <= 0 {
				t.Fatalf("field %s does not decode", row[0])
			}
			got[strings.Trim(row[0], "*")] = append(got[strings.Trim(row[0], "*")], value)
			b = b[n:]
		}
	}
	if len(b) > 0 {
		t.Errorf("%d bytes behind the last field", len(b))
	}
	want := map[string][]int64{
		"offset": {p.Offset}, "stored": {p.Stored}, "source bytes": {p.SrcBytes}, "raw bytes": {p.RawBytes},
		"dtype": {int64(p.DType)}, "codec": {int64(p.Codec)}, "phase": {int64(p.Phase)}, "graph": {int64(p.Graph)},
		"execution": {int64(p.Exec)}, "node index": {int64(p.NodeIndex)}, "ne": p.NE[:],
		"first token": {p.TokenFirst}, "tokens": {int64(p.TokenCount)},
	}
	if p.Blocks > 1 {
		want["block"] = []int64{int64(p.Block), int64(p.Blocks), p.BlockStart}
	}
	if p.SampleTotal > 0 {
		want["sample"] = []int64{int64(p.SampleSeed), p.SampleTotal}
	}
	if p.Saturated+p.Underflow > 0 {
		want["losses"] = []int64{int64(p.Saturated), int64(p.Underflow)}
	}
	if p.Error != (codec.Achieved{}) {
		want["errors"] = []int64{int64(math.Float32bits(p.Error.MaxAbs)), int64(math.Float32bits(p.Error.NRMSE))}
	}
	for name, value := range want {
		if fmt.Sprint(got[name]) != fmt.Sprint(value) {
			t.Errorf("%s of %s: %v, want %v", name, p.Name, got[name], value)
		}
	}
}
