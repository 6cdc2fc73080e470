package activations

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/llamatap/llamatap/inspect/sheet"
)

// Picture draws the metric by tensor and token, the logit lens, and cosine and effective rank by layer.
func (a *Analysis) Picture() *sheet.Picture {
	p := &sheet.Picture{Style: sheet.Screen, Note: fmt.Sprintf("%s; %s", filepath.Base(a.Path), a.subject())}
	p.Panels = append(p.Panels, a.heatPanel())
	if a.Lens != nil && len(a.Lens.Rows) > 0 {
		p.Panels = append(p.Panels, a.Lens.panel(a.texts()))
	}
	var residual []*Tensor
	for _, t := range a.Tensors {
		if t.isResidual() && t.Ctx == a.Tensors[0].Ctx {
			residual = append(residual, t)
		}
	}
	if len(residual) > 1 {
		p.Panels = append(p.Panels, layerPanel(residual, "Cosine to the layer before", map[string]func(*Tensor) float64{
			"mean of the tokens": func(t *Tensor) float64 { return t.Cosine.Mean },
			"smallest":           func(t *Tensor) float64 { return t.Cosine.Min }},
			func(t *Tensor) bool { return t.Cosine != nil && t.Cosine.N > 0 }),
			layerPanel(residual, "Effective rank of the sampled tokens", map[string]func(*Tensor) float64{
				"effective rank": func(t *Tensor) float64 { return t.Space.EffectiveRank },
				"sampled tokens": func(t *Tensor) float64 { return float64(t.Space.Tokens) }},
				func(t *Tensor) bool { return t.Space != nil }))
	}
	p.Height = vg.Length(2.6*float64(len(p.Panels))+0.3) * vg.Inch
	return p
}

// heatPanel draws the metric as a heat map; where all values are positive, their logarithms.
func (a *Analysis) heatPanel() *plot.Plot {
	var tokens []int64
	low, high := math.Inf(1), math.Inf(-1)
	for _, t := range a.Tensors {
		for i := range t.Rows {
			tokens = append(tokens, t.Rows[i].Token)
			if v := t.Rows[i].metric(a.Metric); !math.IsNaN(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	slices.Sort(tokens)
	tokens = slices.Compact(tokens)
	scale, how := func(v float64) float64 { return v }, "linear"
	if low > 0 {
		scale, how = math.Log, "logarithmic"
	}
	p := sheet.Screen.Panel(fmt.Sprintf("%s by tensor and token: light is %.4g, dark %.4g, %s", a.Metric, low, high,
		how))
	boxes := &sheet.Boxes{}
	var ticks sheet.Fixed
	every := (len(a.Tensors) + 11) / 12
	for y, t := range a.Tensors {
		if y%every == 0 {
			ticks = append(ticks, plot.Tick{Value: float64(y) + 0.5, Label: t.Name})
		}
		for i := range t.Rows {
			x, _ := slices.BinarySearch(tokens, t.Rows[i].Token)
			share := (scale(t.Rows[i].metric(a.Metric)) - scale(low)) / max(scale(high)-scale(low), 1e-300)
			if !math.IsNaN(share) {
				boxes.All = append(boxes.All, sheet.Box(float64(x), float64(y), float64(x+1), float64(y+1),
					sheet.Shade(share)))
			}
		}
	}
	p.X.Min, p.X.Max, p.X.Label.Text = 0, float64(len(tokens)), "token"
	for _, step := range sheet.Steps(0, float64(len(tokens)), 10) {
		if at := int(step.Value); step.Label != "" && at < len(tokens) {
			p.X.Tick.Marker = append(fixed(p.X.Tick.Marker), plot.Tick{Value: float64(at) + 0.5,
				Label: strconv.FormatInt(tokens[at], 10)})
		}
	}
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker, p.Y.Tick.Length = 0, float64(len(a.Tensors)), ticks, 0
	p.Add(boxes)
	return p
}

// fixed are an axis's own ticks; none where it still has the usual ones.
func fixed(t plot.Ticker) sheet.Fixed {
	f, _ := t.(sheet.Fixed)
	return f
}

// layerPanel draws figures of layers as curves.
func layerPanel(tensors []*Tensor, title string, figures map[string]func(*Tensor) float64,
	has func(*Tensor) bool) *plot.Plot {
	p := sheet.Screen.Panel(title)
	p.X.Label.Text = "layer"
	p.Add(sheet.Both)
	least, most := 0.0, 0.0
	names := make([]string, 0, len(figures))
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		var x, y []float64
		for _, t := range tensors {
			if has(t) {
				x, y = append(x, float64(t.Layer)), append(y, figures[name](t))
				least, most = min(least, y[len(y)-1]), max(most, y[len(y)-1])
			}
		}
		curve := sheet.NewCurve(x, y, sheet.Curves[i], 1.2)
		p.Add(curve)
		p.Legend.Add(name, curve)
	}
	p.X.Min, p.X.Max = float64(tensors[0].Layer)-0.5, float64(tensors[len(tensors)-1].Layer)+0.5
	var ticks sheet.Fixed
	for i, t := range tensors {
		if i%((len(tensors)+15)/16) == 0 {
			ticks = append(ticks, plot.Tick{Value: float64(t.Layer), Label: strconv.Itoa(t.Layer)})
		}
	}
	p.X.Tick.Marker = ticks
	sheet.FromZero(&p.Y, most+0.4*(most-least)) // with room for the legend
	if least < 0 {
		p.Y.Min, p.Y.Tick.Marker = least, sheet.Steps(least, p.Y.Max, 5)
	}
	return p
}

// panel draws the lens: for layers and tokens the most probable next token, shaded by its probability.
func (l *Lens) panel(texts map[int64]any) *plot.Plot {
	const mostTokens, mostLayers, mostLetters = 8, 12, 12
	p := sheet.Screen.Panel("Logit lens: the most probable next token after each layer; dark is a probability of 1")
	var tokens []int64
	for _, r := range slices.Backward(l.Rows) {
		if !slices.Contains(tokens, r.Token) && len(tokens) < mostTokens {
			tokens = append(tokens, r.Token)
		}
	}
	slices.Sort(tokens)
	boxes := &sheet.Boxes{Line: sheet.White}
	var words []plot.Plotter
	var x, y sheet.Fixed
	layers := []int{}
	for _, r := range l.Rows {
		if !slices.Contains(layers, r.Layer) {
			layers = append(layers, r.Layer)
		}
	}
	slices.Sort(layers)
	if n := len(layers); n > mostLayers { // evenly, with the last one
		for i := range mostLayers {
			layers[i] = layers[(i+1)*n/mostLayers-1]
		}
		layers = layers[:mostLayers]
	}
	for i, layer := range layers {
		y = append(y, plot.Tick{Value: float64(i) + 0.5, Label: "layer " + strconv.Itoa(layer)})
	}
	for i, token := range tokens {
		label := strconv.FormatInt(token, 10)
		if word, ok := texts[token].(tokenText); ok {
			label += " " + shorten(strconv.Quote(string(word)), mostLetters)
		}
		x = append(x, plot.Tick{Value: float64(i) + 0.5, Label: label})
	}
	for _, r := range l.Rows {
		at, row := slices.Index(tokens, r.Token), slices.Index(layers, r.Layer)
		if at < 0 || row < 0 || len(r.Top) == 0 {
			continue
		}
		best := r.Top[0]
		boxes.All = append(boxes.All, sheet.Box(float64(at), float64(row), float64(at+1), float64(row+1),
			sheet.Shade(best.Probability*0.8)))
		ink := sheet.Black
		if best.Probability > 0.6 {
			ink = sheet.White
		}
		words = append(words, sheet.Note{X: float64(at) + 0.5, Y: float64(row) + 0.5, Align: text.XCenter, Color: ink,
			Text: shorten(strconv.Quote(best.Text), mostLetters)})
	}
	p.X.Min, p.X.Max, p.X.Tick.Marker, p.X.Label.Text = 0, float64(len(tokens)), x, "token"
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker, p.Y.Tick.Length = 0, float64(len(layers)), y, 0
	p.Add(boxes)
	p.Add(words...)
	return p
}

// shorten cuts a text to so many letters.
func shorten(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
