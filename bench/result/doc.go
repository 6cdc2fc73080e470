// Package result holds the rows of a scripted benchmark and their forms: llama-bench's md, csv, json, jsonl and
// sql, with llama-bench's columns first and in its order, and ours behind them.
//
// What is not known is absent: an empty field in csv and md, a missing key in json, NULL in sql. The rows of a json
// or jsonl form, llama-bench's own too, can be read again.
package result
