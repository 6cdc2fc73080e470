// Package autoencoder trains sparse autoencoders on captured activations, and evaluates them.
//
// A sparse autoencoder writes a row x of activations as a sum of few directions out of many:
//
//	f = activation(W_enc (x - b_dec) + b_enc),  x ≈ W_dec f + b_dec
//
// W_enc and W_dec are [features][width] here, row by row; a row of W_dec is the direction of a feature, of length 1.
// The activation is that of [TopK] (Gao et al. 2024), [JumpReLU] (Rajamanoharan et al. 2024) or [ReLU] with an L1
// penalty (Bricken et al. 2023). Folders hold what SAELens reads: sae_weights.safetensors and cfg.json.
//
// Training with one seed, one [Engine] and one sequence of rows gives the same bits, whatever the number of processors,
// and however often it was interrupted and resumed.
package autoencoder
