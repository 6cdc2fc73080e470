// Package ggmlhooks holds the words of tensor capture: what a node of a ggml graph is called, which layer and
// component it belongs to, which phase of a run an execution is part of, and what a user may select.
//
// Everything here is a type or a pure function on the standard library. The tap (cgo/tap) finds these facts in a
// running llama.cpp, the recorder (ggmlhooks/capture) writes them down, and readers (inspect) meet them again in
// files.
package ggmlhooks
