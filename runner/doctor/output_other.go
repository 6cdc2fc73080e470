//go:build !linux

package doctor

func space(string) Fact {
	return Fact{Topic: "output", Name: "free space", Status: Unknown, Value: "looked at on Linux only"}
}
