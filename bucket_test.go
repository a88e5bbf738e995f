package trivet_test

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestBucketOfImagesIsValidated(t *testing.T) {
	for _, test := range []struct {
		blobs trivet.SiteBlobs
		want  string
	}{
		{trivet.SiteBlobs{S3: &trivet.Bucket{Location: "s3://images/site1", Secret: "ops/bucket"}}, ""},
		{trivet.SiteBlobs{Suspend: true}, "spec.blobs.s3 is missing: name a bucket, or remove spec.blobs"},
		{trivet.SiteBlobs{S3: &trivet.Bucket{Location: "images", Secret: "bucket"}},
			"spec.blobs.s3.location \"images\" must be s3://BUCKET/PREFIX"},
		{trivet.SiteBlobs{S3: &trivet.Bucket{Location: "s3://images"}}, "spec.blobs.s3.secret is missing"},
		{trivet.SiteBlobs{S3: &trivet.Bucket{Location: "s3://images", Secret: "bucket", Endpoint: "https://a:b@c"}},
			"spec.blobs.s3.endpoint has a user or password"},
	} {
		s := trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}, Spec: trivet.SiteSpec{Blobs: &test.blobs}}
		err := s.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %v; want %q", test.blobs, err, test.want)
		}
	}
}
