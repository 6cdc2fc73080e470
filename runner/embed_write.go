package runner

import (
	"fmt"
	"math"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
)

// normalized is a copy of a vector, divided by its norm: 1 taxicab, 2 euclidean, above 2 p-norm, 0 such that its
// greatest value becomes 32760; -1 leaves it as it is. It rounds as llama.cpp does.
func normalized(v []float32, kind int) []float32 {
	var sum float64
	for _, x := range v {
		size := math.Abs(float64(x))
		switch kind {
		case -1:
			sum = 1
		case 0:
			sum = max(sum, size)
		case 1:
			sum += size
		case 2:
			sum += float64(x * x)
		default:
			sum += math.Pow(size, float64(kind))
		}
	}
	switch {
	case kind == 0:
		sum /= 32760
	case kind == 2:
		sum = math.Sqrt(sum)
	case kind > 2:
		sum = math.Pow(sum, 1/float64(kind))
	}
	var factor float32
	if sum > 0 {
		factor = float32(1 / sum)
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = x * factor
	}
	return out
}

// similarity is the cosine of the angle between two vectors; two zero vectors are alike.
func similarity(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i] * b[i])
		aa += float64(a[i] * a[i])
		bb += float64(b[i] * b[i])
	}
	switch {
	case aa == 0 && bb == 0:
		return 1
	case aa == 0 || bb == 0:
		return 0
	}
	return float64(float32(ab / (math.Sqrt(aa) * math.Sqrt(bb))))
}

// String is what llama-embedding writes.
func (e *embeddings) String() string {
	var out strings.Builder
	switch e.Config.EmbdFormat {
	case "":
		if e.ranks() {
			e.writeScores(&out)
		} else {
			e.writeText(&out)
		}
	case "raw":
		for _, row := range e.rows {
			out.WriteString(e.join(row, e.decimals()) + "\n")
		}
	case "array":
		lists := make([]string, len(e.rows))
		for i, row := range e.rows {
			lists[i] = "[" + e.list(row) + "]"
		}
		out.WriteString("[" + strings.Join(lists, ",") + "]\n")
	default:
		e.writeJSON(&out)
	}
	return out.String() + "\n"
}

// decimals is the form of a number for programs.
func (e *embeddings) decimals() string {
	if e.Config.EmbdNormalize == 0 && !e.ranks() {
		return "%1.0f"
	}
	return "%1.7f"
}

func (e *embeddings) join(row []float32, form string) string {
	numbers := make([]string, len(row))
	for i, x := range row {
		numbers[i] = fmt.Sprintf(form, x)
	}
	return strings.Join(numbers, " ")
}

// list is a row in JSON.
func (e *embeddings) list(row []float32) string {
	numbers := make([]string, len(row))
	for i, x := range row {
		numbers[i] = number(e.decimals(), float64(x))
	}
	return strings.Join(numbers, ",")
}

// number is a number in JSON, which has none that are not finite.
func number(form string, x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "null"
	}
	return fmt.Sprintf(form, x)
}

// writeText writes the begin of each embedding, and how like the texts are, for people.
func (e *embeddings) writeText(out *strings.Builder) {
	form := "%9.6f"
	if e.Config.EmbdNormalize == 0 {
		form = "%6.0f"
	}
	tokens := e.llama.Pooling() == llama.PoolNone
	out.WriteString("\n")
	for i, row := range e.rows {
		shown := row
		if len(e.texts) > 1 && !tokens {
			shown = row[:min(16, len(row))]
		}
		if tokens {
			out.WriteString(fmt.Sprintf("embedding %d: ", i) + e.join(row[:min(3, len(row))], form) + "  ... " +
				e.join(row[max(0, len(row)-3):], form) + " \n")
		} else {
			out.WriteString(fmt.Sprintf("embedding %d: ", i) + e.join(shown, form) + " \n")
		}
	}
	if tokens || len(e.texts) < 2 {
		return
	}
	out.WriteString("\ncosine similarity matrix:\n\n")
	for _, text := range e.texts {
		text = head(text, 6)
		out.WriteString(strings.Repeat(" ", 6-len(text)) + text + " ")
	}
	out.WriteString("\n")
	for i, text := range e.texts {
		for j := range e.texts {
			fmt.Fprintf(out, "%6.2f ", similarity(e.rows[i], e.rows[j]))
		}
		if text = head(text, 10); text == "" {
			text = " "
		}
		out.WriteString(text + "\n")
	}
}

// head is the first n bytes of a text.
func head(text string, n int) string { return text[:min(n, len(text))] }

// writeJSON writes OpenAI's form, and with json+ how like the texts are.
func (e *embeddings) writeJSON(out *strings.Builder) {
	out.WriteString("{\n  \"object\": \"list\",\n  \"data\": [\n")
	items := make([]string, len(e.rows))
	for i, row := range e.rows {
		items[i] = fmt.Sprintf("    {\n      \"object\": \"embedding\",\n      \"index\": %d,\n"+
			"      \"embedding\": [%s]\n    }", i, e.list(row))
	}
	out.WriteString(strings.Join(items, ",\n") + "\n  ]")
	if e.Config.EmbdFormat == "json+" && len(e.texts) > 1 {
		lines := make([]string, len(e.rows))
		for i := range e.rows {
			numbers := make([]string, len(e.rows))
			for j := range e.rows {
				numbers[j] = number("%6.2f", similarity(e.rows[i], e.rows[j]))
			}
			lines[i] = "    [" + strings.Join(numbers, ", ") + " ]"
		}
		out.WriteString(",\n  \"cosineSimilarity\": [\n" + strings.Join(lines, ",\n") + "\n  ]")
	}
	out.WriteString("\n}\n")
}
