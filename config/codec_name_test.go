package config

import "testing"

// TestOldCodecName: a codec is taken by the name that it had once, and printed by the one that it has.
func TestOldCodecName(t *testing.T) {
	var tap Tap
	if err := setCodec(&tap, "q-huff"); err != nil || tap.Codec != "q-fse" {
		t.Errorf("got %q, %v", tap.Codec, err)
	}
	if err := setCodec(&tap, "huff"); err == nil {
		t.Error("a codec that does not exist was taken")
	}
}
