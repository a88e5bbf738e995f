package trivet

import "encoding/json"

// The HTTP API's contract, as JSON over HTTPS. Every kind has the same operations, under its plural:
//
//	GET    /v1/machines          List     a page of records
//	POST   /v1/machines          create
//	GET    /v1/machines/NAME     read
//	PUT    /v1/machines/NAME     replace labels and spec
//	PATCH  /v1/machines/NAME     change labels and spec by a merge patch
//	PATCH  /v1/machines/NAME     apply: create it, or change the fields of one manager, by [MediaApplyPatch]
//	DELETE /v1/machines/NAME     delete
//	GET    /v1/watch             changes as server-sent events, see [WatchPut]
//
// Records of a project are below it, /v1/projects/PROJECT/templates. GET /v1/templates lists those of all projects.
//
// An error is a [Problem]. Other operations are in the OpenAPI document, /openapi.json.

// MediaMergePatch is the media type of a merge patch (RFC 7386).
const MediaMergePatch = "application/merge-patch+json"

// MediaApplyPatch is the media type of a record that is applied: what it has is set, what its manager applied before
// and it lacks is removed, and all else stays. The query has the manager, "apply" by default; former, a manager whose
// fields it takes over; and force=1 to overwrite what others have changed, which is a conflict otherwise.
const MediaApplyPatch = "application/apply-patch+json"

// Headers of requests and responses.
const (
	// HeaderIdempotencyKey is 32 hex digits chosen by the creator of a record. It becomes the record's UID, so that a
	// creator that lost the response can distinguish its own record from another one of the same name.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderRequestID identifies one request in logs and responses.
	HeaderRequestID = "X-Request-Id"
	// HeaderRevision of a response is a revision of the store that the response is not older than. A client that sends
	// the highest revision it received sees, at any head, everything that it has read or written. A response with a
	// lower revision than requested means that the cluster was restored and has another history. [RevisionLatest] in a
	// request asks for everything acknowledged so far; the request fails with ErrUnavailable where the head cannot find
	// that out.
	HeaderRevision = "Trivet-Revision"
	// HeaderHeads of a response lists the API URLs of all heads, separated by commas.
	HeaderHeads = "Trivet-Heads"
	// HeaderTrust of a response has the pins of the cluster's CAs, separated by commas.
	HeaderTrust = "Trivet-Trust"
	// HeaderStale is "true" in a response to a read where the head could not confirm by a quorum that its copy is
	// current: it may lack what was acknowledged. A response without it has all that was acknowledged two seconds before
	// it.
	HeaderStale = "Trivet-Stale"
)

// RevisionLatest as the [HeaderRevision] of a request asks for everything acknowledged before the request.
const RevisionLatest = "latest"

// List is one page of records.
type List struct {
	Items []json.RawMessage `json:"items"`
	// Revision is that of the first page: a watch from it misses nothing that the pages did not show.
	Revision int64 `json:"revision"`
	// Continue is the parameter for the next page; empty on the last page.
	Continue string `json:"continue,omitempty"`
}

// BootCA is the certificate authority of the boot servers of all heads.
type BootCA struct {
	// Certificate is the one to enrol, in PEM: while it is replaced, the new one.
	Certificate string `json:"certificate"`
	// Former are those that it replaces, in PEM: the one that signs until the new one does, and former ones.
	Former string `json:"former,omitempty"`
	// Links are the certificates by which former ones signed their successors, in PEM, which heads send. For iPXE, which
	// has to trust one of the certificates that are sent.
	Links string `json:"links,omitempty"`
}

// CA is the certificate authorities of the heads: one, or two while it is replaced.
type CA struct {
	Certificates string `json:"certificates"` // in PEM
}

// ScrapeTarget is a head as Prometheus finds it by its HTTP service discovery.
type ScrapeTarget struct {
	Targets []string          `json:"targets"` // host:port
	Labels  map[string]string `json:"labels"`  // of all its samples
}

// Version identifies a head and the software that it runs.
type Version struct {
	Version string `json:"version"`           // of the program
	Go      string `json:"go,omitempty"`      // the version of Go that it was built with
	Cluster string `json:"cluster,omitempty"` // ID of the cluster
	Head    string `json:"head,omitempty"`    // name of the head
}

// Deletion is the result of a deletion.
type Deletion struct {
	// Orphaned are the references that the deletion left without a target, since it was forced.
	Orphaned []Orphan `json:"orphaned"`
}

// Orphan is a reference to a record that does not exist.
type Orphan struct {
	Kind    Kind   `json:"kind"`              // of the record that has it
	Project string `json:"project,omitempty"` // that it belongs to
	Name    string `json:"name"`              // of that record
	Field   string `json:"field"`             // in that record
}

// QuarantineRequest gives the reason for a machine's quarantine.
type QuarantineRequest struct {
	Reason string `json:"reason"` // why, for people
}

// The power states that an operator may request. PowerCycle is off and then on.
const (
	PowerOn    = "on"
	PowerOff   = "off"
	PowerCycle = "cycle"
)

// PowerRequest requests a power state of a machine from its BMC.
type PowerRequest struct {
	Want  string `json:"want"`            // "on", "off" or "cycle"
	Force bool   `json:"force,omitempty"` // although the machine is at work in a run
}

// PowerState is the power state of a machine as its BMC reported it for this request.
type PowerState struct {
	Power string `json:"power"` // "on", "off" or "changing"
}

// BlobCheck requests that all full heads verify their copies of blobs.
type BlobCheck struct {
	Digests []string `json:"digests,omitempty"` // empty: all that heads hold, or lack although records refer to them
	// Repair fetches what is damaged or missing from heads that have a good copy, and waits for that.
	Repair bool `json:"repair,omitempty"`
	// Deep reads also the copies in the bucket of the site, of which else sizes and digests are compared.
	Deep bool `json:"deep,omitempty"`
}

// BucketCopy is the head of a copy that is in the bucket of the site.
const BucketCopy = "s3"

// BlobCopy is what a head found of its copy of a blob. One without a head is the end of a check.
type BlobCopy struct {
	Head    string    `json:"head"`              // its name; BucketCopy: the bucket
	Digest  string    `json:"digest,omitempty"`  // empty: of all its copies
	State   CopyState `json:"state"`             // whether it is good
	Bytes   int64     `json:"bytes,omitempty"`   // of a good copy its size, while it is checked those that were read
	Problem string    `json:"problem,omitempty"` // what is wrong with it, or why it cannot be checked
}

// CopyState is the state of a copy of a blob.
type CopyState string

// The states of a copy.
const (
	CopyChecking CopyState = "checking"
	CopyGood     CopyState = "good"
	CopyRepaired CopyState = "repaired" // fetched again from another head
	CopyDamaged  CopyState = "damaged"  // it is not served any more
	CopyMissing  CopyState = "missing"
	CopyUnknown  CopyState = "unknown" // the head does not respond, or cannot read it
)

// Bad reports whether a copy is neither good, nor repaired, nor being checked.
func (c BlobCopy) Bad() bool {
	return c.State == CopyDamaged || c.State == CopyMissing || c.State == CopyUnknown
}

// Upload is content that arrives over several connections. It exists at one head.
type Upload struct {
	ID     string `json:"id,omitempty"` // identifies it in the requests that send the content
	Offset int64  `json:"offset"`       // how many bytes the head has
	// Blob is set when the content already exists and nothing needs to be sent, and once the upload is finished.
	Blob *BlobRef `json:"blob,omitempty"`
	// Copied is the number of bytes of a finished upload that a second head holds: all of them when it is acknowledged.
	Copied int64 `json:"copied,omitempty"`
}
