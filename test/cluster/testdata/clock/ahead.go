package time

import "sync/atomic"

// Ahead is by how many seconds this program's clock is ahead of the machine's.
var Ahead atomic.Int64
