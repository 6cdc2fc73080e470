package stream

import (
	"encoding/binary"
	"math"
)

// Gap records that something is missing in an index that [Repair] made.
type Gap struct {
	Packet      uint64 // number of the first packet after it
	Records     uint64 // records of the index that were lost here; 0 where it is not known how many
	StreamBytes int64  // bytes of the stream of which no packet could be made
}

func (g *Gap) append(dst []byte) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, g.Records), uint64(g.StreamBytes))
}

func (x *index) takeGap(payload []byte, at int64) error {
	c := cursor{b: payload}
	g := Gap{Packet: x.totals.Packets, Records: c.uint(),
		StreamBytes: c.size(uint64(math.MaxInt64 - x.totals.StreamBytes))}
	if err := c.done(); err != nil {
		return err
	}
	x.totals.StreamBytes += g.StreamBytes
	x.repairs, x.gaps = append(x.repairs, g), append(x.gaps, at)
	return nil
}
