package platform

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/ulikunitz/xz"

	"github.com/trivet-project/trivet"
)

// newXZ decompresses by the host's xz if it exists, otherwise in Go: 3 s instead of 44 s for Debian's amd64 kernel. The
// result is the same. The reader must be closed.
func newXZ(ctx context.Context, r io.Reader) (io.ReadCloser, error) {
	program, err := exec.LookPath("xz")
	if err != nil {
		plain, err := xz.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		}
		return io.NopCloser(plain), nil
	}
	x := &xzProgram{cmd: exec.CommandContext(ctx, program, "-dc", "-T0")}
	x.cmd.Stdin, x.cmd.Stderr = r, &x.stderr
	if x.out, err = x.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return x, x.cmd.Start()
}

type xzProgram struct {
	cmd    *exec.Cmd
	out    io.ReadCloser
	stderr bytes.Buffer
	waited bool
}

// Read returns the program's failure instead of io.EOF.
func (x *xzProgram) Read(p []byte) (int, error) {
	n, err := x.out.Read(p)
	if err == io.EOF && !x.waited {
		x.waited = true
		if failed := x.cmd.Wait(); failed != nil {
			return n, fmt.Errorf("%w: %w: %s", trivet.ErrInvalid, failed, bytes.TrimSpace(x.stderr.Bytes()))
		}
	}
	return n, err
}

// Close stops the program if it runs.
func (x *xzProgram) Close() error {
	if !x.waited {
		x.waited = true
		x.out.Close() // the program ends by SIGPIPE, even before the end of its input
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
	}
	return nil
}
