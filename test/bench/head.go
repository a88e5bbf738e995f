package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/trivet-project/trivet/client"
)

// head is a running head.
type head struct {
	*program
	dir    string
	client *client.Client // as the administrator
	trust  string         // the pin of its CA
	token  string
}

const (
	apiURL  = "https://10.16.0.1:7480"
	bootURL = "http://10.16.0.1:7481"
)

// startHead runs `trivet server` on our side, on a new data folder or one that is there, and returns when it is ready. took
// is the time that needed.
func (b *bench) startHead(dir string, flags ...string) (h *head, took time.Duration, err error) {
	h = &head{dir: dir}
	began := time.Now()
	h.program, err = b.start(ours, b.binary, append([]string{"server", "--data-dir", dir, "--log-level", "warn"}, flags...)...)
	if err != nil {
		return nil, 0, err
	}
	if err := h.await(isReady); err != nil {
		h.stop()
		return nil, 0, err
	}
	took = time.Since(began)
	if err := h.login(); err != nil {
		h.stop()
		return nil, 0, err
	}
	return h, took, nil
}

// isReady asks the head's /readyz.
func isReady() bool {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // nothing is believed but the status
	}}
	resp, err := c.Get(apiURL + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (h *head) login() error {
	file, err := client.ReadFile(filepath.Join(h.dir, "admin.yaml"))
	if err != nil {
		return err
	}
	c, err := file.Pick("")
	if err != nil {
		return err
	}
	h.trust, h.token = c.Trust, c.Token
	h.client, err = client.New(client.Config{Endpoints: []string{apiURL}, Trust: c.Trust, Token: c.Token, UserAgent: "trivet-bench"})
	return err
}

// close ends the head and removes its data.
func (h *head) close() {
	h.client.Close()
	h.stop()
	_ = os.RemoveAll(h.dir)
}
