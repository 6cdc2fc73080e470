// Package whatif asks of what a run accessed whether it could live in another memory: one that retains what is
// written for a limited time, wears out with writes, and takes so much energy to read and to write. It is pure:
// subjects (regions with what is known of their lives) and device classes go in, refreshes, wear, energy and
// verdicts come out, with the formula of each. docs/MRM_DATA.md explains them.
//
// Figures of devices come from a file (devices.yaml, to which others may be added), each with the publication that
// it was taken from. A figure that nobody published is absent there, and so is what would follow from it here.
package whatif
