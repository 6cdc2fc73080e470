package tensors

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// mapTop is how many cells text shows per token.
const mapTop = 5

// WriteText writes a line per token: what it attends to, the largest weights first, by token where the capture states.
func (m *Map) WriteText(w io.Writer) error {
	texts, err := m.run.tokenTexts()
	if err != nil {
		return err
	}
	return m.EachRow(func(row *MapRow) error {
		_, err := fmt.Fprintf(w, "%s attends to %s\n", tokenText(row.Token, texts), strings.Join(row.top(texts), ", "))
		return err
	})
}

// top describes the largest weights.
func (m *MapRow) top(texts *tokenTexts) []string {
	cells := make([]int, len(m.Weights))
	for i := range cells {
		cells[i] = i
	}
	slices.SortStableFunc(cells, func(a, b int) int {
		switch {
		case m.Weights[a] > m.Weights[b]:
			return -1
		case m.Weights[a] < m.Weights[b]:
			return 1
		}
		return 0
	})
	var parts []string
	for _, cell := range cells[:min(mapTop, len(cells))] {
		if m.Weights[cell] == 0 {
			break
		}
		what := "cell " + strconv.Itoa(cell)
		if m.CellTokens != nil {
			what = tokenText(m.CellTokens[cell], texts)
		}
		parts = append(parts, fmt.Sprintf("%.3f %s", m.Weights[cell], what))
	}
	return parts
}

func tokenText(token int64, texts *tokenTexts) string {
	if text := texts.textOf(token); text != nil {
		return fmt.Sprintf("%d %q", token, *text)
	}
	return strconv.FormatInt(token, 10)
}

// WriteJSON writes one JSON line per token.
func (m *Map) WriteJSON(w io.Writer) error {
	lines := json.NewEncoder(w)
	return m.EachRow(func(row *MapRow) error { return lines.Encode(row) })
}

// WriteNPY writes float32 [tokens, cells]; rows of a smaller cache view end in zeros. The map is computed twice,
// because the header comes first and says how large it is.
func (m *Map) WriteNPY(w io.Writer) error {
	var rows, cells int64
	err := m.EachRow(func(row *MapRow) error {
		rows, cells = rows+1, max(cells, int64(len(row.Weights)))
		return nil
	})
	if err != nil {
		return err
	}
	header, err := AppendNPYHeader(nil, "<f4", []int64{rows, cells})
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	line := make([]byte, 4*cells)
	return m.EachRow(func(row *MapRow) error {
		clear(line)
		for i, v := range row.Weights {
			binary.LittleEndian.PutUint32(line[4*i:], math.Float32bits(v))
		}
		_, err := w.Write(line)
		return err
	})
}
