package bucket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"regexp"

	"github.com/minio/minio-go/v7"

	"github.com/trivet-project/trivet"
)

// permissions are what an account needs, as Amazon calls them.
const permissions = "allow it s3:ListBucket, s3:ListBucketMultipartUploads, s3:GetObject, s3:PutObject, " +
	"s3:DeleteObject and s3:AbortMultipartUpload"

const hintFull = "the bucket is full: free space on the server, or raise its quota"

// failure is the meaning of a code of S3.
type failure struct {
	kind error
	hint string
}

var failures = map[string]failure{
	minio.NoSuchBucket:               {trivet.ErrNotFound, "create the bucket, or correct its name"},
	"InvalidAccessKeyId":             {trivet.ErrUnauthenticated, "check AWS_ACCESS_KEY_ID, the profile, or accessKey of the secret"},
	"XAdminUserNotFound":             {trivet.ErrUnauthenticated, "check AWS_ACCESS_KEY_ID, the profile, or accessKey of the secret"},
	"SignatureDoesNotMatch":          {trivet.ErrUnauthenticated, "check AWS_SECRET_ACCESS_KEY, the profile, or secretKey of the secret"},
	"InvalidToken":                   {trivet.ErrUnauthenticated, "check AWS_SESSION_TOKEN"},
	"ExpiredToken":                   {trivet.ErrUnauthenticated, "the session has ended: get other credentials"},
	"RequestTimeTooSkewed":           {trivet.ErrUnauthenticated, "set the clock of this computer"},
	minio.AccessDenied:               {trivet.ErrForbidden, permissions},
	"PermanentRedirect":              {trivet.ErrInvalid, "name the region of the bucket by --s3-region, or s3.region of the record"},
	"AuthorizationHeaderMalformed":   {trivet.ErrInvalid, "name the region of the bucket by --s3-region, or s3.region of the record"},
	minio.PreconditionFailed:         {trivet.ErrExists, ""},
	"QuotaExceeded":                  {trivet.ErrUnavailable, hintFull},
	"XMinioStorageFull":              {trivet.ErrUnavailable, hintFull},
	"XMinioAdminBucketQuotaExceeded": {trivet.ErrUnavailable, hintFull},
}

// codeForm is that of the codes of S3.
var codeForm = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// explain gives an error its kind, and says what to do next. An object that does not exist is an fs.ErrNotExist.
func (b *Bucket) explain(ctx context.Context, op, name string, err error) error {
	var explained *trivet.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &explained):
		return err
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return context.Cause(ctx)
	}
	e := &trivet.Error{Op: op, Name: b.Path(name)}
	resp := minio.ToErrorResponse(err)
	if b.record && resp.StatusCode != 0 { // who reads the record does not read by it what another server answers
		err = fmt.Errorf("status %d", resp.StatusCode)
		if !codeForm.MatchString(resp.Code) {
			resp.Code = ""
		}
	}
	f, known := failures[resp.Code]
	switch {
	case known:
		e.Err, e.Hint = fmt.Errorf("%w: %w", f.kind, err), f.hint
	case resp.Code == minio.NoSuchKey:
		return fmt.Errorf("%s: %w", b.Path(name), fs.ErrNotExist)
	case resp.StatusCode == http.StatusForbidden:
		e.Err, e.Hint = fmt.Errorf("%w: %w", trivet.ErrForbidden, err), permissions
	case resp.Code != "":
		e.Err = fmt.Errorf("%w: the S3 server answers %s: %w", trivet.ErrUnavailable, resp.Code, err)
		e.Hint = "see the log of the server, and run the command again"
	default:
		e.Err = fmt.Errorf("%w: the S3 server: %w", trivet.ErrUnavailable, err)
		e.Hint = "check that it runs, and its endpoint; then run the command again"
	}
	return e
}
