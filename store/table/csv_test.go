package table

import (
	"math"
	"strings"
	"testing"
)

func TestCSV(t *testing.T) {
	var text strings.Builder
	third, none, count := 1.0/3, (*float64)(nil), uint32(7)
	out := NewCSV(&text, "a", "b, c", "d", "e", "f")
	out.Row("x\ny", third, &third, none, nil)
	out.Row(int64(-1), uint64(math.MaxUint64), &count, true, math.NaN())
	out.Row(math.Inf(1), math.Inf(-1), 1e21, 0.1, float64(1<<53))
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	const want = "a,\"b, c\",d,e,f\n\"x\ny\",0.3333333333333333,0.3333333333333333,,\n" +
		"-1,18446744073709551615,7,true,\ninf,-inf,1e+21,0.1,9.007199254740992e+15\n"
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
}
