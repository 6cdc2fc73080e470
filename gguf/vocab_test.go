package gguf

import (
	"bytes"
	"testing"

	"github.com/llamatap/llamatap/models"
)

func TestVocabOfDefaultModel(t *testing.T) {
	f, err := Read(bytes.NewReader(models.Default), int64(len(models.Default)))
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
