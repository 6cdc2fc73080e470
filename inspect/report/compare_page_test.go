//go:build linux

package report

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
)

// TestComparisonPage: the page of two runs draws the times per token that differ, with the figures of the comparison,
// and is a page as that of one run.
func TestComparisonPage(t *testing.T) {
	testenv.Once(t, "TestBrowser")
	slow := usual
	slow.slow, slow.batch = 1.3, 64
	c := compared(t, usual.write(t), slow.write(t))
	chart := drawn(c.Times)
	var want []string
	for _, d := range c.Times {
		if d.Differs && !d.isOnce() && len(want) < maxDrawn {
			at := len(want)
			want = append(want, d.What)
			for i, of := range []Amount{d.A, d.B} {
				half := 0.0
				if of.Half != nil {
					half = *of.Half
				}
				if s := chart.Series[i]; s.Y[at] != of.Value/1e9 || s.W[at] != half/1e9 {
					t.Errorf("%s of %s: %v ± %v, want %+v", d.What, s.Name, s.Y[at], s.W[at], of)
				}
			}
		}
	}
	if len(want) == 0 || !slices.Equal(chart.Rows, want) {
		t.Errorf("rows %q, want %q", chart.Rows, want)
	}
	var out bytes.Buffer
	if err := c.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "two.html")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{"png", "svg", "pdf"} {
		picture := filepath.Join(dir, "two."+form)
		err := c.Save(picture)
		if info, missing := os.Stat(picture); err != nil || missing != nil || info.Size() < 1000 {
			t.Error(form, err, missing)
		}
	}
	same := compared(t, usual.write(t), usual.write(t))
	if err := same.Save(filepath.Join(dir, "same.png")); !errors.Is(err, ErrNoDifference) {
		t.Errorf("of equal runs: %v", err)
	}
	if text := changeOf(same.Speed); !strings.Contains(text, "no difference") {
		t.Errorf("of equal runs: %q", text)
	}
	b := testenv.NeedBrowser(t)
	for width, isDark := range map[int]bool{1440: false, 360: true} {
		b.Open("file://"+path, width, 900, isDark)
		var drawn struct {
			Marks, Wide int
			Title       string
		}
		b.Eval(`({marks: document.querySelectorAll("figure svg circle").length,
			wide: document.documentElement.scrollWidth,
			title: document.getElementById("verdict").textContent})`, &drawn)
		if drawn.Marks < 2*len(want) || drawn.Wide > width || drawn.Title != changeOf(c.Speed) {
			t.Errorf("%d pixels: %+v", width, drawn)
		}
		if named := b.Problems(); len(named) > 0 {
			t.Errorf("%d pixels: %q", width, named)
		}
		var read string
		b.Eval(`(() => {
			const chart = document.querySelector("figure svg");
			chart.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true, cancelable: true}));
			return document.querySelector("figure output").textContent;
		})()`, &read)
		if !strings.HasPrefix(read, want[0]+": a ") {
			t.Errorf("%d pixels: the first value reads %q", width, read)
		}
	}
	if errs := b.Errors(); len(errs) > 0 {
		t.Errorf("the page reports %q", errs)
	}
}

// TestSmallDifferences: a difference has as many digits as it takes not to be shown as none.
func TestSmallDifferences(t *testing.T) {
	for relative, want := range map[float64]string{0: "+0.0 %", 0.25: "+25.0 %", 0.0004: "+0.04 %",
		-0.00002: "−0.002 %"} {
		d := Difference{What: "bytes", Unit: unitBytes, A: Amount{Value: 1 << 30}, Relative: &relative}
		if cells := d.cells(); cells[len(cells)-1] != want {
			t.Errorf("%g: %q, want %q", relative, cells[len(cells)-1], want)
		}
	}
}
