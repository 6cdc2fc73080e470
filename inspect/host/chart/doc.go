// Package chart draws what package host found as PNG pictures, under the names that STRAP-LLM gives them.
package chart
