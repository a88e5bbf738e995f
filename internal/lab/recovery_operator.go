package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/trivet-project/trivet/client"
)

// operator runs the commands of docs/recovery.md, each as a process of the program.
type operator struct {
	program string
	client.Context
}

// run runs a command that must succeed, and returns its standard output.
func (o *operator) run(ctx context.Context, args ...string) ([]byte, error) {
	out, err := o.output(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("trivet %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// read runs a command with -o json, and decodes what it writes. Of one that reports by its exit status, the output
// is enough.
func (o *operator) read(ctx context.Context, into any, args ...string) error {
	out, err := o.output(ctx, append(args, "-o", "json")...)
	if len(out) > 0 {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		return fmt.Errorf("trivet %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (o *operator) output(ctx context.Context, args ...string) ([]byte, error) {
	var out, messages bytes.Buffer
	cmd := exec.CommandContext(ctx, o.program, args...)
	cmd.Env = append(os.Environ(), "TRIVET_ENDPOINTS="+strings.Join(o.Endpoints, ","), "TRIVET_TRUST="+o.Trust,
		"TRIVET_TOKEN="+o.Token, "TRIVET_PROJECT=")
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	if text := strings.TrimSpace(messages.String()); err != nil && text != "" {
		err = errors.New(text)
	}
	return out.Bytes(), err
}

// connect returns a client of the cluster.
func (o *operator) connect() (*client.Client, error) {
	return client.New(client.Config{Endpoints: o.Endpoints, Trust: o.Trust, Token: o.Token, UserAgent: "trivet-demo"})
}
