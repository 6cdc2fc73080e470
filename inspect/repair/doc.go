// Package repair makes damaged and unsealed run directories whole as far as possible: streams and their indexes,
// tokens, metadata and manifest. What it replaces it puts aside, and what it could not bring back it writes into
// the run's metadata.
package repair
