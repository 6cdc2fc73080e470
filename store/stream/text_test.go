package stream

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/llamatap/llamatap/store/label"
)

// TestTexts: the texts of tokens are in the index before the executions that name them, and stay there when it is
// cut off, repaired or made again.
func TestTexts(t *testing.T) {
	texts := []Text{{Ctx: 0, Token: 5, Piece: []byte("five")}, {Ctx: 1, Token: 5, Piece: []byte("cinq")},
		{Token: 0, Piece: []byte{0xff, 0}}, {Token: 7}}
	for _, c := range []struct {
		name   string
		damage func(index []byte) []byte
	}{
		{"whole", func(index []byte) []byte { return index }},
		{"cut off", func(index []byte) []byte { return index[:len(index)-20] }},
		{"damaged behind them", func(index []byte) []byte { index[len(index)-60] ^= 1; return index }},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.stream")
			w, err := Create(path, Options{Workers: 1})
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			check(err)
			for _, text := range texts {
				check(w.AppendText(text))
			}
			row := label.Row{Token: 5, Phase: label.PhaseDecode, Request: label.RequestUnknown}
			check(w.AppendExecution(&Execution{Exec: 1, Phase: row.Phase, Rows: []label.Row{row}}))
			check(w.Commit())
			check(w.Close())
			index, err := os.ReadFile(path + IndexSuffix)
			check(err)
			check(os.WriteFile(path+IndexSuffix, c.damage(index), 0o600))
			_, err = Repair(path, Assumed{})
			check(err)
			r, err := Open(path)
			check(err)
			defer r.Close()
			n := 0
			for text := range r.Texts() {
				if want := texts[n]; text.Ctx != want.Ctx || text.Token != want.Token ||
					!bytes.Equal(text.Piece, want.Piece) {
					t.Errorf("text %d is %+v, want %+v", n, text, want)
				}
				n++
			}
			if n != len(texts) || r.Err() != nil {
				t.Errorf("%d texts, %v", n, r.Err())
			}
		})
	}
}
