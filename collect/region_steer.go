//go:build linux

package collect

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// steerBytes is the room for the vectors of one exchange: 128 layers of 32,000 channels.
const steerBytes = 16 << 20

// ErrSteer occurs when vectors do not fit into the shared memory, or the run is not armed.
var ErrSteer = errors.New("vectors cannot be handed to the model")

// Steering is what the tap reports of the vectors that the model adds.
type Steering struct {
	Embd      int                // width of the residual stream; 0: nothing was computed yet
	Layers    int                // of the model
	Adds      ggmlhooks.LayerSet // layers of which a graph adds a vector
	Exchanges int
	Last      time.Duration // what the newest exchange took on the model's thread
}

// Steering reads what the tap reports of the vectors that the model adds.
func (t Tap) Steering() Steering {
	h := t.header
	s := Steering{
		Embd: int(atomic.LoadUint32(&h.SteerEmbd)), Layers: int(atomic.LoadUint32(&h.SteerLayers)),
		Exchanges: int(atomic.LoadUint32(&h.SteerExec)), Last: time.Duration(atomic.LoadUint64(&h.SteerNS)),
	}
	for layer := range layerWords * 64 {
		if atomic.LoadUint64(&h.SteerFound[layer/64])>>(layer%64)&1 != 0 {
			s.Adds.Add(layer)
		}
	}
	return s
}

// Steer makes the rows of directions, by layer from 1 on and of one width, what the model adds to its residual stream
// from its next call on, and returns their number. None switches steering off. It is for one goroutine.
func (r *Region) Steer(directions map[int][]float32) (number uint32, err error) {
	v := shmVectors{State: steerZero}
	for layer, row := range directions {
		v.Embd, v.Rows = uint32(len(row)), max(v.Rows, uint32(layer))
	}
	bytes := int(v.Embd) * int(v.Rows) * 4
	size := int(unsafe.Sizeof(v))
	if uint64(size+bytes) > r.plan.steerBytes {
		return 0, fmt.Errorf("%w: %d layers of %d channels, and there is room for %d bytes", ErrSteer, v.Rows, v.Embd,
			r.plan.steerBytes)
	}
	number = atomic.LoadUint32(&r.header.Steer) + 1
	place := r.mem[r.plan.steerOffset+uint64(number%2)*r.plan.steerBytes:][:size+bytes]
	rows := place[size:]
	clear(rows)
	zero := true
	for layer, row := range directions {
		for i, x := range row {
			zero = zero && x == 0
			binary.LittleEndian.PutUint32(rows[((layer-1)*len(row)+i)*4:], math.Float32bits(x))
		}
	}
	if !zero {
		sum := sha256.Sum256(rows)
		v.State = max(binary.LittleEndian.Uint64(sum[:]), steerZero+1)
	}
	*(*shmVectors)(unsafe.Pointer(&place[0])) = v
	atomic.StoreUint32(&r.header.Steer, number)
	return number, nil
}
