// Package experts analyses which experts of a mixture were chosen: how often each was, after how many others it was
// used again, and how often a cache of experts in device memory would have held it (--moe-cache-mib).
package experts
