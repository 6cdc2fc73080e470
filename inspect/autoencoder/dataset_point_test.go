package autoencoder

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/ggmlhooks"
	"github.com/llamatap/llamatap/inspect/tensors"
	"github.com/llamatap/llamatap/store/table"
)

// TestDatasetTexts: contexts have the texts of shuffled rows, each of its own sequence, and a mark where tokens are not
// in the dataset.
func TestDatasetTexts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "shard")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	schema := table.Schema{Columns: []table.Column{{Name: "token_index", Kind: table.Int64},
		{Name: "token_text", Kind: table.Text, Null: true}, {Name: "seq_id", Kind: table.Int32, Null: true},
		{Name: "pos", Kind: table.Int32, Null: true}, {Name: "request", Kind: table.Int32, Null: true}}}
	p, err := table.NewParquet(file, schema)
	if err != nil {
		t.Fatal(err)
	}
	b := table.NewBatch(schema)
	for _, token := range []int64{7, 2, 0, 5, 4, 6, 1} { // 3 is missing; from 5 on another sequence
		seq, pos := int64(0), token
		if token >= 5 {
			seq, pos = 1, token-5
		}
		b.Int(0, token)
		b.Text(1, string(rune('a'+token)))
		b.Int(2, seq)
		b.Int(3, pos)
		if err := b.EndRow(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Write(b), p.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	r := &Recordings{sources: []source{&dataset{shards: []string{name}}}}
	e := &Evaluation{Features: []Feature{{Contexts: []Context{{TokenIndex: 4}, {TokenIndex: 6}}}}}
	if err := r.AddTexts(e); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"abc…⟦e⟧", "f⟦g⟧h"} {
		if c := e.Features[0].Contexts[i]; c.Before+"⟦"+c.Token+"⟧"+c.After != want {
			t.Errorf("context %+v, want %s", c, want)
		}
	}
}

// pieces is a run whose tokens are parts of a text.
type pieces struct {
	source
	tokens []tensors.Token
}

func (p pieces) eachToken(_ func(int64) bool, fn func(*tensors.Token) error) error {
	for i := range p.tokens {
		if err := fn(&p.tokens[i]); err != nil {
			return err
		}
	}
	return nil
}

// TestCharacterOfSeveralTokens: neighbours that share a character show it.
func TestCharacterOfSeveralTokens(t *testing.T) {
	var tokens []tensors.Token
	for i, piece := range []string{"a", "\xe6", "\x97", "\xa5", "b", "\xe6\x9c", "\xac", "c"} {
		token := tensors.Token{Index: int64(i), Text: strings.ToValidUTF8(piece, "\uFFFD")}
		if token.Text != piece {
			token.Bytes = []byte(piece)
		}
		tokens = append(tokens, token)
	}
	r := &Recordings{sources: []source{pieces{tokens: tokens}}}
	e := &Evaluation{Features: []Feature{{Contexts: []Context{{TokenIndex: 4}, {TokenIndex: 2}}}}}
	if err := r.AddTexts(e); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a日⟦b⟧本c", "a\uFFFD⟦\uFFFD⟧\uFFFDb本c"} {
		if c := e.Features[0].Contexts[i]; c.Before+"⟦"+c.Token+"⟧"+c.After != want {
			t.Errorf("context %+v, want %s", c, want)
		}
	}
}

// TestOtherModel: recordings of another model than the autoencoder's are refused.
func TestOtherModel(t *testing.T) {
	folder := t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(folder, "data"), 0o700),
		os.WriteFile(filepath.Join(folder, "data", "train-0.parquet"), nil, 0o600),
		os.WriteFile(filepath.Join(folder, "llamatap.json"), []byte(`{"model":"m","tensors":[{"name":"a-0"}]}`), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"": "", "m": "", "n": `of the model "m", and the autoencoder of "n"`} {
		rows, err := OpenRecordings([]string{folder}, Selection{Tensor: "a", Model: model})
		if err == nil {
			rows.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("an autoencoder of %q: %v", model, err)
		}
	}
}

// A dataset that says which tensor is which point has the tensor of a point, and no other; one that does not has the
// tensor that is named.
func TestDatasetPoints(t *testing.T) {
	known := `{"model":"m","tensors":[{"name":"a-0","layer":0},{"name":"b-0","layer":0},{"name":"a-1","layer":1}],
		"run":{"extra":{"points":[{"point":"resid_post","layer":0,"how":"served","tensor":"a-0"},
		{"point":"resid_post","layer":1,"how":"served","tensor":"a-1"},
		{"point":"mlp_out","layer":0,"how":"recomputed","tensor":"b-0"}]}}}`
	var all map[string]any
	if err := json.Unmarshal([]byte(known), &all); err != nil {
		t.Fatal(err)
	}
	delete(all, "run")
	unknown, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	layer := 0
	at := func(p ggmlhooks.Point, layer int) *ggmlhooks.PointRef {
		return &ggmlhooks.PointRef{Point: p, Layer: layer}
	}
	for _, c := range []struct {
		about, want, point string
		what               Selection
	}{
		{known, "a-1", "resid_post", Selection{Point: at(ggmlhooks.PointResidPost, 1)}},
		{known, "a-0", "resid_post", Selection{Point: at(ggmlhooks.PointResidPost, ggmlhooks.NoLayer), Layer: &layer}},
		{known, "2 tensors are selected", "", Selection{Point: at(ggmlhooks.PointResidPost, ggmlhooks.NoLayer)}},
		{known, "0 tensors are selected", "", Selection{Point: at(ggmlhooks.PointMLPOut, 0)}}, // recomputed
		{known, "b-0", "", Selection{Tensor: "b"}},
		{string(unknown), "does not say which of its tensors is mlp_out", "",
			Selection{Point: at(ggmlhooks.PointMLPOut, 0)}},
		{string(unknown), "a-1", "", Selection{Tensor: "a-1"}},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "llamatap.json"), []byte(c.about), 0o600); err != nil {
			t.Fatal(err)
		}
		var d dataset
		about, err := d.open(folder, c.what)
		got := d.column
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || about.Point != c.point && err == nil {
			t.Errorf("%+v: %q of point %q", c.what, got, about.Point)
		}
	}
}
