package bucket

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Files whose names are those of their contents need no lock. What is not published of them is continued by the next
// upload of that file, and removed when it is old.

// Entry is a file in a directory.
type Entry struct {
	Size     int64
	Modified time.Time // by the clock of the server
}

// Entries returns the files in a directory below the prefix.
func (b *Bucket) Entries(ctx context.Context, dir string) (map[string]Entry, error) {
	all := map[string]Entry{}
	err := b.list(ctx, dir, func(name string, o minio.ObjectInfo) { all[name] = Entry{o.Size, o.LastModified} })
	return all, err
}

// Remove removes files. Those that do not exist are no error.
func (b *Bucket) Remove(ctx context.Context, names ...string) error { return b.remove(ctx, names...) }

// unfinished returns the last upload of a file that was interrupted, and its parts; "" where there is none.
func (b *Bucket) unfinished(ctx context.Context, name string) (id string, parts map[int]minio.ObjectPart, err error) {
	last := time.Time{}
	for up := range b.api.ListIncompleteUploads(ctx, b.name, b.prefix+name, true) {
		if up.Err != nil {
			return "", nil, up.Err
		}
		if up.Key == b.prefix+name && up.Initiated.After(last) {
			id, last = up.UploadID, up.Initiated
		}
	}
	if id == "" {
		return "", nil, nil
	}
	parts = map[int]minio.ObjectPart{}
	for marker := 0; ; {
		r, err := b.api.ListObjectParts(ctx, b.name, b.prefix+name, id, marker, 1000)
		switch {
		case minio.ToErrorResponse(err).Code == minio.NoSuchUpload: // another head has published it, or removed it
			return "", nil, nil
		case err != nil:
			return "", nil, err
		}
		for _, part := range r.ObjectParts {
			parts[part.PartNumber] = part
		}
		if !r.IsTruncated || r.NextPartNumberMarker <= marker {
			return id, parts, nil
		}
		marker = r.NextPartNumberMarker
	}
}

// isSent reports whether the server has a part with this content, by the MD5 that it computed when it received it. Those
// whose tags are no MD5, as of some that encrypt, are sent again.
func (u *Upload) isSent(number int, part []byte, md5Base64 string) (etag string, ok bool) {
	is, ok := u.there[number]
	sum, err := base64.StdEncoding.DecodeString(md5Base64)
	etag = strings.Trim(is.ETag, `"`)
	return etag, ok && err == nil && is.Size == int64(len(part)) && etag == hex.EncodeToString(sum)
}

// AbortOld removes the incomplete uploads of files in a directory that were begun before a time.
func (b *Bucket) AbortOld(ctx context.Context, dir string, before time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for up := range b.api.ListIncompleteUploads(ctx, b.name, b.prefix+dir+"/", true) {
		if up.Err != nil {
			return b.explain(ctx, "list the incomplete uploads in", dir, up.Err)
		}
		name, below := strings.CutPrefix(up.Key, b.prefix)
		if !below || !up.Initiated.Before(before) {
			continue
		}
		if err := b.abort(ctx, name, up.UploadID); err != nil {
			return err
		}
	}
	return nil
}
