// Package bucket keeps files in an S3 bucket, below a prefix. A file is written in parts of bounded size and is there
// when it is published, or not at all; it is read by ranges. One process at a time changes what is below a prefix
// (lock.go).
//
// It needs a server that lists an object as soon as it was put, as all known ones do. What is sent has its SHA-256 in
// the signed header, by which the server refuses what was changed on the way.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/trivet-project/trivet"
)

// Scheme is what a location of a bucket begins with.
const Scheme = "s3://"

// Config is how a bucket is reached.
type Config struct {
	Endpoint string // URL of the server (default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or that of Amazon)
	Region   string // (default: AWS_REGION, AWS_DEFAULT_REGION, or what the server says)
	// Keys are the credentials. With them, nothing is taken from the environment and the files of Amazon's tools, and
	// the defaults are Amazon's server, the region that it says, and the CAs of the system.
	Keys *Keys
}

// Keys are the credentials for a bucket. Secret is secret.
type Keys struct {
	ID, Secret string
	CA         string // certificates, in PEM, that the server's is verified by; empty: those of the system
}

// Bucket is what is below a prefix in a bucket.
type Bucket struct {
	api    *minio.Core
	name   string
	prefix string // "", or with a slash at its end
	record bool   // a record names the server
}

// Bounds of a request.
const (
	requestTimeout  = 10 * time.Minute // for at most a part
	completeTimeout = time.Hour        // some servers copy all parts then
	maxListed       = 1_000_000
)

// Parse splits s3://BUCKET/PREFIX. The prefix has no slash at its end.
func Parse(location string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(location, Scheme)
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	switch {
	case !ok || s3utils.CheckValidBucketNameStrict(bucket) != nil:
		err = errors.New("the name of its bucket is not valid")
	case len(prefix) > 512:
		err = errors.New("its prefix has more than 512 bytes")
	case prefix != "":
		for part := range strings.SplitSeq(prefix, "/") {
			if part == "" || part == "." || part == ".." || strings.ContainsFunc(part, isControl) {
				err = fmt.Errorf("the part %.80q of its prefix is not valid", part)
			}
		}
	}
	if err != nil {
		return "", "", &trivet.Error{Op: "open", Name: fmt.Sprintf("%.200q", location),
			Err: fmt.Errorf("%w: %w", trivet.ErrInvalid, err), Hint: "name it s3://BUCKET/PREFIX"}
	}
	return bucket, prefix, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }

// Open returns what is at a location. It sends no request yet.
func Open(location string, cfg Config) (*Bucket, error) {
	b := &Bucket{record: cfg.Keys != nil}
	var err error
	if b.name, b.prefix, err = Parse(location); err != nil {
		return nil, err
	}
	if b.prefix != "" {
		b.prefix += "/"
	}
	b.api, err = cfg.client()
	return b, err
}

// Path returns the location of a file, or of the prefix for "".
func (b *Bucket) Path(name string) string {
	return strings.TrimSuffix(Scheme+b.name+"/"+b.prefix+name, "/")
}

// List returns the sizes of the files in a directory below the prefix.
func (b *Bucket) List(ctx context.Context, dir string) (map[string]int64, error) {
	sizes := map[string]int64{}
	err := b.list(ctx, dir, func(name string, o minio.ObjectInfo) { sizes[name] = o.Size })
	return sizes, err
}

func (b *Bucket) list(ctx context.Context, dir string, each func(name string, o minio.ObjectInfo)) error {
	prefix := b.prefix
	if dir != "" {
		prefix += dir + "/"
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	n := 0
	for o := range b.api.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return b.explain(ctx, "list", dir, o.Err)
		}
		if n++; n > maxListed {
			return b.explain(ctx, "list", dir, fmt.Errorf("it has more than %d objects", maxListed))
		}
		name, ok := strings.CutPrefix(o.Key, prefix)
		if ok && name != "" && !strings.Contains(name, "/") {
			each(name, o)
		}
	}
	return b.explain(ctx, "list", dir, ctx.Err())
}

// remove removes objects.
func (b *Bucket) remove(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	results, err := b.api.RemoveObjectsWithIter(ctx, b.name, func(yield func(minio.ObjectInfo) bool) {
		for _, name := range names {
			if !yield(minio.ObjectInfo{Key: b.prefix + name}) {
				return
			}
		}
	}, minio.RemoveObjectsOptions{})
	if err != nil {
		return b.explain(ctx, "remove", "", err)
	}
	for r := range results {
		if r.Err != nil {
			return b.explain(ctx, "remove", strings.TrimPrefix(r.ObjectName, b.prefix), r.Err)
		}
	}
	return b.explain(ctx, "remove", "", ctx.Err())
}
