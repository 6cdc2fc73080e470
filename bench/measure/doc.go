// Package measure is the inside of a measuring process: it loads one model, computes one test as llama-bench does,
// and prints the times as JSON lines.
//
// A test is a prompt, a number of tokens that are generated one by one, or both, behind a context of some depth.
// Prompts of a length are random tokens, and so are generated ones: nothing is sampled, and no time is spent on
// choosing. A prompt with a text is continued greedily, which is part of each token's time. The first pass warms up
// and is not counted.
//
// Nothing is written while something is timed. The times are of this process's monotonic clock.
package measure
