// Package intervene changes what a model computes while it computes it, and measures what comes of it: patching,
// ablation, and the causal graph of a prompt.
//
// An Engine runs a prompt in llama.cpp with Edits of named points: what a head, a layer or the residual stream holds at
// a token is replaced. Many Trials share one decode, as sequences of their own beside an untouched one, the control;
// what stands before the first edited token is computed once. A Sweep tries every site of a prompt and measures the
// effect on the next token; Paths measures by which edges effects travel. docs/CAUSAL.md defines both.
package intervene
