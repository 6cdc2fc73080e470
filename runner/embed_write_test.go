package runner

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/config"
)

// TestEmbeddingsNotFinite: a value that JSON has no number for is null, and so is how like its text is to others.
func TestEmbeddingsNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	e := embeddings{texts: []string{"a", "b"}, rows: [][]float32{{1, nan}, {inf, 0.5}}}
	for _, format := range []string{"array", "json", "json+"} {
		e.Config = &config.Run{Embeddings: config.Embeddings{EmbdFormat: format, EmbdNormalize: 2}}
		text := e.String()
		if !json.Valid([]byte(text)) || strings.Count(text, "null") < 2 {
			t.Errorf("%s: %s", format, text)
		}
	}
}
