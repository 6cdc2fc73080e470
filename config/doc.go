// Package config says what the user asked for.
//
// Tap is everything that records: one struct for the --tap-… flags, the LLAMATAP_… environment, a YAML file and
// the presets. It is filled by one table of options (tap_options.go), from which the help text and docs/FLAGS.md
// are generated too, so that no spelling can drift from another. For each setting it remembers where the value came
// from; Echo writes that down.
//
// Run is what llamatap run has of llama-completion's flags, from a table of its own (run_options.go), with help and
// docs/RUN_FLAGS.md.
//
// Precedence is flag, environment, file, preset, default. A recorder runs exactly when its own flag is given, and a
// run directory exists exactly when a recorder runs.
package config
