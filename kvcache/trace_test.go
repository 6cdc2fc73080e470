package kvcache

import (
	"slices"
	"strings"
	"testing"
)

// TestPrefixBlocks: hashes are equal exactly where a block, its length and all tokens before it are equal.
func TestPrefixBlocks(t *testing.T) {
	prompt := make([]int32, 2*TraceBlock+100)
	for i := range prompt {
		prompt[i] = int32(i * i % 251)
	}
	var p PrefixHasher
	whole := p.Blocks(prompt)
	if len(whole) != 3 || !slices.Equal(whole, p.Blocks(prompt)) {
		t.Fatalf("%x, again %x", whole, p.Blocks(prompt))
	}
	other := slices.Clone(prompt)
	other[TraceBlock]++
	for name, c := range map[string]struct {
		prompt []int32
		same   int
	}{
		"shorter by a token": {prompt[:len(prompt)-1], 2}, "whole blocks": {prompt[:2*TraceBlock], 2},
		"another token in the second block": {other, 1}, "another beginning": {prompt[1:], 0},
	} {
		got := p.Blocks(c.prompt)
		for i := range got {
			if same := got[i] == whole[i]; same != (i < c.same) {
				t.Errorf("%s: block %d is equal: %v", name, i, same)
			}
		}
	}
	if (&PrefixHasher{}).Blocks(prompt)[0] == whole[0] {
		t.Error("another hasher makes the same hash")
	}
}

func BenchmarkPrefixBlocks(b *testing.B) {
	prompt, p := make([]int32, 64*TraceBlock), PrefixHasher{}
	b.SetBytes(int64(4 * len(prompt)))
	for b.Loop() {
		p.Blocks(prompt)
	}
}

func TestReadTrace(t *testing.T) {
	// the first lines of the toolagent trace, shortened, with a time that is no whole number
	const published = `{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 30.5, "input_length": 512, "output_length": 3, "hash_ids": [0], "chat_id": 7}
`
	all, err := ReadTrace(strings.NewReader(published), TraceBlock, 2)
	if err != nil || len(all) != 2 || all[1].TimeMS != 30.5 || all[1].Output != 3 ||
		!slices.Equal(all[0].IDs, []int64{0, 1, 2}) {
		t.Fatalf("%+v, %v", all, err)
	}
	for text, want := range map[string]string{
		published: "more than 1 requests", "{": "line 1",
		`{"input_length": 0}`:                   "at least one token",
		`{"input_length": 513, "hash_ids":[1]}`: "1 hash_ids for 513 tokens, want 2",
	} {
		_, err := ReadTrace(strings.NewReader(text), TraceBlock, 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzReadTrace: whatever a file holds, what is read has an id for each block.
func FuzzReadTrace(f *testing.F) {
	f.Add(`{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}`)
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ReadTrace(strings.NewReader(text), TraceBlock, 100)
		for _, r := range all {
			if err != nil || int64(len(r.IDs)-1)*TraceBlock >= r.Input || int64(len(r.IDs))*TraceBlock < r.Input {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}
