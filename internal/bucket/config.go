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
	"github.com/trivet-project/trivet/internal/limit"
)

// KeysOf returns the credentials of a record's bucket, of its secret.
func KeysOf(b *trivet.Bucket, secret *trivet.Secret, unseal func(s *trivet.Secret, key string) (string, error)) (*Keys,
	error) {
	keys := &Keys{CA: b.CA}
	for name, value := range map[string]*string{trivet.BucketAccessKey: &keys.ID, trivet.BucketSecretKey: &keys.Secret} {
		if secret.Spec.Data[name] == "" {
			return nil, &trivet.Error{Op: "open the S3 server", Kind: "Secret", Name: b.Secret, Hint: "add it",
				Err: fmt.Errorf("%w: it has no %s", trivet.ErrInvalid, name)}
		}
		var err error
		if *value, err = unseal(secret, name); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

const amazon = "https://s3.amazonaws.com" // the client adds the region

// client returns a client of the server.
func (c Config) client() (*minio.Core, error) {
	host, secure, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	creds, err := c.credentials()
	if err != nil {
		return nil, err
	}
	cas, err := c.trusted()
	if err != nil {
		return nil, err
	}
	return minio.NewCore(host, &minio.Options{Creds: creds, Secure: secure, Transport: c.transport(cas),
		Region: cmp.Or(c.Region, c.env("AWS_REGION"), c.env("AWS_DEFAULT_REGION"))})
}

// env returns a variable of the environment, where that is used.
func (c Config) env(name string) string {
	if c.Keys != nil {
		return ""
	}
	return os.Getenv(name)
}

// endpoint returns the server and whether it is called by TLS.
func (c Config) endpoint() (host string, secure bool, err error) {
	text := cmp.Or(c.Endpoint, c.env("AWS_ENDPOINT_URL_S3"), c.env("AWS_ENDPOINT_URL"), amazon)
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

// credentials returns those of the environment, or of the files of Amazon's tools. Its errors do not have them.
func (c Config) credentials() (*credentials.Credentials, error) {
	if c.Keys != nil {
		return credentials.NewStaticV4(c.Keys.ID, c.Keys.Secret, ""), nil
	}
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

// trusted returns the CAs that the server's certificate is verified by; nil: those of the system.
func (c Config) trusted() (*x509.CertPool, error) {
	if c.Keys != nil && c.Keys.CA != "" {
		return poolOf([]byte(c.Keys.CA))
	}
	file := c.env("AWS_CA_BUNDLE")
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	var pool *x509.CertPool
	if err == nil {
		pool, err = poolOf(text)
	}
	if err != nil {
		return nil, &trivet.Error{Op: "open AWS_CA_BUNDLE", Name: file,
			Err: fmt.Errorf("%w: %w", trivet.ErrInvalid, err), Hint: "name a file of certificates in PEM"}
	}
	return pool, nil
}

func poolOf(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("it has no certificate")
	}
	return pool, nil
}

func (c Config) transport(cas *x509.CertPool) http.RoundTripper {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cas}
	dialer, proxy := &net.Dialer{Timeout: 10 * time.Second}, http.ProxyFromEnvironment
	if c.Keys != nil { // a record names the server, which is checked here and not by a proxy
		dialer.ControlContext, proxy = limit.CheckOutbound, nil
	}
	return bounded{&http.Transport{Proxy: proxy, DialContext: dialer.DialContext,
		TLSClientConfig: conf, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: 10 * time.Second,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 8, MaxResponseHeaderBytes: 1 << 20,
		DisableCompression: true}}
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
