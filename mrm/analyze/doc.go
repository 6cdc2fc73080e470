// Package analyze computes what follows from a sealed run: metrics, labels, what the run would ask of other
// memories, and figures. It writes them below the run's derived folder, which no manifest lists, and says so in its
// derived.json.
package analyze
