package session

// TurnsVariable is the environment variable with which llamatap bench records in alternation of so many tokens, see
// collect.Options.
const TurnsVariable = "LLAMATAP_BENCH_TURNS"
