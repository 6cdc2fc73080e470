package tensors

import (
	"math"
	"strings"
	"testing"
)

// minusInf hides a cell.
var minusInf = float32(math.Inf(-1))

func closeTo(t *testing.T, name string, got []float32, want ...float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, not %d", name, len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i])-want[i]) > 1e-6 {
			t.Errorf("%s: cell %d is %v, not %v", name, i, got[i], want[i])
		}
	}
}

func row(t *testing.T, a attention, head, token int) []float32 {
	t.Helper()
	got, err := a.appendRow(nil, head, token)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// twoCells has one head and logits 0 and ln 3 before any change, so that the weights are 1/4 and 3/4.
func twoCells() attention {
	return attention{HeadDim: 1, Heads: 1, KVHeads: 1, Tokens: 1, Cells: 2, Q: []float32{1},
		K: []float32{0, float32(math.Log(3))}, Scale: 1}
}

func TestAttentionKnownAnswers(t *testing.T) {
	a := twoCells()
	closeTo(t, "plain", row(t, a, 0, 0), 0.25, 0.75)
	a.Scale = 2
	closeTo(t, "scale", row(t, a, 0, 0), 0.1, 0.9)
	a = twoCells()
	a.Mask = []float32{0, minusInf}
	closeTo(t, "mask", row(t, a, 0, 0), 1, 0)
	a.Mask = []float32{float32(math.Log(3)), 0}
	closeTo(t, "additive mask", row(t, a, 0, 0), 0.5, 0.5)
	a.Mask = []float32{minusInf, minusInf}
	closeTo(t, "nothing seen", row(t, a, 0, 0), 0, 0)
	a = twoCells()
	a.Sinks = []float32{float32(math.Log(4))}
	closeTo(t, "sink", row(t, a, 0, 0), 0.125, 0.375)
	a.Sinks = []float32{1000}
	closeTo(t, "a sink above everything", row(t, a, 0, 0), 0, 0)
	a = twoCells()
	a.K = []float32{0, 1e6}
	a.SoftCap = math.Log(3)
	closeTo(t, "cap", row(t, a, 0, 0), 0.25, 0.75)
	a.SoftCap = 0
	closeTo(t, "large logits", row(t, a, 0, 0), 0, 1)
}

// TestAttentionLayout gives every head, K head, token and cell a value of its own and compares with the definition
// written out.
func TestAttentionLayout(t *testing.T) {
	a := attention{HeadDim: 3, Heads: 4, KVHeads: 2, Tokens: 2, Cells: 5, Scale: 0.3, SoftCap: 2,
		Sinks: []float32{0.1, -0.2, 0.3, 0.4}}
	for i := 0; i < 3*4*2; i++ {
		a.Q = append(a.Q, float32(math.Sin(float64(i))))
	}
	for i := 0; i < 3*2*5; i++ {
		a.K = append(a.K, float32(math.Cos(float64(7*i))))
	}
	a.Mask = make([]float32, 5*4) // two rows of padding
	a.Mask[1*5+3] = minusInf
	for head := 0; head < 4; head++ {
		for token := 0; token < 2; token++ {
			var weights []float64
			sum := math.Exp(float64(a.Sinks[head]))
			for cell := 0; cell < 5; cell++ {
				var dot float64
				for d := 0; d < 3; d++ {
					dot += float64(a.Q[d+3*head+12*token]) * float64(a.K[d+3*(head/2)+6*cell])
				}
				w := math.Exp(2*math.Tanh(dot*0.3/2) + float64(a.Mask[cell+5*token]))
				weights = append(weights, w)
				sum += w
			}
			for i := range weights {
				weights[i] /= sum
			}
			closeTo(t, "row", row(t, a, head, token), weights...)
		}
	}
}

func TestAttentionErrors(t *testing.T) {
	for name, change := range map[string]func(*attention){
		"empty dimension":         func(a *attention) { a.Cells = 0 },
		"cannot share":            func(a *attention) { a.Heads, a.KVHeads = 3, 2 },
		"Q has 2 elements":        func(a *attention) { a.Q = []float32{1, 2} },
		"K has 1 elements":        func(a *attention) { a.K = a.K[:1] },
		"the mask has 1 elements": func(a *attention) { a.Mask = []float32{0} },
		"there are 2 sinks":       func(a *attention) { a.Sinks = []float32{0, 0} },
	} {
		a := twoCells()
		change(&a)
		if _, err := a.appendRow(nil, 0, 0); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := twoCells()
	if _, err := a.appendRow(nil, 1, 0); err == nil ||
		!strings.Contains(err.Error(), "head 1") {
		t.Errorf("head out of range: %v", err)
	}
}
