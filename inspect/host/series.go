package host

import (
	"maps"
	"math"
	"slices"
)

// maxPoints bounds the points of a series. Where there are more snapshots, neighbours are put together: a picture
// has no more columns.
const maxPoints = 1024

// firstWidth is the width of a point's time in seconds to begin with: less than an interval.
const firstWidth = 1.0 / 1024

// Point is what happened on a device, or everywhere, in some time: one snapshot, or several that follow each other.
type Point struct {
	Time      float64 // in seconds since 1970, of the end of the interval; the mean of several
	From      float64 // when the first interval began
	Snapshots int
	Seconds   float64 // sum of the intervals
	Requests  uint64
	Latency   Latency
	Depth     float64 // in flight at the ends of the intervals: their mean
	DepthMost uint64
}

// Add puts another point to it. Its latencies are not shared with the other's.
func (p *Point) Add(q *Point) {
	n, m := float64(p.Snapshots), float64(q.Snapshots)
	if n == 0 {
		p.From = q.From
	}
	p.Time = (p.Time*n + q.Time*m) / (n + m)
	p.Depth = (p.Depth*n + q.Depth*m) / (n + m)
	p.From = min(p.From, q.From)
	p.Snapshots += q.Snapshots
	p.Seconds += q.Seconds
	p.Requests += q.Requests
	p.Latency.merge(q.Latency)
	p.DepthMost = max(p.DepthMost, q.DepthMost)
}

// series is points on a grid of time, whose width doubles whenever there would be too many of them.
type series struct {
	width  float64
	points map[int64]*Point
}

// add takes a point. One whose time is not known has no place in a series.
func (s *series) add(p *Point) {
	if math.IsNaN(p.Time) || math.Abs(p.Time) > 1<<40 {
		return
	}
	if s.points == nil {
		s.width, s.points = firstWidth, map[int64]*Point{}
	}
	s.put(int64(math.Floor(p.Time/s.width)), p)
	for len(s.points) > maxPoints {
		s.width *= 2
		old := s.points
		s.points = map[int64]*Point{}
		for _, at := range slices.Sorted(maps.Keys(old)) {
			s.put(at>>1, old[at])
		}
	}
}

func (s *series) put(at int64, p *Point) {
	to := s.points[at]
	if to == nil {
		to = &Point{}
		s.points[at] = to
	}
	to.Add(p)
}

// sorted lists the points in the order of time.
func (s *series) sorted() []Point {
	points := make([]Point, 0, len(s.points))
	for _, at := range slices.Sorted(maps.Keys(s.points)) {
		points = append(points, *s.points[at])
	}
	return points
}
