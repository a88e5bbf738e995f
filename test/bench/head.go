package main

import (
	"errors"
	"os"
	"time"

	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// head is a running head, with a client of its own.
type head struct {
	*program
	dir    string
	client *client.Client // as the administrator
}

const (
	apiURL  = "https://10.16.0.1:7480"
	bootURL = "http://10.16.0.1:7481"
)

// startHead runs `trivet server` on our side, on a new data directory or an existing one, and returns when it is ready,
// and after what time.
func (b *bench) startHead(dir string, flags ...string) (h *head, took time.Duration, err error) {
	h = &head{dir: dir}
	began := time.Now()
	args := []string{"server", "--data-dir", dir, "--log-level", "warn", "--shared-addresses", ours.client + "/32"}
	args = append(args, flags...)
	h.program, err = b.start(ours, b.binary, args...)
	if err != nil {
		return nil, 0, err
	}
	if err := h.await(func() bool { return testhead.Ready(apiURL) }); err != nil {
		h.stop()
		return nil, 0, err
	}
	took = time.Since(began)
	cfg, err := adminOf(h.program, dir)
	if err == nil {
		cfg.Endpoints = []string{apiURL}
		h.client, err = client.New(cfg)
	}
	if err != nil {
		h.stop()
		return nil, 0, err
	}
	return h, took, nil
}

// adminOf is what a client needs to be the administrator of the head with this data directory. A head may be ready
// before it has written that.
func adminOf(p *program, dir string) (cfg client.Config, err error) {
	if errAwait := p.await(func() bool { cfg, err = readAdmin(dir); return err == nil }); errAwait != nil {
		return cfg, errors.Join(err, errAwait)
	}
	return cfg, nil
}

func readAdmin(dir string) (cfg client.Config, err error) {
	c, err := testhead.Admin(testhead.AdminFile(dir))
	return client.Config{Endpoints: c.Endpoints, Trust: c.Trust, Token: c.Token, UserAgent: "trivet-bench"}, err
}

// close ends the head and removes its data.
func (h *head) close() {
	h.client.Close()
	h.stop()
	_ = os.RemoveAll(h.dir)
}
