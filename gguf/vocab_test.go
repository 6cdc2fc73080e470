package gguf

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/llamatap/llamatap"
)

func TestVocabOfDefaultModel(t *testing.T) {
	f, err := Read(bytes.NewReader(llamatap.DefaultModel), int64(len(llamatap.DefaultModel)))
	if err != nil {
		t.Fatal(err)
	}
	v, ok := ReadVocab(&f.Metadata)
	if !ok || v.Len() != 2080 {
		t.Fatalf("%d tokens, %v", v.Len(), ok)
	}
	if got := string(v.Piece(2048)); got != "<|endoftext|>" {
		t.Errorf("token 2048 is %q", got)
	}
	seen := [256]bool{} // a byte-level vocabulary can spell every byte
	for id := int32(0); id < 2048; id++ {
		if p := v.Piece(id); len(p) == 1 {
			seen[p[0]] = true
		}
	}
	for b, ok := range seen {
		if !ok {
			t.Errorf("no token for byte %#x", b)
		}
	}
	if v.Piece(-1) != nil || v.Piece(1<<20) != nil {
		t.Error("ids outside of the vocabulary have bytes")
	}
}

func TestVocabOfSentencePieces(t *testing.T) {
	v := Vocab{model: "llama", tokens: []string{"\u2581the", "<0x0A>", "</s>"}, types: []int64{1, 6, 3}}
	for id, want := range []string{" the", "\n", "</s>"} {
		if got := string(v.Piece(int32(id))); got != want {
			t.Errorf("token %d is %q, want %q", id, got, want)
		}
	}
}

// BenchmarkVocabulary reads and writes the header of a file with a vocabulary of 150,000 tokens.
func BenchmarkVocabulary(b *testing.B) {
	const n = 150_000
	tokens, scores, types := make([]string, n), make([]float32, n), make([]int32, n)
	for i := range tokens {
		tokens[i], scores[i], types[i] = "token "+strconv.Itoa(i), float32(-i), 1
	}
	var m Metadata
	m.Set("tokenizer.ggml.tokens", tokens)
	m.Set("tokenizer.ggml.scores", scores)
	m.Set("tokenizer.ggml.token_type", types)
	var file bytes.Buffer
	write := func() {
		file.Reset()
		if w, err := NewWriter(&file, &m, nil); err != nil || w.Close() != nil {
			b.Fatal(err)
		}
	}
	write()
	for name, do := range map[string]func(){"write": write, "read": func() {
		if _, err := ReadBytes(file.Bytes()); err != nil {
			b.Fatal(err)
		}
	}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(file.Len()))
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
		})
	}
}
