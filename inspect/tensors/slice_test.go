package tensors

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRowShape(t *testing.T) {
	for _, c := range []struct {
		ne   [4]int64
		dim  int
		want string
	}{
		{[4]int64{128, 7, 1, 1}, 1, "[128]"},
		{[4]int64{64, 4, 7, 1}, 2, "[4 64]"},
		{[4]int64{64, 1, 7, 1}, 2, "[1 64]"},
		{[4]int64{7, 1, 1, 1}, 0, "[]"},
		{[4]int64{32, 7, 4, 1}, 1, "[4 32]"},
		{[4]int64{32, 7, 1, 2}, 1, "[2 1 32]"},
	} {
		if got := fmt.Sprint(rowShape(c.ne, c.dim)); got != c.want {
			t.Errorf("%v, rows in dimension %d: %s, not %s", c.ne, c.dim, got, c.want)
		}
	}
}

// TestTokenFirst moves the row dimension of a small tensor to the front and compares every element with its place.
func TestTokenFirst(t *testing.T) {
	const inner, rows, outer = 3, 4, 2
	var src []byte
	for o := range outer {
		for row := range rows {
			for i := range inner {
				src = append(src, byte(100*o+10*row+i))
			}
		}
	}
	var want []byte
	for row := range rows {
		for o := range outer {
			for i := range inner {
				want = append(want, byte(100*o+10*row+i))
			}
		}
	}
	for cut := range len(src) {
		for window := 1; window <= len(src); window++ {
			var got []byte
			for from := 0; from < len(src); from += window {
				dst := make([]byte, min(window, len(src)-from))
				pt := &part{form: &form{outer: outer, total: rows}}
				copyTokenFirst(dst, int64(from), src[:cut], 0, pt, inner*outer)
				copyTokenFirst(dst, int64(from), src[cut:], int64(cut), pt, inner*outer)
				got = append(got, dst...)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("cut at %d, in stretches of %d: %v, not %v", cut, window, got, want)
			}
		}
	}
}

func TestGeneralName(t *testing.T) {
	for _, c := range [][3]string{
		{"l_out-3", "l_out-3", "l_out"}, {"Qcur-0#2", "Qcur-0", "Qcur#2"},
		{"result_output", "result_output", "result_output"},
		{"node_24", "node_24", "node_24"}, {"layer-7", "", "layer"},
	} {
		if got := generalName(c[0], c[1]); got != c[2] {
			t.Errorf("%s of %s: %s, not %s", c[0], c[1], got, c[2])
		}
	}
}

func TestReadTokens(t *testing.T) {
	const file = `{"total_tokens": 2, "tokens": [
  {"token_index": 0, "token_id": 5, "token_text": "é", "phase": "prefill", "seq": 0, "pos": 0},
  {"token_index": 1, "token_id": 6, "token_text": "\"", "seqs": [0, 3]}
], "capture_duration_seconds": 1.5}`
	var got []string
	total, err := ReadTokens(strings.NewReader(file), func(tok *Token) error {
		got = append(got, fmt.Sprintf("%d %d %s %q %v %v", tok.Index, tok.ID, tok.Text, tok.Phase, tok.Seq != nil,
			tok.Pos != nil))
		return nil
	})
	want := []string{`0 5 é "prefill" true true`, `1 6 " "" false false`}
	if err != nil || total != 2 || !slices.Equal(got, want) {
		t.Errorf("%d %q %v", total, got, err)
	}
	for _, bad := range []string{"", "[]", "{", `{"tokens": []}`, `{"total_tokens": 1, "tokens": [`,
		`{"total_tokens": "x"}`, `{"total_tokens": 1, "tokens": 3}`} {
		if _, err := ReadTokens(strings.NewReader(bad), nil); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzReadTokens(f *testing.F) {
	f.Add(`{"total_tokens": 1, "tokens": [{"token_index": 0, "seq": [1]}]}`)
	f.Add(`{"tokens": [], "total_tokens": 0, "x": {"y": [1, null]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if total, err := ReadTokens(strings.NewReader(text), func(*Token) error { return nil }); err == nil &&
			total < 0 {
			t.Errorf("total %d", total)
		}
	})
}
