package cluster

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"go.uber.org/zap/zapcore"
)

// fatal handles errors at which etcd would end the process, such as a full disk: the goroutine that logged the error
// ends, and the error is reported by Err. The rest of the head keeps serving reads.
type fatal struct {
	once sync.Once
	done chan struct{}
	err  error // readable once done is closed
}

var errFatal = errors.New("etcd failed")

// ErrRemoved: this member was permanently removed from the cluster.
var ErrRemoved = errors.New("this member was removed from the cluster")

func newFatal() *fatal { return &fatal{done: make(chan struct{})} }

// OnWrite is called by zap after it has logged a fatal error or a panic.
func (f *fatal) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := fmt.Errorf("%w: %s", errFatal, e.Message)
	if cause := errorIn(fields); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	f.fail(err)
	runtime.Goexit()
}

// fail records the first error.
func (f *fatal) fail(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.done)
	})
}

// Err returns the first error, or nil.
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
