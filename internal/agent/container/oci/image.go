// Package oci gets container images, from a registry or from an OCI layout, and unpacks them into a directory.
package oci

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/trivet-project/trivet"
)

// platform is the one that is selected in images of several platforms.
var platform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// Registry configures the connection to a registry.
type Registry struct {
	PlainHTTP bool
	CA        string // PEM; empty: the system's
}

// Pull returns an image in a registry. Its layers are fetched, and checked against its digest, as they are read. Its
// errors are trivet.ErrInvalid (the name, the CA), ErrNotFound, ErrForbidden or ErrUnavailable.
func Pull(ctx context.Context, ref string, r Registry) (v1.Image, error) {
	var options []name.Option
	if r.PlainHTTP {
		options = append(options, name.Insecure)
	}
	parsed, err := name.ParseReference(ref, options...)
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w: %w", ref, trivet.ErrInvalid, err)
	}
	t, err := r.transport()
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", ref, err)
	}
	img, err := remote.Image(parsed, remote.WithContext(ctx), remote.WithPlatform(platform), remote.WithTransport(t))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w: %w", ref, kindOf(err), err)
	}
	return img, nil
}

func (r Registry) transport() (http.RoundTripper, error) {
	if r.CA == "" {
		return remote.DefaultTransport, nil
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !t.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(r.CA)) {
		return nil, fmt.Errorf("%w: the CA contains no certificate", trivet.ErrInvalid)
	}
	return t, nil
}

func kindOf(err error) error {
	var t *transport.Error
	if errors.As(err, &t) {
		switch t.StatusCode {
		case http.StatusNotFound:
			return trivet.ErrNotFound
		case http.StatusUnauthorized, http.StatusForbidden:
			return trivet.ErrForbidden
		}
	}
	return trivet.ErrUnavailable
}

// maxIndexes bounds how deep indexes of a layout may be nested.
const maxIndexes = 4

// Layout returns the image for this machine's platform in a directory with an OCI layout. An image that names no
// platform is accepted if it is the only one.
func Layout(dir string) (v1.Image, error) { return layoutFor(dir, platform) }

func layoutFor(dir string, p v1.Platform) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("read the OCI layout: %w: %w", trivet.ErrInvalid, err)
	}
	img, err := pick(index, p, maxIndexes)
	if err != nil {
		return nil, fmt.Errorf("read the OCI layout: %w", err)
	}
	return img, nil
}

func pick(index v1.ImageIndex, platform v1.Platform, depth int) (v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	for _, d := range manifest.Manifests {
		fits := d.Platform == nil && len(manifest.Manifests) == 1 || d.Platform != nil && d.Platform.Satisfies(platform)
		switch {
		case d.MediaType.IsImage() && fits:
			return index.Image(d.Digest)
		case d.MediaType.IsIndex() && depth > 0:
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
			}
			if img, err := pick(inner, platform, depth-1); err == nil {
				return img, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: it contains no image for %s", trivet.ErrInvalid, platform)
}
