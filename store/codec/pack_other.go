//go:build !amd64 || noasm

package codec

func lookVector(part []byte, s *lookSums) int { return 0 }

func quantizeVector(q []int32, values []byte, inverse, step float32, s *quantSums) int { return 0 }

func packVector(dst []byte, q []int32, width int) int { return 0 }
