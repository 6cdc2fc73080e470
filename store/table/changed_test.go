package table

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

var changedColumns = []Column{
	{Name: "few", Kind: Int64}, {Name: "differences", Kind: Int64, Encoding: Delta},
	{Name: "null", Kind: Int32, Null: true}, {Name: "words", Kind: Text}, {Name: "texts", Kind: Text, Encoding: Plain},
}

// changedFile is a table of 4000 rows in pages of 4 KiB.
func changedFile(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	schema := Schema{Columns: changedColumns}
	p, err := NewParquetOptions(&out, schema, Options{PageBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(schema)
	for i := range 4000 {
		b.Int(0, int64(i%17))
		b.Int(1, int64(i)*int64(i))
		if i%3 > 0 {
			b.Int(2, int64(i))
		}
		b.Text(3, fmt.Sprint("w", i%5))
		b.Text(4, fmt.Sprint("text ", i))
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Append(b); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// change changes one to three bytes.
func change(r *rand.Rand, whole []byte) []byte {
	bad := bytes.Clone(whole)
	for range 1 + r.IntN(3) {
		bad[r.IntN(len(bad))] = byte(r.IntN(256))
	}
	return bad
}

func readChanged(text []byte) (all []Values, err error) {
	r, err := NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	for g := range r.Groups() {
		for _, c := range changedColumns {
			v, err := r.Column(g, c.Name)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
	return all, nil
}

// TestChangedBytes changes bytes of a table: it is refused, or has the same values.
func TestChangedBytes(t *testing.T) {
	whole := changedFile(t)
	want, err := readChanged(whole)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		if got, err := readChanged(change(random, whole)); err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("file %d has other values, and no error", i)
		}
	}
}
