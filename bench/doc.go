// Package bench holds the scales: what the tap costs a model, as ratios within one session on one machine.
//
// Two configurations are compared in pairs: each pair runs both, in random order, one after the other, and gives
// one ratio. The figure is the median of the ratios with a 95 % bootstrap interval. A gate is passed when the whole
// interval lies on its good side, failed when it lies on the other; in between more pairs are run, until the time
// is up: then the machine does not resolve it, and that is what is printed.
package bench
