//go:build llama

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llamatap/llamatap/internal/testenv"
	"github.com/llamatap/llamatap/runner"
)

// TestRankIsStock compares scores and embeddings of models that only encode, and of a reranker, with
// llama-embedding's. It normalises scores with memory that it does not own, so that is switched off.
func TestRankIsStock(t *testing.T) {
	testenv.Once(t, "TestEmbeddingsAreStock")
	tool := testenv.NeedTool(t, "llama-embedding")
	const pairs = "what is a map?\tA map holds keys.\nfunc\tmain\nalone"
	tests := [][]string{
		{"-m", synthetic(t, "qwen3-rerank"), "-p", pairs, "--embd-normalize", "-1"},
		{"-m", synthetic(t, "qwen3-rerank"), "-p", pairs, "--embd-normalize", "-1", "--embd-output-format", "raw"},
		{"-m", synthetic(t, "qwen3-rerank"), "-p", "a|b\nc|d", "--cls-separator", "|", "--embd-normalize", "-1"},
		{"-m", synthetic(t, "qwen3-rerank"), "-p", "a b c", "--pooling", "last", "--embd-output-format", "raw"},
		{"-m", synthetic(t, "bert"), "-p", pairs, "--pooling", "rank", "--embd-normalize", "-1"},
		{"-m", synthetic(t, "bert"), "-p", pairs, "--pooling", "rank", "--embd-normalize", "-1", "--embd-output-format",
			"raw"},
		{"-m", synthetic(t, "bert"), "-p", pairs},
		{"-m", synthetic(t, "bert"), "-p", pairs, "--pooling", "mean", "--embd-output-format", "json+"},
		{"-m", synthetic(t, "bert"), "-p", pairs, "--pooling", "none", "--embd-output-format", "raw"},
	}
	for i, test := range tests {
		t.Run(fmt.Sprint(i), func(t *testing.T) { sameEmbeddings(t, tool, append(test, "-t", "1")...) })
	}
}

// TestRankErrors: scores need a head, and text needs a model that generates.
func TestRankErrors(t *testing.T) {
	_, _, err := embed(t, "-p", "a", "--pooling", "rank")
	if !errors.Is(err, runner.ErrModel) || !strings.Contains(err.Error(), "reranker") {
		t.Errorf("no head: %v", err)
	}
	_, err = runner.Run(context.Background(),
		runner.Options{Config: parse(t, "-m", synthetic(t, "bert"), "-p", "a", "-n", "2")})
	if !errors.Is(err, runner.ErrModel) || !strings.Contains(err.Error(), "--embeddings") {
		t.Errorf("text of an encoder: %v", err)
	}
}
