package testhead

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/trivet-project/trivet/client"
)

// Timeout bounds every wait of a test for something that must happen.
const Timeout = 60 * time.Second

// Eventually calls try until it succeeds or ctx ends.
func Eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// APIURL returns the URL of the API of a head at an address.
func APIURL(address string) string { return "https://" + net.JoinHostPort(address, "7480") }

// Unverified is a client for probes that need no trusted answer. It opens a connection for each request.
var Unverified = &http.Client{
	Timeout:   2 * time.Second,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

// Ready reports whether a head's /readyz succeeds.
func Ready(apiURL string) bool {
	resp, err := Unverified.Get(apiURL + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// AdminFile is the file of the administrator's credential that the first head writes into its data directory.
func AdminFile(dataDir string) string { return filepath.Join(dataDir, "admin.yaml") }

// Admin reads an administrator's file.
func Admin(file string) (client.Context, error) {
	f, err := client.ReadFile(file)
	if err != nil {
		return client.Context{}, err
	}
	return f.Pick("")
}
