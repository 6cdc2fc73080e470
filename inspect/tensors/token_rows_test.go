package tensors

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEachTokenRow: the rows of whole tensors, cut ones included, are those that NewSlice reads, with their tokens;
// samples, packed bytes, tensors without tokens and rows that lie apart are left out.
func TestEachTokenRow(t *testing.T) {
	f := fixture{}
	r := f.open(t)
	got := map[string][]string{}
	check(t, EachTokenRow(context.Background(), r, Filter{}, func(row *TokenRow) error {
		got[row.Packet.Name] = append(got[row.Packet.Name], fmt.Sprint(row.Token, row.Values))
		return nil
	}))
	for _, name := range []string{"l_out-0", "l_out-1", "Qcur-0#2", "result_output"} {
		s, err := NewSlice(r, SliceOptions{Tensor: name})
		check(t, err)
		var b strings.Builder
		check(t, s.WriteJSON(&b))
		var whole struct{ Values []any }
		check(t, json.Unmarshal([]byte(b.String()), &whole))
		var want []string
		for i, token := range s.labels() {
			flat := fmt.Sprint(whole.Values[i])
			want = append(want, fmt.Sprint(token)+" ["+strings.NewReplacer("[", "", "]", "").Replace(flat)+"]")
		}
		if !slices.Equal(got[name], want) {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got[name], want)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("also read: %v", got)
	}
}
