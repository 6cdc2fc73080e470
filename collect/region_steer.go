//go:build linux

package collect

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/llamatap/llamatap/ggmlhooks"
)

// steerBytes is the size of the buffer for the vectors of one command: four of 128 layers of 32,000 channels.
const steerBytes = 64 << 20

// AllSequences stands for the sequences that have no vector of their own.
const AllSequences = -1

// ErrSteer occurs when vectors do not fit into the shared memory, or the run is not armed.
var ErrSteer = errors.New("vectors cannot be handed to the model")

// Steering is what the tap reports of the vectors that the model adds.
type Steering struct {
	Embd      int                // width of the residual stream; 0: nothing was computed yet
	Layers    int                // of the model
	Adds      ggmlhooks.LayerSet // layers of which a graph adds a vector
	Sequences int                // that may have vectors of their own; 0: this llama.cpp cannot
	Exchanges int
	Last      time.Duration // what the newest exchange took on the model's thread
}

// Steering reads what the tap reports of the vectors that the model adds.
func (t Tap) Steering() Steering {
	h := t.header
	s := Steering{
		Embd: int(atomic.LoadUint32(&h.SteerEmbd)), Layers: int(atomic.LoadUint32(&h.SteerLayers)),
		Sequences: int(atomic.LoadUint32(&h.SteerSeqs)), Exchanges: int(atomic.LoadUint32(&h.SteerExec)),
		Last: time.Duration(atomic.LoadUint64(&h.SteerNS)),
	}
	for layer := range layerWords * 64 {
		if atomic.LoadUint64(&h.SteerFound[layer/64])>>(layer%64)&1 != 0 {
			s.Adds.Add(layer)
		}
	}
	return s
}

// Steered is what is added to the residual stream: rows of directions, by layer from 1 on and of one width.
type Steered map[int][]float32

// Steer makes vectors what the model adds to its residual stream from its next call on, and returns their number: that
// of each sequence that has one of its own, and (AllSequences) that of all others. It is for one goroutine.
func (r *Region) Steer(vectors map[int]Steered) (number uint32, err error) {
	v := shmVectors{}
	for _, directions := range vectors {
		for layer, row := range directions {
			v.Embd, v.Rows = uint32(len(row)), max(v.Rows, uint32(layer))
		}
	}
	number = atomic.LoadUint32(&r.header.Steer) + 1
	place := r.mem[r.plan.steerOffset+uint64(number%2)*r.plan.steerBytes:][:r.plan.steerBytes]
	head := int(unsafe.Sizeof(v))
	bytes := int(v.Embd) * int(v.Rows) * 4
	order := slices.Sorted(maps.Keys(vectors))
	if _, ok := vectors[AllSequences]; !ok {
		order = slices.Insert(order, 0, AllSequences)
	}
	for _, sequence := range order {
		end := head + (int(v.Vectors)+1)*bytes
		if v.Vectors == steerVectors || end > len(place) || sequence >= steerSequences {
			return 0, fmt.Errorf("%w: there is room for %d vectors of sequences below %d, and for %d bytes; these "+
				"are %d of %d layers of %d channels: switch some off", ErrSteer, steerVectors-1, steerSequences,
				len(place), len(vectors),
				v.Rows, v.Embd)
		}
		state := packDirections(place[end-bytes:end], vectors[sequence])
		at := slices.Index(v.States[:v.Vectors], state)
		if at < 0 {
			at = int(v.Vectors)
			v.States[at] = state
			v.Vectors++
		}
		if sequence >= 0 {
			v.Of[sequence] = uint8(at)
		}
	}
	*(*shmVectors)(unsafe.Pointer(&place[0])) = v
	atomic.StoreUint32(&r.header.Steer, number)
	return number, nil
}

// packDirections writes rows for the layers 1, 2, 3 …, and returns their state.
func packDirections(rows []byte, directions Steered) uint64 {
	clear(rows)
	zero := true
	for layer, row := range directions {
		for i, x := range row {
			zero = zero && x == 0
			binary.LittleEndian.PutUint32(rows[((layer-1)*len(row)+i)*4:], math.Float32bits(x))
		}
	}
	if zero {
		return steerZero
	}
	sum := sha256.Sum256(bytes.TrimRight(rows, "\x00")) // the same, however many layers others have
	return max(binary.LittleEndian.Uint64(sum[:]), steerZero+1)
}
