package rundir

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// plain is what encoding/json writes of a text when it leaves HTML alone.
func plain(t testing.TB, s string) string {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

var texts = []string{
	"", "l_out-3", `a "quoted" \path`, "line\nfeed\ttab\r\b\f\x00\x1f\x7f", "größe 你好 😀",
	"bad \xff\xc3 utf8 \xed\xa0\x80", "<&>\u2028\u2029\u2027", "\xe2\x80",
}

func TestAppendString(t *testing.T) {
	for _, s := range texts {
		if got := string(AppendString(nil, s)); got != plain(t, s) {
			t.Errorf("%q is %s, encoding/json writes %s", s, got, plain(t, s))
		}
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range texts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := AppendString([]byte("x"), s)
		if string(got[1:]) != plain(t, s) {
			t.Errorf("%q is %s, encoding/json writes %s", s, got[1:], plain(t, s))
		}
	})
}

func TestLine(t *testing.T) {
	var l Line
	for range 2 { // the memory is used again
		l.Begin()
		l.Fields([]byte(`"a":1,"b":"x"`))
		l.Fields(nil)
		l.Fields([]byte(`"r":null`))
		l.Key("q")
		l.Quoted(-7)
		l.Open("in")
		l.Int("a", 1)
		l.Int("b", 2)
		l.Shut()
		l.Int("i", -5)
		l.Uint("u", math.MaxUint64)
		l.Float("f", 1234567.25)
		l.Float("small", 1e-12)
		l.Float("nan", math.NaN())
		l.Float("inf", math.Inf(1))
		l.String("s", "\"\n")
		l.Bool("y", true)
		l.Ints("is", []int32{1, -2})
		l.Ints("none", nil)
		l.Floats("fs", []float32{0.1, float32(math.Inf(-1)), 3e38})
		l.Key("k")
		l.Append(func(dst []byte) []byte { return append(dst, "[]"...) })
		var got map[string]any
		if err := json.Unmarshal(l.End(), &got); err != nil {
			t.Fatalf("%s: %v", l.End(), err)
		}
		want := map[string]any{
			"a": 1.0, "b": "x", "r": nil, "q": "-7", "in": map[string]any{"a": 1.0, "b": 2.0}, "i": -5.0,
			"u": float64(math.MaxUint64), "f": 1234570.0, "small": 1e-12, "s": "\"\n", "y": true,
			"is": []any{1.0, -2.0}, "none": []any{}, "fs": []any{0.1, nil, 3e38}, "k": []any{},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read as %v\nwant    %v", got, want)
		}
	}
	l.Begin()
	if got := string(l.End()); got != "{}" {
		t.Errorf("an object without fields is %s", got)
	}
}

func fill(l *Line, i int) []byte {
	l.Begin()
	l.Int("i", int64(i))
	l.Float("f", float64(i)/3)
	l.String("s", "l_out-3 \"größe\"")
	return l.End()
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	testenv.NotWithRace(t)
	d := &fakeDisk{}
	w := d.open(t, LineOptions{BufferBytes: 4096, Limits: []int{0, 1 << 30}, Kinds: []string{"a", "b"}})
	var l Line
	i := 0
	fill(&l, 1<<30)
	if n := testing.AllocsPerRun(1000, func() {
		w.Append(1, fill(&l, i))
		i++
	}); n != 0 {
		t.Errorf("%v allocations per line", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	d := &fakeDisk{forget: true}
	w := d.open(b, LineOptions{})
	var l Line
	b.SetBytes(int64(len(fill(&l, 1)) + 1))
	b.ReportAllocs()
	for i := range b.N {
		w.Append(0, fill(&l, i))
	}
}
