package runner

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/llamatap/llamatap/cgo/llama"
)

// ranks reports whether texts get scores in place of embeddings.
func (e *embeddings) ranks() bool { return e.llama.Pooling() == llama.PoolRank }

// checkRank refuses scores of a model without a head that computes them: llama.cpp would take what it finds for some.
func (e *embeddings) checkRank() error {
	if !e.ranks() {
		return nil
	}
	file, err := modelFile(e.Config.Model)
	if err != nil {
		return err
	}
	for _, name := range []string{"cls.output.weight", "cls.weight"} {
		if _, ok := file.Tensor(name); ok && e.model.Classes() > 0 {
			return nil
		}
	}
	return fmt.Errorf("%w has no head for scores (cls.output.weight): take a reranker, or give --pooling mean",
		ErrModel)
}

// paired writes a text of query and document as the model wants to see the two. Any other text is left alone.
func (e *embeddings) paired(text string) string {
	parts := strings.Split(text, e.Config.ClsSeparator)
	if !e.ranks() || len(parts) < 2 {
		return text
	}
	if template, ok := e.model.RerankTemplate(); ok {
		return strings.ReplaceAll(strings.ReplaceAll(template, "{query}", parts[0]), "{document}", parts[1])
	}
	return strings.Join(parts, e.model.Vocab().Separators())
}

// writeScores writes the scores of each text, for people.
func (e *embeddings) writeScores(out *strings.Builder) {
	out.WriteString("\n")
	for i, row := range e.rows {
		for class, score := range row {
			fmt.Fprintf(out, "rerank score %d: %8.3f", i, score)
			if len(row) > 1 {
				label := e.model.ClassLabel(class)
				if label == "" {
					label = strconv.Itoa(class)
				}
				out.WriteString(" [" + label + "]")
			}
			out.WriteString("\n")
		}
	}
}
