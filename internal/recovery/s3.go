package recovery

import (
	"context"
	"strings"

	"github.com/trivet-project/trivet/internal/archive"
	"github.com/trivet-project/trivet/internal/bucket"
)

// bucketPlace is a place in an S3 bucket.
type bucketPlace struct{ *bucket.Bucket }

// Open opens an object.
func (p bucketPlace) Open(ctx context.Context, name string) (archive.Source, error) {
	o, err := p.Bucket.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Lock locks what is below the prefix. The bucket must exist.
func (p bucketPlace) Lock(ctx context.Context, _ bool) (writer, error) {
	l, err := p.Bucket.Lock(ctx, isOfBackups)
	if err != nil {
		return nil, err
	}
	return bucketWriter{l}, nil
}

// bucketWriter is a place in an S3 bucket that this process has locked.
type bucketWriter struct{ *bucket.Lock }

// Create begins an object.
func (w bucketWriter) Create(ctx context.Context, name string, size int64) (newFile, error) {
	return w.Lock.Create(ctx, name, size), nil
}

// isOfBackups reports whether a name is that of a file that backups have.
func isOfBackups(name string) bool {
	if digits, ok := strings.CutPrefix(name, blobsDir+"/"); ok {
		return isDigits(digits)
	}
	return strings.HasSuffix(name, suffix) && !strings.Contains(name, "/")
}
