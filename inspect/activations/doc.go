// Package activations analyses captured hidden states: norms per layer and token, outlier channels, massive
// activations, attention sinks, cosine similarity between layers, effective rank, principal components, correlations,
// and the logit lens; and it makes directions of two recordings.
//
// Values belong to tokens as the run's index states; nothing is divided evenly. docs/ANALYZE.md defines each figure.
package activations
