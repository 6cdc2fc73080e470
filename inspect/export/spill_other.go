//go:build !linux

package export

const oDirect = 0
