package cluster

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"go.uber.org/zap/zapcore"
)

// fatal is what happens where etcd would end the process, as on a full disk: the goroutine that met the error ends, and the
// error is told. The rest of the head goes on serving what it knows.
type fatal struct {
	once sync.Once
	done chan struct{}
	err  error // readable once done is closed
}

var errFatal = errors.New("etcd gave up")

// ErrRemoved: the cluster has taken this member out for good.
var ErrRemoved = errors.New("this member was removed from the cluster")

func newFatal() *fatal { return &fatal{done: make(chan struct{})} }

// OnWrite is called by zap after it has logged a fatal error or a panic.
func (f *fatal) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	f.once.Do(func() {
		f.err = fmt.Errorf("%w: %s", errFatal, e.Message)
		if err := errorIn(fields); err != nil {
			f.err = fmt.Errorf("%w: %w", f.err, err)
		}
		close(f.done)
	})
	runtime.Goexit()
}

// Err gives the first error; nil while there is none.
func (f *fatal) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

func errorIn(fields []zapcore.Field) error {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return err
		}
	}
	return nil
}
