package bucket

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/trivet-project/trivet"
)

const amazon = "https://s3.amazonaws.com" // the client adds the region

// client returns a client of the server.
func (c Config) client() (*minio.Core, error) {
	host, secure, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	creds, err := findCredentials()
	if err != nil {
		return nil, err
	}
	transport, err := newTransport()
	if err != nil {
		return nil, err
	}
	return minio.NewCore(host, &minio.Options{Creds: creds, Secure: secure, Transport: transport,
		Region: cmp.Or(c.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))})
}

// endpoint returns the server and whether it is called by TLS.
func (c Config) endpoint() (host string, secure bool, err error) {
	text := cmp.Or(c.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), amazon)
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil ||
		u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		// Not with the text, which may have a password.
		return "", false, &trivet.Error{Op: "open the S3 server",
			Err:  fmt.Errorf("%w: the endpoint is not a URL of a server", trivet.ErrInvalid),
			Hint: "pass https://HOST or https://HOST:PORT by --s3-endpoint or AWS_ENDPOINT_URL"}
	}
	return u.Host, u.Scheme == "https", nil
}

// findCredentials returns those of the environment, or of the files of Amazon's tools. Its errors do not have them.
func findCredentials() (*credentials.Credentials, error) {
	failed := &trivet.Error{Op: "open the S3 server",
		Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile of ~/.aws/credentials by AWS_PROFILE"}
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	switch {
	case id != "" && secret != "":
		return credentials.NewStaticV4(id, secret, os.Getenv("AWS_SESSION_TOKEN")), nil
	case id != "" || secret != "":
		failed.Err = fmt.Errorf("%w: only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
			trivet.ErrUnauthenticated)
		return nil, failed
	}
	creds := credentials.NewFileAWSCredentials("", "")
	if v, err := creds.GetWithContext(nil); err != nil || v.AccessKeyID == "" {
		failed.Err = fmt.Errorf("%w: there are no credentials in the environment, nor in a file that can be read",
			trivet.ErrUnauthenticated)
		return nil, failed
	}
	return creds, nil
}

// newTransport returns a transport that trusts the system's CAs, and those in AWS_CA_BUNDLE.
func newTransport() (http.RoundTripper, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := os.Getenv("AWS_CA_BUNDLE"); file != "" {
		text, err := os.ReadFile(file)
		if conf.RootCAs = x509.NewCertPool(); err == nil && !conf.RootCAs.AppendCertsFromPEM(text) {
			err = errors.New("it has no certificate")
		}
		if err != nil {
			return nil, &trivet.Error{Op: "open AWS_CA_BUNDLE", Name: file,
				Err: fmt.Errorf("%w: %w", trivet.ErrInvalid, err), Hint: "name a file of certificates in PEM"}
		}
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	return bounded{&http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
		TLSClientConfig: conf, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: 10 * time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 8, MaxResponseHeaderBytes: 1 << 20,
		DisableCompression: true}}, nil
}

// bounded bounds the bodies of responses. The largest are those of a range.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxRange), resp.Body}
	}
	return resp, err
}
