package image

// flusher flushes the target while more is written: otherwise everything would stay in memory until the end, and a
// machine that is interrupted would have nothing on its disk.
type flusher struct {
	due   chan struct{} // capacity 1
	ended chan struct{}
	since int64 // bytes written since the last request
	err   error // of the goroutine; to be read after ended
}

// flushEvery is how many bytes are written between flushes.
const flushEvery = 64 << 20

func newFlusher(dst Target) *flusher {
	f := &flusher{due: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		for range f.due {
			if f.err == nil {
				f.err = dst.Sync()
			}
		}
	}()
	return f
}

// wrote counts written bytes. A flush that is due while one runs and another waits is left out.
func (f *flusher) wrote(n int64) {
	if f.since += n; f.since < flushEvery {
		return
	}
	select {
	case f.due <- struct{}{}:
		f.since = 0
	default:
	}
}

// close waits for the flush that runs, and returns the first error: the kernel reports a failed write only once.
func (f *flusher) close() error {
	close(f.due)
	<-f.ended
	return f.err
}
