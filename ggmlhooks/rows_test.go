package ggmlhooks

import (
	"slices"
	"strings"
	"testing"
)

func callRows(rows ...[3]int32) []CallRow { // token, pos, seq
	var out []CallRow
	for _, r := range rows {
		out = append(out, CallRow{Token: r[0], Pos: r[1], Seqs: []int32{r[2]}})
	}
	return out
}

func TestRowMatcher(t *testing.T) {
	interleaved := callRows([3]int32{7, 0, 0}, [3]int32{7, 0, 1}, [3]int32{8, 1, 0}, [3]int32{8, 1, 1})
	tests := []struct {
		name    string
		rows    []CallRow
		batches [][2][]int32 // tokens, positions
		want    [][]int32
	}{
		{"two sequences of four, as the next two rows would be",
			callRows([3]int32{10, 9, 2}, [3]int32{1, 5, 0}, [3]int32{2, 6, 0}, [3]int32{1, 5, 3}, [3]int32{3, 6, 3}),
			[][2][]int32{{{10, 1}, {9, 5}}, {{1, 2}, {5, 6}}, {{3}, {6}}}, [][]int32{{0, 3}, {1, 2}, {4}}},
		{"in order, cut in two", callRows([3]int32{1, 0, 0}, [3]int32{2, 1, 0}, [3]int32{3, 2, 0}),
			[][2][]int32{{{1, 2}, {0, 1}}, {{3}, {2}}}, [][]int32{{0, 1}, {2}}},
		{"equal prompts, taken as they come", interleaved,
			[][2][]int32{{{7, 7, 8, 8}, {0, 0, 1, 1}}}, [][]int32{{0, 1, 2, 3}}},
		{"equal prompts, grouped by sequence", interleaved,
			[][2][]int32{{{7, 8, 7, 8}, {0, 1, 0, 1}}}, [][]int32{{0, 2, 1, 3}}},
		{"equal beginnings, sequences that follow each other alone",
			callRows([3]int32{99, 7, 1}, [3]int32{1, 0, 0}, [3]int32{2, 1, 0}, [3]int32{3, 2, 0}, [3]int32{1, 0, 2},
				[3]int32{2, 1, 2}, [3]int32{4, 2, 2},
				[3]int32{1, 0, 3}, [3]int32{2, 1, 3}, [3]int32{5, 2, 3}),
			[][2][]int32{{{99, 1, 1}, {7, 0, 0}}, {{1, 2, 3}, {0, 1, 2}}, {{2, 4, 2, 5}, {1, 2, 1, 2}}},
			[][]int32{{0, 4, 7}, {1, 2, 3}, {5, 6, 8, 9}}},
		{"equal beginnings, one row of each sequence first",
			callRows([3]int32{1, 0, 2}, [3]int32{2, 1, 2}, [3]int32{3, 2, 2}, [3]int32{1, 0, 0}, [3]int32{2, 1, 0},
				[3]int32{4, 2, 0}, [3]int32{9, 5, 7}),
			[][2][]int32{{{1, 1, 9}, {0, 0, 5}}, {{2, 3, 2, 4}, {1, 2, 1, 2}}}, [][]int32{{0, 3, 6}, {1, 2, 4, 5}}},
		{"sequence by sequence, out of the batch's order",
			callRows([3]int32{1, 0, 0}, [3]int32{1, 0, 1}, [3]int32{2, 1, 0}, [3]int32{2, 1, 1}),
			[][2][]int32{{{1, 2}, {0, 1}}, {{1, 2}, {0, 1}}}, [][]int32{{0, 2}, {1, 3}}},
		{"positions left to llama.cpp", callRows([3]int32{5, PosAuto, 0}, [3]int32{6, PosAuto, 0}),
			[][2][]int32{{{5, 6}, {40, 41}}}, [][]int32{{0, 1}}},
		{"a token that the batch does not hold", callRows([3]int32{5, 0, 0}),
			[][2][]int32{{{9}, {0}}}, [][]int32{{-1}}},
		{"embeddings", callRows([3]int32{-1, 0, 0}, [3]int32{-1, 1, 0}),
			[][2][]int32{{{-1, -1}, {0, 1}}}, [][]int32{{0, 1}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := rowMatcher{UBatch: 512}
			if strings.HasPrefix(test.name, "in order") {
				m.UBatch = 2
			}
			m.Reset(test.rows)
			for i, b := range test.batches {
				if got := m.match(nil, b[0], b[1]); !slices.Equal(got, test.want[i]) {
					t.Errorf("micro-batch %d: rows %v, want %v", i, got, test.want[i])
				}
			}
		})
	}
}

// TestGroupedRows: without positions, tokens that happen to be alike fit the batch's order and that of its
// sequences. Recurrent memory has the latter.
func TestGroupedRows(t *testing.T) {
	rows := callRows([3]int32{1, 0, 1}, [3]int32{2, 0, 2}, [3]int32{2, 1, 1}, [3]int32{3, 1, 2})
	for grouped, want := range map[bool][]int32{false: {0, 1, 2, 3}, true: {0, 2, 1, 3}} {
		m := rowMatcher{UBatch: 512, Grouped: grouped}
		m.Reset(rows)
		if got := m.match(nil, []int32{1, 2, 2, 3}, nil); !slices.Equal(got, want) {
			t.Errorf("grouped %v: rows %v, want %v", grouped, got, want)
		}
	}
}
