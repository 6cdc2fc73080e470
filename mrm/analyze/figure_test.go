package analyze

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/inspect/sheet"
	"github.com/llamatap/llamatap/memtrace"
)

// data is of a run of 40 s that never was: weights that are read all the time, a cache that grows, activations that
// live for milliseconds.
func data() *figureData {
	r := rand.New(rand.NewPCG(1, 2))
	weights, cache, activations := &memtrace.Survival{}, &memtrace.Survival{}, &memtrace.Survival{}
	weights.Add(40e9, 600<<20, true)
	for range 400 {
		cache.Add(int64(math.Exp(r.Float64()*6)*1e8), 4096, r.IntN(3) == 0)
		activations.Add(int64(math.Exp(r.NormFloat64())*3e6), 65536, false)
	}
	d := &figureData{Title: "model-7b-Q4_K, context 4096", Note: "prompt p0, run_20261121_120000_ab12",
		Lives: []typeLives{{"weight", weights}, {"kv_cache", cache}, {"activation", activations}}}
	d.Subjects = []subject{
		{Type: memtrace.Weight, Name: "w", Bytes: 600 << 20, Seconds: 40, BytesRead: 600 << 30, Lives: weights,
			Written: 600 << 20, WrittenOnce: 600 << 20},
		{Type: memtrace.KVCache, Name: "k", Bytes: 16 << 20, Seconds: 40, BytesRead: 4 << 30, BytesWritten: 16 << 20,
			Lives: cache, Written: 16 << 20, WrittenOnce: 15 << 20},
		{Type: memtrace.Activation, Name: "a", Bytes: 2 << 20, Seconds: 40, BytesRead: 40 << 30,
			BytesWritten: 38 << 30, Lives: activations, Written: 2 << 20},
	}
	all := builtinClasses()
	d.Report = whatIf(d.Subjects, all, all.Classes, demandOptions{Tokens: 400})
	d.Phases = []phaseBytes{{"weight_load", "weight", 0, 600 << 20}, {"generation", "weight", 600 << 30, 0},
		{"generation", "kv_cache", 4 << 30, 16 << 20}, {"generation", "activation", 40 << 30, 38 << 30}}
	heat := &heatData{BinS: 0.25, Bins: 160}
	for _, p := range []heatPanelData{{"weight", 600 << 20, 64, nil}, {"kv_cache", 16 << 20, 64, nil},
		{"activation", 2 << 20, 64, nil}} {
		p.Touched = make([]float64, p.Rows*heat.Bins)
		for row := range p.Rows {
			for bin := range heat.Bins {
				switch {
				case p.Type == "kv_cache" && row > bin*p.Rows/heat.Bins:
				case p.Type == "activation":
					p.Touched[row*heat.Bins+bin] = p.Bytes / float64(p.Rows) * math.Exp(4*r.Float64())
				default:
					p.Touched[row*heat.Bins+bin] = p.Bytes / float64(p.Rows) * 2.5
				}
			}
		}
		heat.Panels = append(heat.Panels, p)
	}
	d.Heat = heat
	d.Working = &workingData{WindowS: 0.2, Granularity: 64}
	for _, kind := range []struct {
		name string
		base float64
	}{{"weight", 600 << 20}, {"kv_cache", 1 << 18}, {"activation", 1 << 20}} {
		t := workingType{Type: kind.name}
		for i := range 200 {
			v := kind.base
			if kind.name == "kv_cache" {
				v *= 1 + float64(i)/4
			}
			if i%50 == 7 {
				v = 0
			}
			t.Bytes = append(t.Bytes, v)
		}
		d.Working.Types = append(d.Working.Types, t)
	}
	d.KV = &kvLivesData{Name: "the base cache, k of layer 0", Blocks: 64, Cells: 32, Seconds: 40}
	for i := range int64(64) {
		l := kvLife{Block: i, From: float64(i) / 2, To: 40, LastRead: 40 - 3*r.Float64()}
		if i%5 == 0 {
			l.To, l.LastRead, l.Reason = l.From+6, l.From+4, []string{"seq_rm", "clear", "overwrite", "seq_keep"}[i/5%4]
		}
		d.KV.Lives = append(d.KV.Lives, l)
	}
	d.KV.More = 12
	return d
}

// TestDraw: every figure is drawn in all forms; none is blank, nothing stands at an edge, SVG is well formed and
// has its letters as letters, but no fonts, and PDF has neither.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	if keep := os.Getenv("LLAMATAP_PICTURES"); keep != "" {
		dir = keep
	}
	paths, err := drawFigures(data(), dir, sheet.Forms)
	if err != nil || len(paths) != 3*len(runFigures) {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		switch filepath.Ext(path) {
		case ".svg":
			checkSVG(t, path)
		case ".pdf":
			checkPDF(t, path)
		default:
			checkPNG(t, path)
		}
	}
}

func checkPNG(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	picture, err := png.Decode(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	b, coloured := picture.Bounds(), 0
	if w := b.Dx(); w != 1051 && w != 1052 && w < 2160 {
		t.Errorf("%s: %d pixels wide, which is no column and no page", path, w)
	}
	for y := range b.Dy() {
		for x := range b.Dx() {
			r, g, bl, _ := picture.At(x, y).RGBA()
			white := r+g+bl == 3*0xffff
			if !white && (x < 2 || y < 2 || x >= b.Dx()-2 || y >= b.Dy()-2) {
				t.Fatalf("%s: something stands at the edge, at %d, %d", path, x, y)
			}
			if max(r, g, bl)-min(r, g, bl) > 0x2800 {
				coloured++
			}
		}
	}
	if share := float64(coloured) / float64(b.Dx()*b.Dy()); share < 0.0005 || share > 0.9 {
		t.Errorf("%s: %.5f of it is coloured", path, share)
	}
}

func checkPDF(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(data, []byte("%PDF-")) || bytes.Contains(data, []byte("/FontFile")) || len(data) < 5000 ||
		len(data) > 400<<10 {
		t.Errorf("%s: %d bytes, or fonts in it", path, len(data))
	}
	_, after, _ := bytes.Cut(data, []byte("startxref\n"))
	number, end, _ := bytes.Cut(after, []byte("\n"))
	at, err := strconv.Atoi(string(number))
	if err != nil || at >= len(data) || !bytes.HasPrefix(data[at:], []byte("xref")) ||
		string(bytes.TrimSpace(end)) != "%%EOF" {
		t.Errorf("%s: no table of objects where its end says: %q, %v", path, after, err)
	}
}

func checkSVG(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(string(data)))
	texts := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if begin, ok := token.(xml.StartElement); ok && begin.Name.Local == "text" {
			texts++
		}
	}
	if texts < 5 || strings.Contains(string(data), "@font-face") ||
		strings.Count(string(data), "Liberation Sans,Arial,Helvetica,sans-serif;") < texts {
		t.Errorf("%s: %d texts, or fonts in it", path, texts)
	}
	if len(data) > 200<<10 {
		t.Errorf("%s: %d bytes", path, len(data))
	}
}

// TestLittle: what is hard to draw, and nothing at all; old figures go when there is nothing to draw.
func TestLittle(t *testing.T) {
	one := &memtrace.Survival{}
	one.Add(0, 5, false)
	censored := &memtrace.Survival{}
	censored.Add(1e9, 5, true)
	full := data()
	for name, c := range map[string]struct {
		d    *figureData
		want int
	}{
		"nothing":      {&figureData{}, 0},
		"zero lives":   {&figureData{Lives: []typeLives{{"weight", one}}}, 0},
		"all censored": {&figureData{Lives: []typeLives{{"weight", censored}}}, 1},
		"one block":    {&figureData{KV: &kvLivesData{Name: "c", Cells: 1, Lives: []kvLife{{To: 1e-6}}}}, 1},
		"one cell": {&figureData{Heat: &heatData{BinS: 1, Bins: 1,
			Panels: []heatPanelData{{"weight", 1, 1, []float64{3}}}}}, 1},
		"untouched": {&figureData{Heat: &heatData{BinS: 1, Bins: 1,
			Panels: []heatPanelData{{"weight", 1, 1, []float64{0}}}}}, 0},
		"one window": {&figureData{Working: &workingData{WindowS: 1,
			Types: []workingType{{"weight", []float64{1}}}}}, 1},
		"no bytes": {&figureData{Working: &workingData{WindowS: 1,
			Types: []workingType{{"weight", []float64{0}}}}, Phases: []phaseBytes{{"generation", "weight", 0, 0}}}, 0},
		"unknown phase":   {&figureData{Phases: []phaseBytes{{"phase(9)", "region_type(12)", 1, 0}}}, 1},
		"a table alone":   {&figureData{Report: full.Report}, 1},
		"one subject":     {&figureData{Subjects: full.Subjects[:1]}, 1},
		"without lives":   {&figureData{Subjects: []subject{{Type: memtrace.Activation, Bytes: 1, Seconds: 1}}}, 0},
		"everything else": {&figureData{Title: strings.Repeat("long ", 30), Lives: full.Lives, Report: full.Report}, 2},
	} {
		dir := t.TempDir()
		if name == "nothing" {
			if _, err := drawFigures(full, dir, []string{"svg"}); err != nil {
				t.Fatal(err)
			}
		}
		paths, err := drawFigures(c.d, dir, []string{"png"})
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(paths) != c.want || len(left) != c.want {
			t.Errorf("%s: %d figures, %d files, %v", name, len(paths), len(left), err)
		}
		if testing.Short() {
			break
		}
	}
	if _, err := drawFigures(full, "/dev/null/x", sheet.Forms); err == nil {
		t.Error("a folder that cannot be")
	}
}

func TestFigureTexts(t *testing.T) {
	for got, want := range map[string]string{
		sheet.TimeDecade(-9): "1 ns", sheet.TimeDecade(-8): "10 ns", sheet.TimeDecade(-4): "100 µs",
		sheet.TimeDecade(-3): "1 ms", sheet.TimeDecade(-1): "100 ms", sheet.TimeDecade(0): "1 s",
		sheet.TimeDecade(3): "1000 s", sheet.TimeDecade(7): "1e7 s", sheet.ByteDecade(0): "1 B",
		sheet.ByteDecade(5): "100 kB", sheet.ByteDecade(6): "1 MB", sheet.ByteDecade(16): "10 PB",
		sheet.ByteDecade(19): "10 EB", sheet.Power(-3): "0.001", sheet.Power(-5): "1e-5", sheet.Power(2): "100",
		sheet.WithUnit(sheet.TimeUnits, 90): "1.5 min", sheet.WithUnit(sheet.ByteUnits, 1536): "1.5 KiB",
		sheet.WithUnit(sheet.TimeUnits, 0): "0 ns",
		sheet.Wrap("STT-MRAM 10 ms", 10):   "STT-MRAM\n10 ms",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for list, want := range map[string]string{"": "png,svg,pdf", "svg": "svg", "PNG, svg,png": "png,svg",
		"gif": `unsupported image format "gif": use png, svg or pdf`} {
		got, err := sheet.ParseForms(list)
		if text := strings.Join(got, ","); err == nil && text != want || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v", list, text, err)
		}
	}
}

// TestWarning: what is not to be published says so in every picture, in letters of its own.
func TestWarning(t *testing.T) {
	d := data()
	d.Warning = "contaminated, not to be published"
	dir := t.TempDir()
	plain, err := drawFigures(data(), t.TempDir(), []string{"svg"})
	if err != nil {
		t.Fatal(err)
	}
	paths, err := drawFigures(d, dir, []string{"svg"})
	if err != nil || len(paths) != len(plain) {
		t.Fatal(paths, err)
	}
	for i, path := range paths {
		marked, err := os.ReadFile(path)
		if err != nil || strings.Count(string(marked), d.Warning) != 1 {
			t.Errorf("%s is not marked: %v", path, err)
		}
		if clean, err := os.ReadFile(plain[i]); err != nil || strings.Contains(string(clean), d.Warning) {
			t.Errorf("%s is marked: %v", plain[i], err)
		}
		if strings.Count(string(marked), ">"+d.Title+"<") != 1 || strings.Count(string(marked), ">"+d.Note+"<") != 1 {
			t.Errorf("%s lacks title or note", path)
		}
	}
}

// texts are the texts of a picture in SVG, with the sizes of their letters.
func texts(t *testing.T, path string) map[string]float64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, size := map[string]float64{}, 0.0
	decoder := xml.NewDecoder(bytes.NewReader(data))
	for token, err := decoder.Token(); err == nil; token, err = decoder.Token() {
		switch token := token.(type) {
		case xml.StartElement:
			size = 0
			for _, a := range token.Attr {
				if _, after, ok := strings.Cut(a.Value, "font-size:"); ok && token.Name.Local == "text" {
					number, _, _ := strings.Cut(after, "px")
					size, _ = strconv.ParseFloat(number, 64)
				}
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); size > 0 && text != "" {
				all[text] = size
			}
		}
	}
	return all
}

// TestLegends: every colour and kind of line that a chart has is explained in it.
func TestLegends(t *testing.T) {
	dir := t.TempDir()
	if _, err := drawFigures(data(), dir, []string{"svg"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"refresh_by_retention": {"weight", "kv_cache", "activation", "at most: censored lives last all day",
			"at least: they end with the run", "1 EB"},
		"retention_cdf": {"censored", "censored lives counted as ended", "1 s and 10 s, thresholds of mrm-trace"},
		"kv_block_lives": {"read later, live at the end", "read later, ended by overwrite", "held after its last read",
			"12 more lives are not drawn"},
		"working_set":    {"weight", "kv_cache", "activation"},
		"access_heatmap": {"2", "5", "10", "20"},
	} {
		drawn := texts(t, filepath.Join(dir, name+".svg"))
		for _, text := range want {
			if drawn[text] == 0 {
				t.Errorf("%s: no %q among %v", name, text, drawn)
			}
		}
	}
}

// TestLongTitle: a title stays in the picture and can be read.
func TestLongTitle(t *testing.T) {
	dir := t.TempDir()
	for title, isWhole := range map[string]bool{"Meta Llama 3.1 8B Instruct, Q4_K_M, context 131072": true,
		strings.Repeat("a long name ", 20): false} {
		d := &figureData{Title: title, Lives: data().Lives}
		if _, err := drawFigures(d, dir, []string{"svg", "png"}); err != nil {
			t.Fatal(err)
		}
		checkPNG(t, filepath.Join(dir, "retention_cdf.png"))
		for text, size := range texts(t, filepath.Join(dir, "retention_cdf.svg")) {
			if size < 6 || isWhole && strings.Contains(text, "…") {
				t.Errorf("%q: %v points", text, size)
			}
		}
	}
}

// across is a metric of cells whose means have intervals, but the last one.
func across(cells []string, types ...string) metricFigure {
	a := metricFigure{Name: "across", Cells: sheet.Cells{Title: "sweep, model", Label: "working set", Names: cells,
		IsBytes: true, Color: cellColor, Warning: "contaminated", Note: "bars: intervals"}}
	for i := range cells {
		for k, kind := range types {
			m := sheet.CellMean{Cell: i, Type: kind, Mean: float64(i+k+1) * (1 << 30)}
			if low, high := m.Mean*0.8, m.Mean*1.3; i < len(cells)-1 {
				m.Low, m.High = &low, &high
			}
			a.Means = append(a.Means, m)
		}
	}
	return a
}

// TestAcross: figures of cells hold mark, note, unit, legend and every cell, within the picture; an old one goes
// when there is nothing to draw.
func TestAcross(t *testing.T) {
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("context %d", 128*(i+1))
	}
	long := "Meta-Llama-3.1-8B-Instruct-Q4_K_M, summarise, context 131072, KV q8_0/q8_0, 512 tokens, 4 requests (n = 3)"
	for name, a := range map[string]metricFigure{
		"one cell": across([]string{"context 128"}, "run"),
		"types":    across([]string{"a", "b"}, "weight", "kv_cache", "activation", "compute_buffer", "other", "code"),
		"many":     across(many, "weight", "kv_cache"),
		"long":     across([]string{long, strings.Repeat("x", 200)}, "weight", "kv_cache"),
	} {
		dir := t.TempDir()
		if keep := os.Getenv("LLAMATAP_PICTURES"); keep != "" {
			dir = filepath.Join(keep, strings.ReplaceAll(name, " ", "_"))
		}
		paths, err := DrawAcross([]metricFigure{a}, dir, sheet.Forms)
		if err != nil || len(paths) != len(sheet.Forms) {
			t.Fatal(paths, err)
		}
		checkPNG(t, filepath.Join(dir, "across.png"))
		checkPDF(t, filepath.Join(dir, "across.pdf"))
		checkSVG(t, filepath.Join(dir, "across.svg"))
		drawn := texts(t, filepath.Join(dir, "across.svg"))
		want := []string{a.Warning, a.Note, "working set (GiB)"}
		for _, m := range a.Means {
			if m.Type != "run" {
				want = append(want, m.Type)
			}
		}
		if name != "long" {
			want = append(want, a.Names...)
		} else {
			want = append(want, strings.Split(sheet.Wrap(long, sheet.NameWidth), "\n")...)
		}
		for _, text := range want {
			if drawn[text] == 0 {
				t.Errorf("%s: no %q among %v", name, text, drawn)
			}
		}
		if os.Getenv("LLAMATAP_PICTURES") != "" {
			continue
		}
		a.Means = nil
		paths, err = DrawAcross([]metricFigure{a}, dir, sheet.Forms)
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(paths)+len(left) > 0 {
			t.Errorf("%s: %v %v %v", name, paths, left, err)
		}
	}
}

// TestDecades: no tick of bytes is a bare power of ten, up to where there are units.
func TestDecades(t *testing.T) {
	for e := range 27 {
		if label := sheet.ByteDecade(e); strings.Contains(label, "1e") {
			t.Errorf("10^%d is %q", e, label)
		}
	}
}
