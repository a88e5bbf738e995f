package lab

import (
	"context"
	"errors"
	"io"
	"os"
)

// What is replaced in heads that go on.

// rotate replaces the CA and all keys: docs/heads.md, "After a theft".
func (s *recoverySite) rotate(ctx context.Context) error {
	if _, err := s.operator.run(ctx, "rotate", "all", "--grace", "5s", "--yes"); err != nil {
		return err
	}
	return s.reconnect()
}

// upgrade replaces the program of all heads: docs/heads.md, "Update the heads".
func (s *recoverySite) upgrade(ctx context.Context) error {
	next := s.path("trivet-next")
	if err := copyProgram(next, s.operator.program); err != nil {
		return err
	}
	_, err := s.operator.run(ctx, "upgrade", "run", next, "--soak", "5s", "--yes")
	return err
}

// copyProgram writes a program of the same version as another file: a program may be followed by anything.
func copyProgram(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	_, err = io.WriteString(out, "next")
	return err
}
