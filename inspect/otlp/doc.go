// Package otlp exports requests to an OpenTelemetry collector: a span each with its phases, and metrics, by the
// conventions for generative AI, over OTLP/HTTP with protobuf. docs/OPENTELEMETRY.md lists names and sources.
package otlp
