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

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// operator runs the commands of docs/recovery.md, each as a process of the program, with a config file of its own.
type operator struct {
	program, config string
}

// operatorContext is the context in the operator's config file.
const operatorContext = "site"

// change changes the context.
func (o *operator) change(change func(*client.Context)) error {
	file, err := client.ReadFile(o.config)
	if errors.Is(err, trivet.ErrNotFound) {
		file, err = &client.File{Contexts: map[string]client.Context{}}, nil
	}
	if err != nil {
		return err
	}
	c := file.Contexts[operatorContext]
	change(&c)
	file.Current, file.Contexts[operatorContext] = operatorContext, c
	return file.Write(o.config)
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
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+o.config, "TRIVET_CONTEXT=", "TRIVET_ENDPOINTS=", "TRIVET_TRUST=",
		"TRIVET_TOKEN=", "TRIVET_PROJECT=")
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	if text := strings.TrimSpace(messages.String()); err != nil && text != "" {
		err = errors.New(text)
	}
	return out.Bytes(), err
}

// connect returns a client of the cluster.
func (o *operator) connect() (*client.Client, error) {
	file, err := client.ReadFile(o.config)
	if err != nil {
		return nil, err
	}
	c, err := file.Pick(operatorContext)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{Endpoints: c.Endpoints, Trust: c.Trust, Token: c.Token, UserAgent: "trivet-demo"})
}
