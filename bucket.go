package trivet

import (
	"regexp"
	"strings"
	"time"
)

// Bucket is what is below a prefix in an S3 bucket.
type Bucket struct {
	Location string `json:"location"` // "s3://BUCKET/PREFIX"
	// Endpoint is the URL of the server; empty: that of Amazon.
	Endpoint string `json:"endpoint,omitempty"`
	Region   string `json:"region,omitempty"` // empty: what the server says
	// Secret is the secret with the values "accessKey" and "secretKey": "NAME" or "PROJECT/NAME".
	Secret string `json:"secret"`
	// CA has the certificates, in PEM, that the server's is verified by; empty: those that the host of the head trusts.
	CA string `json:"ca,omitempty"`
}

// The values of the secret of an S3 bucket.
const (
	BucketAccessKey = "accessKey"
	BucketSecretKey = "secretKey"
)

// SiteBlobs is where the contents of images are kept besides the heads.
type SiteBlobs struct {
	// S3 is an S3 bucket that gets a further copy of the content of each image. Heads read it where none of them has that
	// content. What a cluster writes there is below its ID, so that several may have the same location.
	S3 *Bucket `json:"s3"`
	// Suspend: nothing is written to the bucket, and nothing is removed from it. It is still read. A recovery of the
	// cluster sets it.
	Suspend bool `json:"suspend,omitempty"`
}

// BlobsState is the state of the copies of images in a bucket.
type BlobsState string

// The states of the copies in a bucket.
const (
	BlobsActive  BlobsState = "active"  // the bucket has a copy of the content of each image
	BlobsCopying BlobsState = "copying" // some are being written
	BlobsFailing BlobsState = "failing" // the last attempt failed; it is tried again
)

// BlobsStatus is what the head found that looks after the copies in the bucket.
type BlobsStatus struct {
	State  BlobsState `json:"state,omitempty"`
	Reason string     `json:"reason,omitempty"` // why it is failing
	Head   string     `json:"head,omitempty"`   // the head that looked last
	Images int        `json:"images,omitempty"` // how many contents of images there are
	Copied int        `json:"copied,omitempty"` // of how many of them the bucket has a copy
	// Checked is when the sizes and digests of all copies were compared last.
	Checked  time.Time `json:"checked,omitzero"`
	Failures int       `json:"failures,omitempty"` // attempts since the last success
	Events   int64     `json:"events,omitempty"`   // counts the events of the bucket
}

var (
	bucketForm = regexp.MustCompile(`^s3://[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](/.*)?$`)
	regionForm = regexp.MustCompile(`^[-A-Za-z0-9]*$`)
)

// Equal reports whether two of them are the same; nil is none.
func (b *SiteBlobs) Equal(other *SiteBlobs) bool {
	if b == nil || other == nil || b.S3 == nil || other.S3 == nil {
		return b == other
	}
	return b.Suspend == other.Suspend && *b.S3 == *other.S3
}

func (b *SiteBlobs) validate(p *problems) {
	if b.S3 == nil {
		p.add("spec.blobs.s3", "is missing: name a bucket, or remove spec.blobs")
		return
	}
	b.S3.validate(p, "spec.blobs.s3")
}

func (b *Bucket) validate(p *problems, field string) {
	p.need(field+".location", b.Location)
	p.bytes(field+".location", b.Location, 600)
	if b.Location != "" && !bucketForm.MatchString(b.Location) {
		p.add(field+".location", "%.80q must be s3://BUCKET/PREFIX", b.Location)
	}
	p.bytes(field+".endpoint", b.Endpoint, 2<<10)
	if problem := problemOfServer(b.Endpoint); b.Endpoint != "" && problem != "" {
		p.add(field+".endpoint", "%s", problem)
	}
	p.bytes(field+".region", b.Region, 64)
	if !regionForm.MatchString(b.Region) {
		p.add(field+".region", "%.80q must have letters, digits and hyphens only", b.Region)
	}
	p.need(field+".secret", b.Secret)
	p.clusterRef(field+".secret", b.Secret)
	validateCA(p, field+".ca", b.CA)
}

// problemOfServer returns what is wrong with the URL of a server; empty: nothing.
func problemOfServer(text string) string {
	if problem := problemOfURL(text); problem != "" {
		return problem
	}
	if _, rest, _ := strings.Cut(strings.TrimSuffix(text, "/"), "://"); strings.ContainsAny(rest, "/?#") {
		return "must end after the host or the port"
	}
	return ""
}
