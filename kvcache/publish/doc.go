// Package publish sends routers which blocks of tokens a server's KV cache holds, as vLLM does: batches of events in
// msgpack over a ZeroMQ PUB socket, and past batches over a ROUTER socket. docs/KV_EVENTS.md describes both.
package publish
