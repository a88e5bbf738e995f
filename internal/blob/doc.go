// Package blob keeps content-addressed files on one head, serves them over HTTP, and fetches them from heads.
//
// A blob is named by the SHA-256 of its content, "sha256:" and 64 hex digits. It has a chunk table: the concatenated
// SHA-256 digests of its 4 MiB chunks (the last chunk is shorter), 32 bytes each. An empty blob has an empty table. A
// [trivet.BlobRef] has the blob's digest, its length, and in Chunks the SHA-256 of the table, so that the holder of a
// reference can verify any range from any source.
//
// Writing: part.go writes and hashes (sums.go) an incomplete blob, for put.go (one stream) and upload.go (resumable
// pieces). store.go finds, lists and deletes; verify.go rereads a blob from the disk, and scrub.go says which one is
// next. Serving: serve.go sends files by zero-copy, each chunk after checked.go has verified it. Fetching, in machines:
// fetch.go, stream.go, source.go and table.go verify each chunk before it is returned. Between heads: puller.go
// schedules pulls, pull.go is one pull, pullfile.go its file, and pullserve.go serves it meanwhile.
package blob
