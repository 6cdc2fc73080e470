package rundir

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// tokensFile writes records and returns the file's text.
func tokensFile(t *testing.T, records []TokenRecord) string {
	t.Helper()
	d := create(t)
	w, err := NewTokensWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(1500 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(0); err != nil {
		t.Fatal(err)
	}
	if err := d.Seal(); err != nil {
		t.Fatal(err)
	}
	if r, err := Verify(d.Path()); err != nil || r.Files != 1 || len(r.Extra) != 0 {
		t.Errorf("%+v %v", r, err)
	}
	text, err := os.ReadFile(filepath.Join(d.Path(), TokensName))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func record(index int64, piece string, seqs ...int32) TokenRecord {
	r := TokenRecord{Index: index, ID: int32(index) + 100, Phase: "prefill", Pos: int32(index)}
	r.SetPiece([]byte(piece))
	r.SetSeqs(seqs)
	return r
}

func TestTokensGolden(t *testing.T) {
	got := tokensFile(t, []TokenRecord{record(0, "Grüße <\"", 0), record(1, "\xe2\x82", 1, 2)})
	want := `{
  "total_tokens": 2,
  "tokens": [
    {
      "token_index": 0,
      "token_id": 100,
      "token_text": "Grüße <\"",
      "phase": "prefill",
      "seq_id": 0,
      "pos": 0
    },
    {
      "token_index": 1,
      "token_id": 101,
      "token_text": "�",
      "phase": "prefill",
      "seq_id": 1,
      "seq_ids": [
        1,
        2
      ],
      "pos": 1,
      "token_bytes": "4oI="
    }
  ],
  "capture_duration_seconds": 1.500000
}
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNoTokens(t *testing.T) {
	var file struct {
		Total    int64             `json:"total_tokens"`
		Tokens   []json.RawMessage `json:"tokens"`
		Duration float64           `json:"capture_duration_seconds"`
	}
	if err := json.Unmarshal([]byte(tokensFile(t, nil)), &file); err != nil || file.Tokens == nil || file.Total != 0 ||
		file.Duration != 1.5 {
		t.Errorf("%+v %v", file, err)
	}
}

// No byte of a token's text is lost, whatever the tokenizer cuts.
func TestTokenBytes(t *testing.T) {
	var records []TokenRecord
	pieces := []string{"", "\n\t\x00\x7f\u2028", "\xf0\x9f", "\x98\x80", "ok\xffok", strings.Repeat("é", 5000),
		"\\\"</script>"}
	for i, piece := range pieces {
		records = append(records, record(int64(i), piece))
	}
	var file struct{ Tokens []TokenRecord }
	text := tokensFile(t, records)
	if err := json.Unmarshal([]byte(text), &file); err != nil || !utf8.ValidString(text) {
		t.Fatal(err)
	}
	for i, token := range file.Tokens {
		got := token.Text
		if token.Bytes != "" {
			b, err := base64.StdEncoding.DecodeString(token.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != pieces[i] || token.Seq != nil {
			t.Errorf("token %d is %q, want %q", i, got, pieces[i])
		}
	}
}

// TestTokensAppend: a token is written as encoding/json writes it.
func TestTokensAppend(t *testing.T) {
	seven, zero := int32(7), int32(0)
	for _, text := range []string{"", "func main", "~ x/<>&'", "\"", "\\", "\n", "\b\f\r\t\x01", "\x7f", "ü",
		"a\u2028", "\xffb"} {
		for _, seq := range []*int32{nil, &zero, &seven} {
			for _, ctx := range []uint32{0, math.MaxUint32} {
				r := TokenRecord{Index: math.MaxInt64, ID: -1, Text: text, Phase: "decode", Seq: seq,
					Pos: math.MinInt32,
					Ctx: ctx, Request: seq}
				if seq == &seven {
					r.SetSeqs([]int32{7, 0, -1})
					r.Bytes = base64.StdEncoding.EncodeToString([]byte("\xe2\x82\xfb"))
				}
				var want bytes.Buffer
				encoder := json.NewEncoder(&want)
				encoder.SetEscapeHTML(false)
				encoder.SetIndent("    ", "  ")
				if err := encoder.Encode(r); err != nil {
					t.Fatal(err)
				}
				if got := string(r.append(nil)) + "\n"; got != want.String() {
					t.Errorf("%s\nis not\n%s", got, want.String())
				}
			}
		}
	}
	if fields := reflect.TypeFor[TokenRecord]().NumField(); fields != 10 {
		t.Errorf("%d fields: does append have them all?", fields)
	}
}
