// Package activations analyses captured hidden states: norms per layer and token, outlier channels, massive
// activations, cosine similarity between layers, effective rank, principal components and correlations.
//
// Values belong to tokens as the run's index states; nothing is divided evenly. docs/ANALYZE.md defines each figure.
package activations
