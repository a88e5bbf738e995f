// Package blob keeps content-addressed files on one head, serves them over HTTP and fetches them on the other side.
//
// A blob is named by the SHA-256 of its content, "sha256:" and 64 hex digits. Beside it lies its chunk table: the SHA-256
// of each 4 MiB of the content (the last chunk is shorter), 32 bytes each, one after the other and nothing else. An empty
// blob has an empty table. A [trivet.BlobRef] names content, its length, and by Chunks the SHA-256 of the table, so that
// whoever holds a reference can check any range by itself, whoever it comes from.
//
// Way of the bytes: part.go takes them in, hashing by sums.go; put.go and upload.go are the two callers of it, at once and
// in pieces; store.go finds, lists and deletes; verify.go reads again what is on the disk; serve.go gives them out by
// HTTP, zero-copy, which is why nothing is checked there; fetch.go, stream.go, source.go and table.go, on the machine's
// side, check each chunk before anybody sees it. Between heads, puller.go decides what is pulled when, pull.go is one pull,
// pullfile.go its file and pullserve.go what it gives to readers meanwhile.
package blob
