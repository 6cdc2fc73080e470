package tensors

import (
	"strings"
	"testing"
)

func TestNPYHeader(t *testing.T) {
	for _, c := range []struct {
		shape []int64
		want  string
	}{
		{nil, "()"}, {[]int64{5}, "(5,)"}, {[]int64{2, 3}, "(2, 3)"}, {[]int64{0, 4096}, "(0, 4096)"},
	} {
		got, err := AppendNPYHeader(nil, "<f4", c.shape)
		if err != nil {
			t.Fatal(err)
		}
		if len(got)%64 != 0 || got[len(got)-1] != '\n' || int(got[8])|int(got[9])<<8 != len(got)-10 {
			t.Errorf("%v: header of %d bytes is not aligned or states a wrong length: %q", c.shape, len(got), got)
		}
		if want := "\x93NUMPY\x01\x00"; !strings.HasPrefix(string(got), want) {
			t.Errorf("%v: begins with %q", c.shape, got[:8])
		}
		if want := "{'descr': '<f4', 'fortran_order': False, 'shape': " + c.want +
			", }"; strings.TrimRight(string(got[10:]), " \n") != want {
			t.Errorf("%q, not %q", got[10:], want)
		}
	}
	if _, err := AppendNPYHeader(nil, "<f4", make([]int64, 30000)); err == nil {
		t.Error("a header longer than the format can say was written")
	}
}
