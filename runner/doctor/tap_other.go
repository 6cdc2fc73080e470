//go:build !linux

package doctor

// tapBuild is never compared with on a machine that has no tap.
func tapBuild() [2]uint32 { return [2]uint32{} }
