package catalog

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// OperationID names an operation: 12 lower-case hex digits. The first nine are the time of creation
// in sixteenths of a second since 1970, so that ids sort by time; the last three are random, so
// that two hosts that write to one bucket do not choose the same.
type OperationID string

const (
	operationIDLength = 12
	randomBits        = 12
	ticksPerSecond    = 16
)

// ParseOperationID checks a whole id. Catalog.FindOperation finds an operation by a prefix of its
// id.
func ParseOperationID(s string) (OperationID, error) {
	if len(s) != operationIDLength || !isHexPrefix(s) {
		return "", fmt.Errorf("operation id %q: want %d lower-case hex digits", s, operationIDLength)
	}
	return OperationID(s), nil
}

func (id OperationID) String() string { return string(id) }

// Time returns when the operation was created, by its id; the zero time for what is no id.
func (id OperationID) Time() time.Time {
	n, err := strconv.ParseUint(string(id), 16, 64)
	if err != nil {
		return time.Time{}
	}
	tick := n >> randomBits
	return time.Unix(int64(tick/ticksPerSecond),
		int64(tick%ticksPerSecond)*int64(time.Second/ticksPerSecond)).UTC()
}

// newOperationID returns an id for now that sorts after last, if last is at most a minute ahead.
// Otherwise a clock that once was wrong would determine all later ids.
func newOperationID(now time.Time, last OperationID) OperationID {
	const minute = 60 * ticksPerSecond << randomBits
	tick := uint64(now.Unix())*ticksPerSecond + uint64(now.Nanosecond())/uint64(
		time.Second/ticksPerSecond)
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	r := binary.BigEndian.Uint64(random[:])
	n := tick<<randomBits | r%(1<<randomBits)
	if before, err := strconv.ParseUint(string(last), 16, 64); err == nil && n <= before &&
		before-n < minute {
		n = before + 1 + r%16
	}
	return OperationID(fmt.Sprintf("%012x", n&(1<<48-1)))
}

// isHexPrefix reports whether s can be the beginning of an id.
func isHexPrefix(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdef") == ""
}
