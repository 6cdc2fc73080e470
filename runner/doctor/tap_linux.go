package doctor

import "github.com/llamatap/llamatap/collect"

// tapBuild is what the tap's object must say of itself.
func tapBuild() [2]uint32 { return collect.TapBuild() }
