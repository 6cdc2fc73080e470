package stream

import (
	"encoding/binary"
	"math"
)

// Text is what a token of a context's vocabulary reads as. The index has one record of each token that its
// executions name, before the first that does, so that the tokens file can be made from the index alone.
type Text struct {
	Ctx   uint32
	Token int32
	Piece []byte // not UTF-8 where a token is a part of a character
}

func (t *Text) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(t.Ctx))
	dst = binary.AppendVarint(dst, int64(t.Token))
	return append(binary.AppendUvarint(dst, uint64(len(t.Piece))), t.Piece...)
}

func readText(payload []byte) (t Text, err error) {
	c := cursor{b: payload}
	t.Ctx, t.Token, t.Piece = uint32(c.size(math.MaxUint32)), int32(c.int()), []byte(c.string())
	return t, c.done()
}
