package kvcache

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
)

// TraceBlock is how many tokens a block of a Mooncake trace has.
const TraceBlock = 512

// A TraceRequest is a line of a Mooncake trace: what the traces of the FAST'25 release of kvcache-ai/Mooncake record of
// a request. IDs has one for each block of TraceBlock tokens of the prompt, the last of which may be shorter. Two are
// equal where the block and all tokens before it are equal. They count up from 0 in the order of first occurrence.
type TraceRequest struct {
	TimeMS float64 `json:"timestamp"` // since the trace's first request
	Input  int64   `json:"input_length"`
	Output int64   `json:"output_length"`
	IDs    []int64 `json:"hash_ids"`
}

// maxTraceLine bounds a line of a trace in bytes: a prompt of 16 M tokens.
const maxTraceLine = 1 << 19

// ReadTrace reads a Mooncake trace whose blocks have so many tokens, and at most that many requests, by their times.
// What lines have of other fields is not read.
func ReadTrace(in io.Reader, block, most int) (traceRequests []TraceRequest, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxTraceLine)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var r TraceRequest
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("line %d of the trace: %w: give JSON lines with timestamp, input_length, "+
				"output_length and hash_ids", n, err)
		}
		want := (r.Input + int64(block) - 1) / int64(block)
		switch {
		case r.Input < 1 || r.Output < 0 || r.TimeMS < 0:
			return nil, fmt.Errorf("line %d of the trace: timestamp %v, input_length %d, output_length %d: give "+
				"numbers from 0, and prompts of at least one token", n, r.TimeMS, r.Input, r.Output)
		case int64(len(r.IDs)) != want:
			return nil, fmt.Errorf("line %d of the trace: %d hash_ids for %d tokens, want %d of %d tokens each: "+
				"give the size of its blocks with --trace-block", n, len(r.IDs), r.Input, want, block)
		case len(traceRequests) == most:
			return nil, fmt.Errorf("the trace has more than %d requests: replay a part of it", most)
		}
		traceRequests = append(traceRequests, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	slices.SortStableFunc(traceRequests, func(a, b TraceRequest) int { return cmp.Compare(a.TimeMS, b.TimeMS) })
	return traceRequests, nil
}

// A PrefixHasher makes hashes of the prefixes of prompts. They compare within one hasher: its seed is random and
// nowhere stored, so that a hash says nothing of the tokens to who does not have it. It is for one goroutine.
type PrefixHasher struct {
	hash  maphash.Hash
	bytes []byte
}

// Blocks is a hash of the prompt up to the end of each of its blocks of TraceBlock tokens. The last block may be
// shorter; its length counts.
func (p *PrefixHasher) Blocks(prompt []int32) (hashes []uint64) {
	p.hash.Reset()
	for len(prompt) > 0 {
		n := min(len(prompt), TraceBlock)
		p.bytes = p.bytes[:0]
		for _, token := range prompt[:n] {
			p.bytes = binary.LittleEndian.AppendUint32(p.bytes, uint32(token))
		}
		p.hash.Write(p.bytes)
		hashes, prompt = append(hashes, p.hash.Sum64()), prompt[n:]
	}
	return hashes
}
