package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/klauspost/compress/fse"
)

// Metric is how the error of a row is measured that the codec Q keeps under its bound. The numbers are stored in
// payloads.
type Metric uint8

// The metrics, each relative to the row itself.
const (
	maxAbs Metric = iota // largest absolute error ÷ largest absolute value
	NRMSE                // root of the mean squared error ÷ root of the mean squared value
)

var metricNames = [...]string{"maxabs", "nrmse"}

// String returns the metric's name as flags spell it.
func (m Metric) String() string {
	if int(m) < len(metricNames) {
		return metricNames[m]
	}
	return fmt.Sprintf("metric(%d)", uint8(m))
}

// ParseMetric is the inverse of String.
func ParseMetric(s string) (Metric, error) {
	if i := slices.Index(metricNames[:], s); i >= 0 {
		return Metric(i), nil
	}
	return maxAbs, fmt.Errorf("error metric %q: %w; use one of %v", s, ErrUnknown, metricNames)
}

// Bound is what the codec Q promises. The zero value is a largest error of 1e-3.
type Bound struct {
	Error  float32 // 0 = 1e-3
	Metric Metric
}

// The errors that may be asked for: below the first, 24 bits of an integer do not suffice; above the second, little
// is left.
const (
	leastError   = 1e-6
	largestError = 0.25
)

// Check reports whether the codec can keep the bound.
func (b Bound) Check() error {
	if e := b.value(); !(e >= leastError && e <= largestError) { // not a NaN either
		return fmt.Errorf("error bound %v: %g to %g can be kept", b.Error, leastError, largestError)
	}
	if int(b.Metric) >= len(metricNames) {
		return fmt.Errorf("%v: %w", b.Metric, ErrUnknown)
	}
	return nil
}

func (b Bound) value() float32 {
	if b.Error == 0 {
		return 1e-3
	}
	return b.Error
}

// Achieved is the error that was made, the largest of all rows, by both metrics.
type Achieved struct {
	MaxAbs float32 `json:"maxabs"`
	NRMSE  float32 `json:"nrmse"`
}

// Or returns the larger of both errors, by each metric.
func (a Achieved) Or(b Achieved) Achieved {
	return Achieved{max(a.MaxAbs, b.MaxAbs), max(a.NRMSE, b.NRMSE)}
}

// The layout of a payload of codec Q, little-endian: see docs/STREAM_FORMAT.md.
const (
	qVersion = 2
	// version, metric and entropy, bound, both achieved errors; row length and rows follow as varints
	qHead     = 1 + 1 + 4 + 4 + 4
	qEntropy  = 0x80
	qGroup    = 256 // values that share a width
	qMaxWidth = 24
	maxTries  = 8        // steps that are tried for a row before it is stored as it is
	qRare     = 1024     // of so many values one may be an exception of the entropy stage
	qMedian   = 2        // bits of the middle value, its sign among them, that are left to the entropy stage
	qFSEBlock = 64 << 10 // symbols that share a table
	qFew      = 4096     // of no more values than that, packing without the entropy stage is tried as well
)

// Kinds of rows.
const (
	qZero  = iota // every value is +0
	qConst        // one value, all of its bits, for the whole row
	qRaw          // values as they are
	qPlain        // step, groups
	qSpare        // step, groups, exceptions
	// With the entropy stage these two, plus the number of low bits, stand for the two before: step, low bits,
	// exceptions.
	qLow      = 32
	qLowSpare = 64
)

// quantizer is what an Encoder needs for codec Q.
type quantizer struct {
	bound    Bound
	entropy  bool
	q        []int32
	clean    []byte // a row without its exceptions
	body     []byte // rows, which follow the symbols
	symbols  []byte // high bits of all rows
	special  []int  // places of exceptions
	merged   []int
	achieved Achieved
	fse      fse.Scratch
}

// rowStats is what a row is like. Values that are not finite, and −0, are exceptions and do not count.
type rowStats struct {
	largest    float32
	squares    float64
	exceptions int
}

// append appends the payload of src, rows of n values of type F32.
func (z *quantizer) append(dst, src []byte, n int) ([]byte, error) {
	if n <= 0 || len(src)%(4*n) != 0 {
		return dst, fmt.Errorf("quantise %d bytes in rows of %d values: %w", len(src), n, ErrLength)
	}
	z.achieved = Achieved{}
	if len(src) == 0 {
		return dst, nil
	}
	head := len(dst)
	dst = z.payload(dst, src, n)
	if !z.entropy || len(src)/4 > qFew {
		return dst, nil
	}
	coded, made := len(dst), z.achieved
	z.entropy = false
	dst = z.payload(dst, src, n)
	z.entropy = true
	if len(dst)-coded < coded-head {
		return dst[:head+copy(dst[head:], dst[coded:])], nil
	}
	z.achieved = made
	return dst[:coded], nil
}

// payload appends it with or without the entropy stage.
func (z *quantizer) payload(dst, src []byte, n int) []byte {
	z.achieved = Achieved{}
	head := len(dst)
	dst = append(dst, qVersion, byte(z.bound.Metric))
	if z.entropy {
		dst[head+1] |= qEntropy
	}
	dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(z.bound.value()))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(n)), uint64(len(src)/(4*n)))
	z.symbols = z.symbols[:0]
	body := dst
	if z.entropy {
		body = z.body[:0]
	}
	for at := 0; at < len(src); at += 4 * n {
		body = z.row(body, src[at:at+4*n])
	}
	if z.entropy {
		dst, z.body = z.appendSymbols(dst), body
		dst = append(dst, body...)
	} else {
		dst = body
	}
	binary.LittleEndian.PutUint32(dst[head+6:], math.Float32bits(z.achieved.MaxAbs))
	binary.LittleEndian.PutUint32(dst[head+10:], math.Float32bits(z.achieved.NRMSE))
	return dst
}

// row appends one row, as small as the bound allows, and exactly where that is no larger or nothing else is right.
func (z *quantizer) row(dst, row []byte) []byte {
	s := statsOf(row)
	if constant(row) {
		if binary.LittleEndian.Uint32(row) == 0 {
			return append(dst, qZero)
		}
		return append(append(dst, qConst), row[:4]...)
	}
	n := len(row) / 4
	if s.exceptions > n/16 || s.largest < 0x1p-40 || s.largest > 0x1p60 { // or squares would be no ordinary numbers
		return append(append(dst, qRaw), row...)
	}
	start := len(dst)
	step := short(z.step(&s, n))
	for range maxTries {
		out, made, fits := z.try(dst, row, step, &s)
		if fits {
			out, made = z.widened(out, start, made, row, step, &s)
			z.achieved = z.achieved.Or(made)
			return out
		}
		dst = out
		// a row's mean error is not exactly what its step says
		step = short(step * min(0.9998*z.bound.value()/z.reached(made), 0.9998))
	}
	return append(append(dst, qRaw), row...)
}

// try appends a row as multiples of step, if that keeps the bound and is smaller than the row.
func (z *quantizer) try(dst, row []byte, step float32, s *rowStats) (out []byte, made Achieved, fits bool) {
	start, symbols, values := len(dst), len(z.symbols), row
	z.special = z.special[:0]
	if s.exceptions > 0 {
		values = z.withoutExceptions(row)
	}
	out, made = z.quantised(dst, values, row, step, s)
	if z.reached(made) <= z.bound.value() && len(out)-start < len(row) {
		return out, made, true
	}
	z.symbols = z.symbols[:symbols]
	return out[:start], made, false
}

// widened tries a larger step for the row at start, which is the last one in dst: how large the mean error of a row
// becomes is partly chance, and where it is far below the bound, bits are given away.
func (z *quantizer) widened(dst []byte, start int, made Achieved, row []byte, step float32, s *rowStats) ([]byte,
	Achieved) {
	if z.bound.Metric != NRMSE || made.NRMSE <= 0 || made.NRMSE > 0.996*z.bound.value() {
		return dst, made
	}
	wider := short(step * min(0.9998*z.bound.value()/made.NRMSE, 1.25))
	if wider <= step {
		return dst, made
	}
	end, symbols := len(dst), len(z.symbols)
	before := symbols - len(row)/4
	out, better, fits := z.try(dst, row, wider, s)
	if !fits {
		return out, made
	}
	if z.entropy {
		z.symbols = z.symbols[:before+copy(z.symbols[before:], z.symbols[symbols:])]
	}
	return out[:start+copy(out[start:], out[end:])], better
}

// short cuts a step to what a row has room for: the upper half of its bits.
func short(step float32) float32 { return math.Float32frombits(math.Float32bits(step) &^ 0xffff) }

// step is the distance of neighbouring values: so that the error bound is kept, with a margin for the rounding of
// products.
func (z *quantizer) step(s *rowStats, n int) float32 {
	const margin = 1 - 0x1p-20
	if z.bound.Metric == NRMSE {
		return float32(float64(z.bound.value()) * math.Sqrt(12*s.squares/float64(n)) * 0.9995)
	}
	return float32(2 * float64(z.bound.value()) * float64(s.largest) * margin)
}

// reached is the error that the bound is about.
func (z *quantizer) reached(made Achieved) float32 {
	if z.bound.Metric == NRMSE {
		return made.NRMSE
	}
	return made.MaxAbs
}

// quantised appends a row as multiples of step, and returns the error made. Values that are exceptions are 0 in values.
func (z *quantizer) quantised(dst, values, row []byte, step float32, s *rowStats) ([]byte, Achieved) {
	kind := len(dst)
	dst = binary.LittleEndian.AppendUint16(append(dst, qPlain), uint16(math.Float32bits(step)>>16))
	z.q = slices.Grow(z.q[:0], len(values)/4)[:len(values)/4]
	worst, squares := float32(0), 0.0
	for at := 0; at < len(z.q); at += qGroup {
		q := z.q[at:min(at+qGroup, len(z.q))]
		largest, sum, most := quantize(q, values[4*at:], 1/step, step)
		worst, squares = max(worst, largest), squares+float64(sum)
		width := widthOf(most)
		if width > qMaxWidth {
			return dst, Achieved{float32(math.Inf(1)), float32(math.Inf(1))}
		}
		if !z.entropy {
			dst = appendPacked(append(dst, byte(width)), q, width)
		}
	}
	spare := byte(qSpare)
	if z.entropy {
		var low byte
		dst, low = z.split(dst)
		dst[kind], spare = qLow+low, qLowSpare+low
	}
	if len(z.special) > 0 {
		dst[kind] = spare
		dst = z.appendExceptions(dst, row)
	}
	return dst, Achieved{
		MaxAbs: up(float64(worst) / float64(s.largest)),
		NRMSE:  up(math.Sqrt(squares / s.squares)),
	}
}

// up rounds to the next larger float32, so that no error is stated smaller than it is.
func up(x float64) float32 {
	f := float32(x)
	if float64(f) < x {
		f = math.Nextafter32(f, float32(math.Inf(1)))
	}
	return f
}

// widthOf is the bits of a two's complement that holds −most to most.
func widthOf(most int32) int {
	width := 0
	for ; most > 0; most >>= 1 {
		width++
	}
	if width > 0 {
		width++
	}
	return width
}

// withoutExceptions is a copy of a row with zeros in the place of exceptions, which it notes.
func (z *quantizer) withoutExceptions(row []byte) []byte {
	z.clean = append(z.clean[:0], row...)
	for i := 0; i < len(row)/4; i++ {
		if exceptional(binary.LittleEndian.Uint32(row[4*i:])) {
			z.special = append(z.special, i)
			clear(z.clean[4*i : 4*i+4])
		}
	}
	return z.clean
}

// exceptional reports whether a float32 is not finite, or −0.
func exceptional(bits uint32) bool { return bits&absMask >= infBits || bits == 1<<31 }

func (z *quantizer) appendExceptions(dst, row []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(z.special)))
	last := 0
	for _, i := range z.special {
		dst = binary.AppendUvarint(dst, uint64(i-last))
		dst = append(dst, row[4*i:4*i+4]...)
		last = i
	}
	return dst
}

func constant(row []byte) bool {
	first := binary.LittleEndian.Uint32(row)
	for i := 4; i < len(row); i += 4 {
		if binary.LittleEndian.Uint32(row[i:]) != first {
			return false
		}
	}
	return true
}

// split keeps eight bits of each value for the entropy stage and appends the bits below them, which are nearly
// random, as they are; it returns how many they are. The few values that are larger than that become exceptions.
func (z *quantizer) split(dst []byte) ([]byte, byte) {
	var widths [33]int
	for _, v := range z.q {
		widths[bits.Len32(uint32(v^v>>31))+1]++
	}
	median := 0
	for n := widths[0]; 2*n < len(z.q); n += widths[median] {
		median++
	}
	// Fewer bits in the symbols would leave the low bits with something to gain, and more would not leave room for
	// the large values.
	low, larger := max(0, median-qMedian), 0
	for width := low + 9; width < len(widths); width++ {
		larger += widths[width]
	}
	for ; larger > len(z.q)/qRare; low++ {
		larger -= widths[low+9]
	}
	if larger > 0 {
		z.exclude(low + 8)
	}
	for i, v := range z.q {
		z.symbols = append(z.symbols, byte(v>>low))
		z.q[i] = v & (1<<low - 1)
	}
	return appendPacked(dst, z.q, low), byte(low)
}

// exclude makes exceptions of the values that are wider than that.
func (z *quantizer) exclude(width int) {
	before := z.special
	z.merged = z.merged[:0]
	for i, v := range z.q {
		if len(before) > 0 && before[0] == i {
			before = before[1:]
		} else if bits.Len32(uint32(v^v>>31))+1 <= width {
			continue
		}
		z.q[i] = 0
		z.merged = append(z.merged, i)
	}
	z.special, z.merged = z.merged, z.special
}

// appendSymbols appends the number of symbols and then, block by block, the size of what was coded, or 0 and the
// symbols as they are.
func (z *quantizer) appendSymbols(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(z.symbols)))
	for rest := z.symbols; len(rest) > 0; {
		block := rest[:min(len(rest), qFSEBlock)]
		rest = rest[len(block):]
		z.fse.TableLog, z.fse.MaxSymbolValue = 12, 255
		coded, err := fse.Compress(block, &z.fse)
		if err != nil || len(coded) >= len(block) { // one symbol only, or nothing gained
			dst = append(append(dst, 0), block...)
			continue
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(coded))), coded...)
	}
	return dst
}

// boundQ is the largest payload of n source bytes: rows as they are, each of at least one value.
func boundQ(n int) int { return qHead + 2*binary.MaxVarintLen64 + n + n/4 + n/(4*qGroup) + 64 }

var errQ = errors.New("quantised rows")

// readAchieved reads the errors that a payload of codec Q states of itself, and the bound that it kept.
func readAchieved(src []byte) (Bound, Achieved, error) {
	if len(src) < qHead || src[0] != qVersion {
		return Bound{}, Achieved{}, fmt.Errorf("%w: %w: no header", errQ, ErrCorrupt)
	}
	f := func(at int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(src[at:])) }
	b := Bound{Error: f(2), Metric: Metric(src[1] &^ qEntropy)}
	return b, Achieved{MaxAbs: f(6), NRMSE: f(10)}, b.Check()
}
